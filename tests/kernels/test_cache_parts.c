/* A KV cache whose positions are divided into parts, as ranks of context parallelism have them: the combined
 * results of all parts must be those of one cache, whatever is fed at once. */
#include <math.h>

#include "kit.h"

enum { B = 2, G = 2, D = 8, S = 100, RANKS = 3, FEEDS = 7 };
enum { WINDOWED = 1, GROUPED = 2, INT8 = 4, HALF = 8, FLAGS = 16 };

/* New positions of the two sequences in turn: prompts, steps, and one sequence alone. */
static const int32_t feeds[FEEDS][B] = {{41, 3}, {1, 1}, {1, 0}, {9, 30}, {1, 1}, {0, 12}, {20, 8}};

typedef struct Cache {
    Tensor k, v;
} Cache;

static Cache cache_new(Kit *kit, int flags, int64_t rows) {
    DType type = flags & INT8 ? DT_I8 : flags & HALF ? DT_BF16 : DT_F32;
    Tensor like = tensor_4d(NULL, type, B, G, rows, D + (flags & INT8 ? CACHE_SCALE : 0));
    return (Cache){kit_take(kit, like), kit_take(kit, like)};
}

/* The new positions, and what the whole cache returns for them. */
typedef struct Step {
    Tensor qkv, past, fresh, out, lse;
    Attention spec;
} Step;

static Step step_new(Kit *kit, int flags, int feed, const int32_t past[B]) {
    int64_t H = flags & GROUPED ? 3 * G : G, T = 1;
    for (int b = 0; b < B; b++) T = feeds[feed][b] > T ? feeds[feed][b] : T;
    Step step = {.qkv = kit_uniform(kit, shape4(B, T, H + 2 * G, D), -2, 2),
                 .past = kit_index(kit, shape1(B), 0, 1),
                 .fresh = kit_index(kit, shape1(B), 0, 1),
                 .out = kit_take(kit, shape4(B, T, H, D)),
                 .lse = kit_take(kit, shape3(B, H, T)),
                 .spec = {.scale = 0.5f, .kv_heads = G, .window = flags & WINDOWED ? 17 : 0}};
    for (int b = 0; b < B; b++) {
        tensor_i32(step.past)[b] = past[b];
        tensor_i32(step.fresh)[b] = feeds[feed][b];
    }
    return step;
}

static void decode(Kit *kit, const Step *step, Cache cache, CachePart part, Tensor out, Tensor lse) {
    Attention spec = step->spec;
    spec.part = part, spec.lse = lse;
    assert_ok(attention_decode(&kit->exec, out, cache.k, cache.v, step->qkv, step->past, step->fresh, spec));
}

/* Of the rows that are new in each sequence. */
static void compare_step(const Step *step, Tensor out, Tensor lse) {
    int64_t T = out.dim[1], H = out.dim[2];
    for (int64_t row = 0; row < B * H * T; row++) {
        int64_t b = row / (H * T), h = row / T % H, t = row % T;
        if (t >= tensor_i32(step->fresh)[b]) continue;
        assert_true(fabsf(tensor_f32(lse)[row] - tensor_f32(step->lse)[row]) < 1e-5f);
        for (int64_t at = ((b * T + t) * H + h) * D, d = 0; d < D; d++)
            assert_true(fabsf(tensor_f32(out)[at + d] - tensor_f32(step->out)[at + d]) < 1e-5f);
    }
}

/* The rows of a part are the rows of its positions in the whole cache. */
static void compare_cache(Cache part, CachePart of, Cache whole, const int32_t length[B]) {
    size_t row = tensor_bytes(whole.k) / (B * G * S);
    for (int64_t at = 0; at < B * G; at++)
        for (int64_t p = 0; p < length[at / G]; p++) {
            int64_t to = cache_rows_before(&of, p);
            if (cache_rows_before(&of, p + 1) == to) continue;
            const char *one = (char *)part.k.data + (size_t)(at * part.k.dim[2] + to) * row;
            assert_memory_equal(one, (char *)whole.k.data + (size_t)(at * S + p) * row, row);
        }
}

static void check_parts(const char *backend, int flags, int64_t block) {
    Kit kit;
    kit_init(&kit, backend, 2);
    Cache whole = cache_new(&kit, flags, S), cache[RANKS];
    CachePart part[RANKS];
    int32_t past[B] = {0};
    for (int r = 0; r < RANKS; r++) {
        part[r] = (CachePart){block, r, RANKS};
        cache[r] = cache_new(&kit, flags, cache_rows_before(&part[r], S));
    }
    for (int f = 0; f < FEEDS; f++) {
        Step step = step_new(&kit, flags, f, past);
        decode(&kit, &step, whole, (CachePart){0}, step.out, step.lse);
        Tensor sum = kit_take(&kit, step.out), sum_lse = kit_take(&kit, step.lse);
        Tensor out = kit_take(&kit, step.out), lse = kit_take(&kit, step.lse);
        for (int64_t i = 0; i < tensor_count(lse); i++) tensor_f32(sum_lse)[i] = -INFINITY;
        for (int r = 0; r < RANKS; r++) {
            decode(&kit, &step, cache[r], part[r], out, lse);
            assert_ok(attention_combine(&kit.exec, sum, sum_lse, out, lse));
        }
        compare_step(&step, sum, sum_lse);
        for (int b = 0; b < B; b++) past[b] += feeds[f][b];
    }
    for (int r = 0; r < RANKS; r++) compare_cache(cache[r], part[r], whole, past);
    kit_done(&kit);
}

static void parts_equal_whole(void **state) {
    static const int64_t blocks[] = {1, 5, 16, 40, 200};
    for (int flags = 0; flags < FLAGS; flags++)
        for (int i = 0; i < 5; i++) {
            if (flags & INT8 && flags & HALF) continue;
            check_parts("ref", flags, blocks[i]);
            check_parts("cpu", flags, blocks[i]);
        }
}

static void refuses_parts(void **state) {
    Kit kit;
    kit_init(&kit, "cpu", 1);
    Step step = step_new(&kit, 0, 2, (int32_t[]){4, 0});
    Cache cache = cache_new(&kit, 0, 2);
    step.spec.part = (CachePart){2, 1, 2};
    assert_ok(attention_decode(&kit.exec, step.out, cache.k, cache.v, step.qkv, step.past, step.fresh,
                               step.spec)); /* 2 of the 5 positions */
    step.spec.part.rank = 0;                /* 3 of them */
    assert_fails(
        attention_decode(&kit.exec, step.out, cache.k, cache.v, step.qkv, step.past, step.fresh, step.spec),
        1, "has room for 2");
    step.spec.part.rank = 2;
    assert_fails(
        attention_decode(&kit.exec, step.out, cache.k, cache.v, step.qkv, step.past, step.fresh, step.spec),
        1, "part 2 of 2");
    kit_done(&kit);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_equal_whole), cmocka_unit_test(refuses_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
