/* Attention as ranks of context parallelism compute it: a rank has one chunk from the head of the sequences
 * and one from their tail, and attends with its queries to one rank's keys at a time. The combined results
 * and the sums of the gradients must be those of one call on whole sequences. */
#include <math.h>
#include <stdlib.h>

#include "kit.h"

enum { B = 2, T = 144, D = 8, RANKS = 4 };
enum { CAUSAL = 1, WINDOWED = 2, DOCUMENTS = 4, DROPPED = 8, PADDED = 16, GROUPED = 32, FLAGS = 64 };

/* A rank's rows, and its results. Keys of odd ranks are those of their qkv, which has the queries as well. */
typedef struct Part {
    Positions at;
    Tensor qkv, dqkv, kv, dkv, out, lse, dout;
} Part;

static int64_t position(const Part *part, int64_t t) {
    return t < part->at.turn ? part->at.first + t : part->at.second + t - part->at.turn;
}

/* The rank's rows of x (B,T,N,D). Heads from `first` on; 0: all. */
static Tensor rows_of(Kit *kit, const Part *part, Tensor x, int64_t first) {
    int64_t rows = 2 * part->at.turn, N = x.dim[2], width = x.dim[3], each = (N - first) * width;
    Tensor mine = kit_take(kit, shape4(B, rows, N - first, width));
    for (int64_t row = 0; row < B * rows; row++) {
        int64_t from = row / rows * T + position(part, row % rows);
        memcpy((float *)mine.data + row * each, (float *)x.data + from * N * width + first * width,
               (size_t)each * sizeof(float));
    }
    return mine;
}

/* The difference from what one call returns, relative to its norm, of heads [0, N) of `got` and [first, first
 * + N) of `want`. */
static void check_rows(const Part *part, const char *what, Tensor got, Tensor want, int64_t N,
                       int64_t first) {
    int64_t rows = got.dim[1], width = got.dim[3];
    double difference = 0, norm = 0;
    for (int64_t row = 0; row < B * rows; row++)
        for (int64_t i = 0; i < N * width; i++) {
            int64_t from = row / rows * T + position(part, row % rows);
            double a = tensor_f32(got)[row * got.dim[2] * width + i];
            double b = tensor_f32(want)[(from * want.dim[2] + first) * width + i];
            difference += (a - b) * (a - b);
            norm += b * b;
        }
    if (!(sqrt(difference) <= 1e-5 * sqrt(norm)))
        fail_msg("%s: %g of %g", what, sqrt(difference), sqrt(norm));
}

static void check_lse(const Part *part, Tensor got, Tensor want) {
    int64_t rows = got.dim[2];
    for (int64_t row = 0; row < tensor_count(got); row++) {
        float a = tensor_f32(got)[row], b = tensor_f32(want)[row / rows * T + position(part, row % rows)];
        if (a != b && !(fabsf(a - b) < 1e-5f)) fail_msg("lse: %g instead of %g", (double)a, (double)b);
    }
}

typedef struct Whole {
    Tensor qkv, dqkv, out, lse, dout, lens;
    Attention spec;
    int64_t H, G;
} Whole;

static Whole whole_of(Kit *kit, int flags) {
    int64_t G = 2, H = flags & GROUPED ? 4 : 2;
    Whole w = {.qkv = kit_uniform(kit, shape4(B, T, H + 2 * G, D), -3, 3),
               .out = kit_take(kit, shape4(B, T, H, D)),
               .lse = kit_take(kit, shape3(B, H, T)),
               .dout = kit_random(kit, shape4(B, T, H, D)),
               .spec = {.causal = flags & CAUSAL, .scale = 1 / sqrtf(D), .kv_heads = G},
               .H = H,
               .G = G};
    w.dqkv = kit_take(kit, w.qkv);
    if (flags & WINDOWED) w.spec.window = 41;
    if (flags & DOCUMENTS) {
        w.spec.starts = kit_index(kit, shape2(B, T), 0, 1);
        for (int64_t i = 0; i < B * T; i++) tensor_i32(w.spec.starts)[i] = (int32_t)(i % T / 50 * 50);
    }
    if (flags & DROPPED)
        w.spec.dropout = (Dropout){.p = 0.3f, .key = kit_key(kit), .origin = {3, 1}, .extent = {H + 2, T}};
    if (flags & PADDED) {
        w.lens = kit_index(kit, shape1(B), 0, 1);
        tensor_i32(w.lens)[1] = T / 2 + 5; /* the first sequence has only padding */
    }
    const KernelTable *ref = NULL;
    assert_ok(kernels_find("ref", &ref));
    Exec exec = kit->exec;
    exec.table = ref;
    assert_ok(attention_forward(&exec, w.out, w.lse, w.qkv, w.lens, w.spec));
    assert_ok(attention_backward(&exec, w.dqkv, w.dout, w.out, w.lse, w.qkv, w.lens, w.spec));
    return w;
}

static Part part_of(Kit *kit, const Whole *w, int64_t rank, int64_t ranks) {
    int64_t each = T / ranks / 2, rows = 2 * each;
    Part p = {.at = {rank * each, each, (2 * ranks - 1 - rank) * each}};
    p.qkv = rows_of(kit, &p, w->qkv, 0);
    p.dqkv = kit_take(kit, p.qkv);
    p.out = kit_take(kit, shape4(B, rows, w->H, D));
    p.lse = kit_take(kit, shape3(B, w->H, rows));
    p.dout = rows_of(kit, &p, w->dout, 0);
    p.kv = rank % 2 ? p.qkv : rows_of(kit, &p, w->qkv, w->H);
    p.dkv = rank % 2 ? p.dqkv : kit_take(kit, p.kv);
    for (int64_t i = 0; i < tensor_count(p.lse); i++) tensor_f32(p.lse)[i] = -INFINITY;
    memset(p.dqkv.data, 0, tensor_bytes(p.dqkv));
    memset(p.dkv.data, 0, tensor_bytes(p.dkv));
    return p;
}

static Attention spec_of(const Whole *w, const Part *queries, const Part *keys) {
    Attention spec = w->spec;
    spec.queries = queries->at;
    spec.keys = keys->at;
    spec.kv = keys->kv;
    spec.dkv = keys->dkv;
    return spec;
}

/* Results start from an lse of -infinity and an undefined out. */
static void check_parts(Kit *kit, int flags, int64_t ranks) {
    Whole w = whole_of(kit, flags);
    Part part[RANKS];
    for (int64_t r = 0; r < ranks; r++) part[r] = part_of(kit, &w, r, ranks);
    for (int64_t r = 0; r < ranks; r++) {
        Tensor out = kit_take(kit, part[r].out), lse = kit_take(kit, part[r].lse);
        for (int64_t i = 0; i < ranks; i++) { /* in the order of a ring */
            Attention spec = spec_of(&w, &part[r], &part[(r + i) % ranks]);
            assert_ok(attention_forward(&kit->exec, out, lse, part[r].qkv, w.lens, spec));
            assert_ok(attention_combine(&kit->exec, part[r].out, part[r].lse, out, lse));
        }
        check_rows(&part[r], "out", part[r].out, w.out, w.H, 0);
        check_lse(&part[r], part[r].lse, w.lse);
        for (int64_t i = 0; i < ranks; i++) {
            Attention spec = spec_of(&w, &part[r], &part[(r + i) % ranks]);
            assert_ok(attention_backward(&kit->exec, part[r].dqkv, part[r].dout, part[r].out, part[r].lse,
                                         part[r].qkv, w.lens, spec));
        }
    }
    for (int64_t r = 0; r < ranks; r++) {
        check_rows(&part[r], "dq", part[r].dqkv, w.dqkv, r % 2 ? w.H + 2 * w.G : w.H, 0);
        if (r % 2 == 0) check_rows(&part[r], "dkv", part[r].dkv, w.dqkv, 2 * w.G, w.H);
    }
}

static void run_parts(const char *backend) {
    Kit kit;
    kit_init(&kit, backend, 2);
    for (int flags = 0; flags < FLAGS; flags++) {
        if (!(flags & CAUSAL) && flags & (WINDOWED | DOCUMENTS)) continue;
        check_parts(&kit, flags, 1 + flags / 2 % RANKS);
        kit_clear(&kit);
    }
    for (int64_t ranks = 1; ranks <= RANKS; ranks++) {
        check_parts(&kit, CAUSAL | DROPPED | GROUPED, ranks);
        kit_clear(&kit);
    }
    kit_done(&kit);
}

static void test_reference(void **state) {
    run_parts("ref");
}

static void test_backend(void **state) {
    run_parts(test_kernels());
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference), cmocka_unit_test(test_backend)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
