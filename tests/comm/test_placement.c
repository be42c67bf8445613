/* The division of labor in collectives, for every way to divide up to 7 ranks among nodes. */
#include "test.h"

#include "base/memory.h"
#include "comm/staging.h"

enum { MOST = 7, COUNT = 1003 };

/* The next way to divide ranks among nodes; false after the last. */
static bool next_placement(int *node, int size) {
    for (int r = size - 1; r > 0; r--) {
        int most = 0;
        for (int s = 0; s < r; s++) most = node[s] > most ? node[s] : most;
        if (node[r] > most) continue;
        node[r]++;
        for (int s = r + 1; s < size; s++) node[s] = 0;
        return true;
    }
    return false;
}

static bool on_one_node(const int *node, RankSpan span) {
    for (int r = span.first; r < span.end; r++)
        if (node[r] != node[span.first]) return false;
    return true;
}

/* The largest subtrees on one node, from the left. */
static int partials_of(const int *node, int first, int end, RankSpan *ret_span) {
    if (on_one_node(node, (RankSpan){first, end})) {
        *ret_span = (RankSpan){first, end};
        return 1;
    }
    int middle = tree_split(first, end), count = partials_of(node, first, middle, ret_span);
    return count + partials_of(node, middle, end, ret_span + count);
}

static void check_partials(const Placement *p, const int *node) {
    RankSpan want[MOST];
    int count = partials_of(node, 0, p->size, want), found = 0;
    assert_int_equal(p->partials[p->domains], count);
    for (int d = 0; d < p->domains; d++)
        for (int i = p->partials[d]; i < p->partials[d + 1]; i++)
            for (int k = 0; k < count; k++)
                if (p->partial[i].first == want[k].first && p->partial[i].end == want[k].end)
                    found += p->domain[want[k].first] == d;
    assert_int_equal(found, count);
}

/* Every rank of a domain has the same view of who handles what, and each part is handled once, at home by its
 * owner. */
static void check_handlers(Placement *const *all, int size) {
    for (int r = 0; r < size; r++) {
        const Placement *p = all[r];
        int own = p->domain[r];
        assert_int_equal(p->member[p->start[own] + p->local], r);
        assert_int_equal(p->handled_start[p->locals], size);
        assert_int_equal(p->handled[p->handled_start[p->local]], r);
        for (int q = 0; q < size; q++) {
            int handler = p->handler[q];
            assert_int_equal(p->domain[handler], own);
            assert_int_equal(handler, placement_handler(all[0], own, q));
            assert_int_equal(handler, all[q]->peer[own]);
            if (p->domain[q] == own) assert_int_equal(handler, q);
            const Placement *other = all[handler];
            assert_int_equal(other->handled[other->handled_start[other->local] + p->place[q]], q);
        }
        int handled = p->handled_start[p->local + 1] - p->handled_start[p->local];
        assert_true(handled <= p->most_handled);
    }
}

/* In a gather, every part reaches every other node once; in total, every rank receives all other parts. */
static void check_bytes(Placement *const *all, int size, int nodes) {
    CommBytes gather = {0}, reduce = {0}, broadcast = {0};
    int64_t want = 0;
    for (int r = 0; r < size; r++) {
        sent_gather(all[r], COUNT, 4, &gather);
        sent_reduce(all[r], COUNT, DT_F32, &reduce);
        sent_broadcast(all[r], COUNT, size - 1, &broadcast);
    }
    for (int d = 0; d < nodes; d++)
        for (int q = 0; q < size; q++)
            if (all[0]->domain[q] != d) want += part_count(COUNT, size, q) * partial_bytes(all[0], d, DT_F32);
    assert_int_equal(gather.between, (nodes - 1) * COUNT * 4);
    assert_int_equal(comm_bytes_sum(gather), (size - 1) * COUNT * 4);
    assert_int_equal(reduce.between, want);
    assert_int_equal(broadcast.between, (nodes - 1) * COUNT);
    assert_int_equal(comm_bytes_sum(broadcast), (size - 1) * COUNT);
}

static void check_memory(Placement *const *all, int size) {
    for (DType type = DT_F32; type <= DT_F16; type++) {
        int64_t bytes = (int64_t)dtype_size(type), chunk = reduce_chunk(all[0], type);
        assert_true(chunk > 0);
        for (int r = 0; r < size; r++) {
            const Placement *p = all[r];
            RoundBytes round = round_bytes(p);
            int own = p->domain[r], handled = p->handled_start[p->local + 1] - p->handled_start[p->local];
            int64_t staged = p->locals > 1 ? (handled - 1) * partial_bytes(p, own, type) : 0;
            for (int d = 0; d < p->domains; d++)
                if (d != own) staged += partial_bytes(p, d, type);
            assert_int_equal(reduce_chunk(p, type), chunk);
            assert_true((size_t)(staged * chunk) <= round.staging);
            if (p->locals == 1) continue;
            assert_true((size_t)(size * chunk * bytes) <= round.input);
            assert_true((size_t)(handled * chunk * bytes) <= round.result);
            assert_true((size_t)(handled * gather_chunk(p)) <= round.result);
            assert_true((size_t)broadcast_chunk(p) <= round.result);
        }
    }
}

static void test_every_placement(void **state) {
    for (int size = 2; size <= MOST; size++) {
        int node[MOST] = {0}, count = 0;
        do {
            Placement *all[MOST];
            int nodes = 0;
            for (int r = 0; r < size; r++) {
                assert_ok(placement_new(&all[r], r, size, node, NULL));
                if (node[r] >= nodes) nodes = node[r] + 1;
            }
            assert_int_equal(all[0]->domains, nodes);
            check_partials(all[0], node);
            check_handlers(all, size);
            check_bytes(all, size, nodes);
            check_memory(all, size);
            for (int r = 0; r < size; r++) placement_free(all[r]);
            count++;
        } while (next_placement(node, size));
        static const int bell[MOST + 1] = {1, 1, 2, 5, 15, 52, 203, 877};
        assert_int_equal(count, bell[size]);
    }
}

/* Nodes of 1, 2, 4 ... adjacent ranks send one partial sum, so an all-reduce of n bytes on N nodes takes
 * 2n(N-1)/N from each. */
static void test_usual_clusters(void **state) {
    static const int clusters[][2] = {{2, 1}, {2, 2}, {3, 2}, {2, 4}, {5, 4}, {16, 8}};
    for (size_t i = 0; i < sizeof clusters / sizeof *clusters; i++) {
        int nodes = clusters[i][0], each = clusters[i][1], size = nodes * each, node[128];
        CommBytes sent = {0};
        for (int r = 0; r < size; r++) node[r] = r / each;
        for (int r = 0; r < each; r++) {
            CLEANUP(placement_freep) Placement *p = NULL;
            assert_ok(placement_new(&p, r, size, node, NULL));
            assert_int_equal(p->partials[p->domains], nodes);
            sent_reduce(p, 480 * size, DT_F32, &sent);
            sent_gather(p, 480 * size, 4, &sent);
        }
        assert_int_equal(sent.between, 2 * 480 * 4 * size * (nodes - 1) / nodes);
    }
}

/* Where memory cannot be shared, every rank is a domain; bytes still count as sent within the node. */
static void test_single_ranks(void **state) {
    CLEANUP(placement_freep) Placement *p = NULL;
    const int node[] = {0, 0, 1, 1}, domain[] = {0, 1, 2, 3};
    assert_ok(placement_new(&p, 2, 4, node, domain));
    CommBytes sent = {0};
    sent_reduce(p, 400, DT_BF16, &sent);
    assert_int_equal(p->domains, 4);
    assert_int_equal(sent.within, 100 * 2);
    assert_int_equal(sent.between, 2 * 100 * 2);
    assert_int_equal(segment_bytes(p), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_placement),
        cmocka_unit_test(test_usual_clusters),
        cmocka_unit_test(test_single_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
