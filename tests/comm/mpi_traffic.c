/* Tests concurrent communication: operations that start and complete in different orders, overlapping groups,
 * sends in both directions, and overlap with computation. Also tests the mesh of process groups and how ranks
 * divide cores.
 *
 * Ranks: 2 3 4 8 */
#include "ranks.h"

#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef WEFT_SANITIZED
#include <sanitizer/lsan_interface.h>
#endif

#include "base/clock.h"
#include "comm/cores.h"
#include "comm/mesh.h"
#include "comm/staging.h"
#include "comm/watchdog.h"

static Tensor filled(int64_t count, float value) {
    float *data = malloc((size_t)count * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) data[i] = value + (float)(i % 1000);
    return tensor_1d(data, DT_F32, count);
}

static void assert_filled(Tensor t, float value, float scale) {
    const float *data = t.data;
    for (int64_t i = 0; i < tensor_count(t); i++)
        if (data[i] != value + scale * (float)(i % 1000))
            fail_msg("element %lld is %g; expected %g", (long long)i, (double)data[i],
                     (double)(value + scale * (float)(i % 1000)));
}

/* Sum of (rank + plus) over all ranks. */
static float sum_of_ranks(const Group *group, float plus) {
    float n = (float)group->size;
    return n * (n - 1) / 2 + n * plus;
}

/* More reductions in flight than a group has memory for, waited for in reverse order. */
static void test_many_in_flight(void **state) {
    Ranks *ranks = *state;
    enum { MANY = 7 };
    Tensor data[MANY];
    Ticket ticket[MANY];
    for (int i = 0; i < MANY; i++) {
        data[i] = filled(20000 * (i + 1), (float)(ranks->world->rank + i));
        assert_ok(all_reduce(ranks->world, ranks->stream, data[i], REDUCE_SUM, &ticket[i]));
    }
    for (int i = MANY - 1; i >= 0; i--) {
        assert_ok(ticket_wait(ranks->stream, &ticket[i]));
        assert_null(ticket[i].group);
        assert_filled(data[i], sum_of_ranks(ranks->world, (float)i), (float)ranks->world->size);
        assert_ok(ticket_wait(ranks->stream, &ticket[i])); /* waiting on a zero ticket is a no-op */
        free(data[i].data);
    }
    assert_true(ranks->device->mem[MEM_COMM].current <= exchange_bytes(ranks->world->placement));
}

/* Ranks start and wait for operations of two overlapping groups in different orders. An operation that waits
 * for its peers must not block the other one. */
static void test_groups_interleave(void **state) {
    Ranks *ranks = *state;
    Group *world = ranks->world, *low = NULL, *same = NULL;
    int pair = world->rank / 2;
    assert_ok(group_split(world, pair, -world->rank, GROUP_TENSORS, &low));
    assert_ok(group_split(world, world->rank % 2, world->rank, GROUP_TENSORS, &same));
    assert_int_equal(low->size, pair * 2 + 1 < world->size ? 2 : 1);
    if (low->size == 2) assert_int_equal(low->rank, 1 - world->rank % 2); /* the key reverses the order */
    Tensor a = filled(150000, (float)low->rank), b = filled(150000, (float)same->rank);
    Ticket ta, tb;
    if (world->rank % 3 == 0) {
        assert_ok(all_reduce(low, ranks->stream, a, REDUCE_SUM, &ta));
        assert_ok(all_reduce(same, ranks->stream, b, REDUCE_SUM, &tb));
    } else {
        assert_ok(all_reduce(same, ranks->stream, b, REDUCE_SUM, &tb));
        assert_ok(all_reduce(low, ranks->stream, a, REDUCE_SUM, &ta));
    }
    assert_ok(ticket_wait(ranks->stream, world->rank % 2 ? &ta : &tb));
    assert_ok(ticket_wait(ranks->stream, world->rank % 2 ? &tb : &ta));
    assert_filled(a, sum_of_ranks(low, 0), (float)low->size);
    assert_filled(b, sum_of_ranks(same, 0), (float)same->size);
    free(a.data);
    free(b.data);
    group_free(low);
    group_free(same);
}

/* Reductions that wait for a late peer must not starve others of slots. */
static void test_late_peer(void **state) {
    Ranks *ranks = *state;
    Group *world = ranks->world;
    enum { HELD = 4 };
    Tensor held[HELD], now = filled(100000, (float)world->rank);
    Ticket ticket[HELD], soon;
    Group *others[HELD] = {NULL};
    for (int i = 0; i < HELD; i++) {
        held[i] = filled(60000, (float)world->rank);
        assert_ok(group_split(world, 0, world->rank, GROUP_TENSORS, &others[i]));
    }
    for (int i = 0; i < HELD && world->rank != 1; i++)
        assert_ok(all_reduce(others[i], ranks->stream, held[i], REDUCE_SUM, &ticket[i]));
    assert_ok(all_reduce(world, ranks->stream, now, REDUCE_SUM, &soon));
    assert_ok(ticket_wait(ranks->stream, &soon));
    for (int i = 0; i < HELD && world->rank == 1; i++)
        assert_ok(all_reduce(others[i], ranks->stream, held[i], REDUCE_SUM, &ticket[i]));
    assert_filled(now, sum_of_ranks(world, 0), (float)world->size);
    for (int i = 0; i < HELD; i++) {
        assert_ok(ticket_wait(ranks->stream, &ticket[i]));
        assert_filled(held[i], sum_of_ranks(world, 0), (float)world->size);
        free(held[i].data);
        group_free(others[i]);
    }
    free(now.data);
}

static int warnings;

static void count_warning(const char *text) {
    assert_non_null(strstr(text, "which is still at work (computing)"));
    warnings++;
}

static void compute(void) {
    for (double start = clock_wall(); clock_wall() - start < 4.5;)
        ;
}

/* The parent's thread is in uninterruptible sleep until the child ends, as if in fsync. */
static void sleep_on_disk(void) {
    pid_t child = vfork();
    if (child == 0) {
        nanosleep(&(struct timespec){.tv_sec = 4, .tv_nsec = 500000000}, NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* A rank that takes longer than the limit is reported once, by one rank, and not given up. */
static void check_slow_rank(Ranks *ranks, void (*work)(void)) {
    Watchdog *watch = group_watchdog(ranks->world);
    int64_t count;
    if (ranks->world->size > 2) skip(); /* takes a while */
    warnings = 0;
    watch->limit_s = 3;
    watch->warn = count_warning;
    group_doing(ranks->world, "computing", 1);
    if (ranks->world->rank == 0) work();
    assert_ok(barrier(ranks->world));
    watch->limit_s = 0;
    count = warnings;
    assert_ok(host_reduce(ranks->world, &count, 1, DT_I64, REDUCE_SUM));
    assert_int_equal(count, 1);
}

static void test_slow_rank(void **state) {
    check_slow_rank(*state, compute);
}

static void test_slow_disk(void **state) {
    check_slow_rank(*state, sleep_on_disk);
}

/* With a usual time, the rank that is waited for is named at twice that, long before any limit. */
static void test_slower_than_usual(void **state) {
    Group *world = ((Ranks *)*state)->world;
    Watchdog *watch = group_watchdog(world);
    int64_t count;
    if (world->size > 2) skip();
    warnings = 0;
    watch->usual_s = 0.5;
    watch->warn = count_warning;
    group_doing(world, "computing", 1);
    if (world->rank == 0) compute();
    assert_ok(barrier(world));
    watch->usual_s = 0;
    count = warnings;
    assert_ok(host_reduce(world, &count, 1, DT_I64, REDUCE_SUM));
    assert_int_equal(count, 1);
}

/* The operation makes progress while the caller computes without polling. */
static void test_overlap(void **state) {
    Ranks *ranks = *state;
    int64_t count = 1000003;
    Tensor data = filled(count, (float)ranks->world->rank);
    Ticket ticket;
    assert_ok(barrier(ranks->world));
    assert_ok(all_reduce(ranks->world, ranks->stream, data, REDUCE_SUM, &ticket));
    volatile const float *last = (float *)data.data + count - 1, *first = data.data;
    float want = sum_of_ranks(ranks->world, 0);
    double start = clock_wall();
    float want_last = want + (float)ranks->world->size * (float)((count - 1) % 1000);
    while ((*first != want || *last != want_last) && clock_wall() - start < 20)
        for (volatile int i = 0; i < 100000; i++) continue;
    assert_true(clock_wall() - start < 20);
    assert_ok(ticket_wait(ranks->stream, &ticket));
    assert_filled(data, want, (float)ranks->world->size);
    free(data.data);
}

/* Sends large and small messages around the ring in both directions at the same time. */
static void test_send_both_ways(void **state) {
    Ranks *ranks = *state;
    Group *world = ranks->world;
    int after = (world->rank + 1) % world->size, before = (world->rank + world->size - 1) % world->size;
    enum { MESSAGES = 4 };
    static const int64_t counts[MESSAGES] = {5, 400000, 0, 30000};
    Tensor out[MESSAGES], up[MESSAGES], down[MESSAGES];
    Ticket ticket[4 * MESSAGES] = {{0}};
    int at = 0;
    assert_ok(comm_batch_begin(world));
    for (int i = 0; i < MESSAGES; i++) {
        out[i] = filled(counts[i], (float)(100 * world->rank + i));
        up[i] = filled(counts[i], -1);
        down[i] = filled(counts[i], -1);
        assert_ok(comm_send(world, ranks->stream, out[i], after, &ticket[at++]));
        if (world->size > 2) assert_ok(comm_send(world, ranks->stream, out[i], before, &ticket[at++]));
    }
    for (int i = 0; i < MESSAGES; i++) {
        assert_ok(comm_receive(world, ranks->stream, up[i], before, &ticket[at++]));
        if (world->size > 2) assert_ok(comm_receive(world, ranks->stream, down[i], after, &ticket[at++]));
    }
    assert_ok(comm_batch_end(world));
    while (at > 0) assert_ok(ticket_wait(ranks->stream, &ticket[--at]));
    for (int i = 0; i < MESSAGES; i++) {
        assert_filled(up[i], (float)(100 * before + i), 1);
        if (world->size > 2) assert_filled(down[i], (float)(100 * after + i), 1);
        free(out[i].data);
        free(up[i].data);
        free(down[i].data);
    }
    assert_fails(comm_send(world, ranks->stream, up[0], world->rank, NULL), 1, "itself");
    assert_fails(comm_send(world, ranks->stream, up[0], world->size, NULL), 1, "rank");
}

/* Asserts the world ranks of a group's members, in order, and that a dry run plans the same group. */
static void assert_members(Group *group, const Group *planned, Group *world, const int *want, int count) {
    int found[64];
    assert_int_equal(group->size, count);
    assert_int_equal(planned->size, count);
    assert_int_equal(planned->rank, group->rank);
    assert_ok(host_gather(group, found, &world->rank, sizeof(int)));
    for (int i = 0; i < count; i++) {
        assert_int_equal(found[i], want[i]);
        if (count > 1) assert_int_equal(planned->placement->node[i], want[i] / 2);
    }
}

static int rank_at(MeshSpec spec, int dp, int tp, int pp) {
    return (pp * spec.dp + dp) * spec.tp + tp;
}

/* Replicas `apart` from each other among the `set` consecutive ones with this rank. */
static void check_replicas(Group *group, const Group *planned, Group *world, MeshSpec spec, const Mesh *mesh,
                           int apart, int set) {
    int want[64], n = 0, dp = mesh->at[AXIS_DP];
    for (int i = dp / set * set; i < dp / set * set + set; i++)
        if (i % apart == dp % apart) want[n++] = rank_at(spec, i, mesh->at[AXIS_TP], mesh->at[AXIS_PP]);
    assert_members(group, planned, world, want, n);
}

static void check_experts(Group *world, MeshSpec spec, const Mesh *mesh, const Mesh *planned) {
    int ep = mesh_experts(spec), shard = mesh_shard(spec), set = shard % ep ? ep : shard;
    assert_int_equal(mesh->ep, ep);
    check_replicas(mesh->expert, planned->expert, world, spec, mesh, 1, ep);
    if (ep == 1) {
        assert_int_equal(mesh->expert_shard->size, 1);
        assert_int_equal(mesh->expert_replica->size, 1);
        return;
    }
    check_replicas(mesh->expert_shard, planned->expert_shard, world, spec, mesh, ep, set);
    check_replicas(mesh->expert_replica, planned->expert_replica, world, spec, mesh, set, spec.dp);
    assert_int_equal(mesh->expert_shard->size, mesh_experts_shard(spec));
}

static void check_mesh(Group *world, MeshSpec spec) {
    CLEANUP(mesh_freep) Mesh *mesh = NULL;
    CLEANUP(mesh_freep) Mesh *planned = NULL;
    assert_ok(mesh_new(&mesh, world, spec));
    assert_ok(mesh_new_dryrun(&planned, spec, world->rank, 2, true));
    int dp = mesh->at[AXIS_DP], tp = mesh->at[AXIS_TP], pp = mesh->at[AXIS_PP], want[64], n = 0;
    assert_int_equal(rank_at(spec, dp, tp, pp), world->rank);
    assert_int_equal(mesh_number(mesh, AXES_ALL, world->rank), world->rank);
    assert_int_equal(mesh_number(mesh, AXIS_SET(AXIS_DP), world->rank), dp);
    for (int i = 0; i < world->size; i++) want[i] = i;
    assert_members(mesh->world, planned->world, world, want, world->size);
    for (int i = 0; i < spec.dp; i++) want[i] = rank_at(spec, i, tp, pp);
    assert_members(mesh->axis[AXIS_DP], planned->axis[AXIS_DP], world, want, spec.dp);
    for (int i = 0; i < spec.tp; i++) want[i] = rank_at(spec, dp, i, pp);
    assert_members(mesh->axis[AXIS_TP], planned->axis[AXIS_TP], world, want, spec.tp);
    for (int i = 0; i < spec.pp; i++) {
        want[i] = rank_at(spec, dp, tp, i);
        assert_int_equal(mesh_numbered(mesh, AXIS_SET(AXIS_PP), i), want[i]);
    }
    assert_members(mesh->axis[AXIS_PP], planned->axis[AXIS_PP], world, want, spec.pp);
    int shard = spec.shard ? spec.shard : spec.dp;
    for (int i = 0; i < shard; i++) want[i] = rank_at(spec, dp / shard * shard + i, tp, pp);
    assert_members(mesh->shard, planned->shard, world, want, shard);
    for (int i = 0; i < spec.dp / shard; i++) want[i] = rank_at(spec, i * shard + dp % shard, tp, pp);
    assert_members(mesh->replica, planned->replica, world, want, spec.dp / shard);
    for (int i = 0; i < spec.pp * spec.tp; i++) want[i] = rank_at(spec, dp, i % spec.tp, i / spec.tp);
    assert_members(mesh->model, planned->model, world, want, spec.pp * spec.tp);
    want[n++] = rank_at(spec, dp, tp, pp == spec.pp - 1 ? 0 : pp);
    if (spec.pp > 1 && (pp == 0 || pp == spec.pp - 1)) want[n++] = rank_at(spec, dp, tp, spec.pp - 1);
    assert_members(mesh->ends, planned->ends, world, want, n);
    check_experts(world, spec, mesh, planned);
}

static void test_mesh(void **state) {
    Group *world = ((Ranks *)*state)->world;
    int n = world->size, layouts = 0;
    for (MeshSpec spec = {0}; mesh_next(&spec, n, (MeshSpec){.tp = n, .pp = n}); layouts++) {
        for (int ep = 1; ep <= spec.dp; ep++) {
            MeshSpec with = spec;
            with.ep = ep == 1 ? 0 : ep;
            with.shard = ep == 1 && spec.dp % 2 == 0 ? spec.dp / 2 : 0;
            if (spec.dp % ep) continue;
            check_mesh(world, with);
            with.shard = spec.dp % 2 ? 1 : 2;
            if (ep > 1) check_mesh(world, with);
        }
    }
    assert_int_equal(layouts, n == 2 ? 3 : n == 3 ? 3 : n == 4 ? 6 : n == 8 ? 10 : layouts);
    Mesh *mesh = NULL;
    assert_fails(mesh_new(&mesh, world, (MeshSpec){.dp = n, .tp = 2, .pp = 1}), 2, "number of ranks");
    assert_fails(mesh_new(&mesh, world, (MeshSpec){.dp = n, .tp = 1, .pp = 1, .shard = n + 1}), 2, "divide");
    assert_fails(mesh_new(&mesh, world, (MeshSpec){.dp = n, .ep = 5}), 2, "--ep 5 does not divide the");
    assert_null(mesh);
}

/* Ranks on the same host use no more threads than it has cores, unless each rank already has only one. */
static void test_cores(void **state) {
    Group *world = ((Ranks *)*state)->world;
    cpu_set_t before;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CoreShare share;
    assert_int_equal(setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1), 0);
    assert_ok(cores_share(world, 0, &share)); /* as with mpirun --bind-to none */
    assert_false(share.bound);
    assert_int_equal(setenv(CORES_PIN, "1", 1), 0);
    assert_ok(cores_share(world, 0, &share));
    assert_int_equal(share.ranks, world->size);
    int64_t threads = share.threads;
    assert_ok(host_reduce(world, &threads, 1, DT_I64, REDUCE_SUM));
    assert_true(share.threads >= 1);
    assert_true(threads <= CPU_COUNT(&before) || share.threads == 1);
    assert_true(!share.bound || CPU_COUNT(&before) >= world->size);
    bool pinned = share.bound;
    cpu_set_t after;
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_int_equal(CPU_COUNT(&after), share.cores);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_ok(cores_share(world, 0, &share)); /* another job finds the cores taken */
    assert_true(!pinned || !share.bound);
    assert_ok(cores_share(world, 5000, &share)); /* an explicit thread count is honored */
    assert_int_equal(share.threads, 5000);
    assert_false(share.bound);
}

/* Operations that ranks abandon at any stage, on one node and on two, and others after that. The memory of
 * abandoned operations stays in use. */
static void check_abandon(Ranks *ranks, const char *nodes, int round) {
#ifdef WEFT_SANITIZED
    __lsan_disable(); /* abandoned operations are leaked on purpose */
#endif
    enum { MANY = 3, SIZE = 150000 };
    CLEANUP(mesh_freep) Mesh *mesh = NULL;
    Group *world = ranks->world;
    setenv("WEFT_NODES", nodes, 1);
    assert_ok(mesh_new(&mesh, world, (MeshSpec){.dp = world->size, .tp = 1, .pp = 1}));
    unsetenv("WEFT_NODES");
    Group *group = mesh->axis[AXIS_DP];
    volatile sig_atomic_t stop = 0;
    mesh_section_begin(mesh, &stop);
    Ticket ticket[MANY] = {{0}};
    Status status = OK;
    bool stops = world->rank == round % world->size;
    for (int i = 0; i < MANY && !status; i++) {
        if (stops && i == round % MANY) break;
        Tensor data = filled(SIZE, (float)i);
        status = i == 1 ? all_to_all(group, ranks->stream, filled(SIZE, 0), data, NULL, NULL, &ticket[i])
                        : all_reduce(group, ranks->stream, data, REDUCE_SUM, &ticket[i]);
    }
    if (stops) stop = SIGTERM;
    if (!status && stops) status = mesh_section_check(mesh);
    for (int i = 0; i < MANY && !status; i++) status = ticket_wait(ranks->stream, &ticket[i]);
    assert_true(status && status_stopped(status));
    status_free(status);
    assert_ok(mesh_recover(mesh));
#ifdef WEFT_SANITIZED
    __lsan_enable();
#endif
    for (int i = 0; i < 2; i++) {
        Tensor data = filled(SIZE, (float)world->rank);
        assert_ok(all_reduce(group, ranks->stream, data, REDUCE_SUM, NULL));
        assert_filled(data, sum_of_ranks(world, 0), (float)world->size);
        Tensor mixed = filled(SIZE, 0);
        assert_ok(all_to_all(group, ranks->stream, mixed, data, NULL, NULL, NULL));
        int64_t part = SIZE / world->size;
        Tensor own = tensor_slice(data, world->rank * part, part);
        for (int r = 0; r < world->size; r++)
            assert_memory_equal(tensor_slice(mixed, r * part, part).data, own.data, tensor_bytes(own));
        free(mixed.data);
        free(data.data);
    }
}

static void test_abandon(void **state) {
    for (int round = 0; round < 6; round++)
        check_abandon(*state, round % 2 ? "0,0,0,1,1,1,1,0" : "0,0,0,0,0,0,0,0", round);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_many_in_flight), cmocka_unit_test(test_groups_interleave),
    cmocka_unit_test(test_late_peer),      cmocka_unit_test(test_slower_than_usual),
    cmocka_unit_test(test_slow_rank),      cmocka_unit_test(test_slow_disk),
    cmocka_unit_test(test_overlap),        cmocka_unit_test(test_send_both_ways),
    cmocka_unit_test(test_mesh),           cmocka_unit_test(test_abandon),
    cmocka_unit_test(test_cores),
};

RANKS_MAIN(tests)
