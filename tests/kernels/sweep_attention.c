/* Sweep cases: rotary position embedding and attention. */
#include <math.h>
#include <stdlib.h>

#include "sweep.h"

enum { CAUSAL = 1, PADDED = 2, DROPPED = 4, ATTENTION_FLAGS = 8, WINDOWED = 8, DOCUMENTS = 16, PARTS = 32 };

/* Scores are sums that may cancel, so scores near 0 have larger relative errors. */
static const double head_wise = 2e-5;

/* Cases (B, T, H, D). */
static void over_heads(Sweep *sweep, Body body) {
    static const int64_t lengths[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 97, 128, 130};
    static const int64_t depths[] = {1, 2, 3, 4, 7, 8, 16, 20, 32, 48, 64, 80, 96, 128};
    unsigned turn = 0;
    for (int t = 0; t < 18; t++)
        for (int d = 0; d < 14; d++, turn++)
            compare(sweep, body,
                    (Args){{1 + turn % 2, lengths[t], 1 + turn % 3, depths[d]},
                           turn * 5 % ATTENTION_FLAGS,
                           head_wise});
    for (unsigned f = 0; f < ATTENTION_FLAGS; f++)
        compare(sweep, body, (Args){{1, 530, 2, 64}, f, head_wise});
    /* More scores than a backend may keep in memory at once. */
    for (unsigned f = 0; f < ATTENTION_FLAGS; f++)
        compare(sweep, body, (Args){{1, 1100, 1, 8}, f, head_wise});
}

/* Cases (B, T, H, D, G): fewer key heads than query heads, windows and documents. */
static void over_groups(Sweep *sweep, Body body) {
    static const int64_t lengths[] = {1, 5, 16, 33, 65, 97, 130}, depths[] = {4, 7, 32, 64, 80, 128};
    unsigned turn = 0;
    for (int t = 0; t < 7; t++)
        for (int d = 0; d < 6; d++, turn++) {
            int64_t G = 1 + turn % 2, group = 1 + turn * 3 % 4;
            unsigned flags = turn % 5 ? CAUSAL | turn * 5 % 32 : turn % ATTENTION_FLAGS;
            compare(sweep, body,
                    (Args){{1 + turn % 2, lengths[t], G * group, depths[d], G}, flags, head_wise});
        }
    for (unsigned f = 0; f < 4; f++)
        compare(sweep, body,
                (Args){{1, 530, 4, 32, 2}, CAUSAL | f * WINDOWED | (f % 2) * DROPPED, head_wise});
    /* Several of a GPU's tiles, for each of the widths that its fastest kernels support; a CPU runs a part.
     */
    for (unsigned f = 0; f < ATTENTION_FLAGS; f++)
        compare(sweep, body, (Args){{2, 193, 1, 128}, f, head_wise});
    for (unsigned f = 0; f < 40; f++) {
        int64_t width = f < 20 ? 64 : 128, G = 1 + (f % 5 == 4), group = f % 3 ? 2 : 3;
        unsigned kind = f / 4 % 5, flags = f % 4 * PADDED | (kind ? CAUSAL | kind % 4 * WINDOWED : 0);
        if (!test_on_cuda() && f % 7) continue;
        compare(sweep, body, (Args){{1 + f % 2, 250 + f, G * group, width, G}, flags, head_wise});
    }
}

/* On a CPU with AMX, also the products that CPUs without it use. */
static void over_dot(Sweep *sweep, Body body) {
    const char *before = getenv("WEFT_CPU_BF16");
    if (test_on_cuda() || (before && *before) || strcmp(kernels_cpu_bf16(), "amx")) return;
    assert_int_equal(setenv("WEFT_CPU_BF16", "dot", 1), 0);
    for (unsigned f = 0; f < 36; f++) {
        unsigned flags = f / 3 % 2 ? CAUSAL | f * 5 % 32 : f % ATTENTION_FLAGS;
        compare(sweep, body,
                (Args){{1 + f % 2, 40 + 7 * f, 2, 32 + f % 4 * 32, 1 + f % 2}, flags, head_wise});
    }
    assert_int_equal(unsetenv("WEFT_CPU_BF16"), 0);
}

/* Cases (B, T, H, D, G): keys in number and position independent of the queries, some of them after all
 * queries or before their window. Lengths of whole tiles have positions of whole tiles, too. */
static void over_parts(Sweep *sweep, Body body) {
    static const int64_t lengths[] = {1, 7, 33, 97, 130, 200, 256, 640}, depths[] = {4, 20, 32, 64, 128};
    unsigned turn = 0;
    for (int t = 0; t < (test_on_cuda() ? 8 : 7); t++)
        for (int d = 0; d < 5; d++)
            for (int part = 0; part < (test_on_cuda() && t > 5 ? 9 : 3); part++, turn++) {
                int64_t G = 1 + turn % 2, group = 1 + turn * 3 % 4;
                unsigned flags = turn % 4 ? CAUSAL | turn * 5 % 32 : turn % ATTENTION_FLAGS;
                compare(
                    sweep, body,
                    (Args){{1 + turn % 2, lengths[t], G * group, depths[d], G}, PARTS | flags, head_wise});
            }
}

static Positions some_places(int64_t first, int64_t turn, int64_t apart, int64_t unit) {
    first *= unit, turn = turn / unit * unit;
    return (Positions){first, turn, first + turn + apart * unit};
}

/* Keys that are not those of qkv, and the positions of both. */
static void take_parts(Kit *kit, const Args *args, Attention *spec) {
    enum { POSITIONS = 2000, TILE = 128 };
    int64_t B = args->n[0], T = args->n[1], G = args->n[4], K = 3 + (T * 7 + G * 50) % 190;
    int64_t heads = 2 * G + T % 2, apart = args->n[3] % 3 * 30;
    if (T % TILE == 0) {
        K = (1 + T / TILE % 3 + G) * TILE + args->n[3] % 5 * 10, apart = args->n[3] % 3;
        spec->queries = some_places(args->n[2] % 4, T / 2, apart, TILE);
        spec->keys = some_places(args->n[2] % 3, K / 2, 2 * apart, TILE);
    } else {
        spec->queries = some_places(10 + 100 * (K % 3), T / 2, apart, 1);
        spec->keys = some_places(3, K / 3, 2 * apart, 1);
    }
    spec->kv = kit_uniform(kit, typed(kit, shape4(B, K, heads, args->n[3])), -3, 3);
    spec->window = spec->window ? 1 + K / 2 : 0;
    if (spec->dropout.p > 0) spec->dropout.extent[1] = POSITIONS;
    if (!spec->starts.data) return;
    spec->starts = kit_index(kit, shape2(B, POSITIONS), 0, 1);
    for (int64_t i = 0; i < B * POSITIONS; i++)
        tensor_i32(spec->starts)[i] = (int32_t)(i % POSITIONS / 90 * 90);
}

/* Ascending: documents of 9 positions on average. */
static Tensor starts_of(Kit *kit, int64_t B, int64_t T) {
    Tensor starts = kit_index(kit, shape2(B, T), 0, 9);
    int32_t *at = tensor_i32(starts);
    for (int64_t i = 0; i < B * T; i++) at[i] = i % T && at[i] ? at[i - 1] : (int32_t)(i % T);
    return starts;
}

static Attention attention_of(Kit *kit, const Args *args) {
    int64_t T = args->n[1], H = args->n[2], D = args->n[3];
    Attention spec = {.causal = args->flags & CAUSAL, .scale = 1 / sqrtf((float)D), .kv_heads = args->n[4]};
    if (args->flags & WINDOWED) spec.window = 1 + T / 3;
    if (args->flags & DOCUMENTS) spec.starts = starts_of(kit, args->n[0], T);
    if (args->flags & DROPPED) spec.dropout = dropout_of(kit, 0.25f, H, T);
    if (args->flags & PARTS) take_parts(kit, args, &spec);
    return spec;
}

/* Sequence lengths from 0 (only padding) to T. */
static Tensor lens_of(Kit *kit, const Args *args) {
    if (!(args->flags & PADDED)) return TENSOR_NONE;
    return kit_index(kit, shape1(args->n[0]), 0, args->n[1] + (args->flags & PARTS ? 100 : 1));
}

/* Scores vary by tens, so softmax overflows unless the row maximum is subtracted first. */
static Tensor some_qkv(Kit *kit, const Args *args) {
    int64_t B = args->n[0], T = args->n[1], H = args->n[2], D = args->n[3], G = args->n[4];
    return kit_uniform(kit, typed(kit, G ? shape4(B, T, H + 2 * G, D) : shape_qkv(B, T, H, D)), -3, 3);
}

static void attention_forward_case(Kit *kit, const Args *args) {
    int64_t B = args->n[0], T = args->n[1], H = args->n[2], D = args->n[3];
    Tensor out = kit_take(kit, typed(kit, shape4(B, T, H, D))), lse = kit_take(kit, shape3(B, H, T));
    Tensor qkv = some_qkv(kit, args), lens = lens_of(kit, args);
    assert_ok(attention_forward(&kit->exec, out, lse, qkv, lens, attention_of(kit, args)));
    kit_output(kit, "out", out);
    kit_output(kit, "lse", lse);
}

void attention_forward_sweep(Sweep *sweep) {
    over_heads(sweep, attention_forward_case);
    over_groups(sweep, attention_forward_case);
    over_parts(sweep, attention_forward_case);
    over_dot(sweep, attention_forward_case);
}

static Tensor in_f32(Tensor shape) {
    shape.dtype = DT_F32;
    return shape;
}

/* Takes out and lse from the reference, so that only the backward pass is compared. */
static void attention_backward_case(Kit *kit, const Args *args) {
    int64_t B = args->n[0], T = args->n[1], H = args->n[2], D = args->n[3];
    Tensor out = kit_take(kit, typed(kit, shape4(B, T, H, D))), lse = kit_take(kit, shape3(B, H, T));
    Tensor qkv = some_qkv(kit, args), lens = lens_of(kit, args);
    Tensor dqkv = kit_take(kit, qkv), dout = kit_random(kit, out);
    Attention spec = attention_of(kit, args);
    if (kit->first) {
        memcpy(out.data, kit->first->kept[0].data, tensor_bytes(out));
        memcpy(lse.data, kit->first->kept[1].data, tensor_bytes(lse));
    } else {
        const KernelTable *ref = NULL;
        assert_ok(kernels_find("ref", &ref));
        assert_ok(ref->attention_forward(kit->stream, out, lse, qkv, lens, spec));
        kit->kept[0] = out;
        kit->kept[1] = lse;
    }
    if (spec.kv.data) {
        dqkv = kit_random(kit, qkv); /* added to */
        spec.dkv = kit_random(kit, T % 3 || test_on_cuda() ? spec.kv : in_f32(spec.kv));
    } else if ((B + T + H) % 2)
        spec.sums = kit_random(kit, shape1(tensor_count(qkv) / (B * T)));
    assert_ok(attention_backward(&kit->exec, dqkv, dout, out, lse, qkv, lens, spec));
    if (spec.sums.data) {
        assert_ok(stream_sync(kit->exec.stream));
        replace_columns(spec.sums, tensor_2d(dqkv.data, dqkv.dtype, B * T, tensor_count(spec.sums)),
                        (double)(B * T));
        kit_output(kit, "sums", spec.sums);
    }
    kit_output(kit, "dqkv", dqkv);
    if (spec.kv.data) kit_output(kit, "dkv", spec.dkv);
}

void attention_backward_sweep(Sweep *sweep) {
    over_heads(sweep, attention_backward_case);
    over_groups(sweep, attention_backward_case);
    over_parts(sweep, attention_backward_case);
    over_dot(sweep, attention_backward_case);
}

/* Cases (B, T, H, D). Flag 1: fp32 out; flag 2: fp32 part. Rows that have no key in one part, or in both. */
static void attention_combine_case(Kit *kit, const Args *args) {
    int64_t B = args->n[0], T = args->n[1], H = args->n[2], D = args->n[3];
    Tensor shape = typed(kit, shape4(B, T, H, D)), lse = kit_uniform(kit, shape3(B, H, T), -9, 9);
    Tensor out = kit_random(kit, args->flags & 1 ? in_f32(shape) : shape);
    Tensor part = kit_random(kit, args->flags & 2 ? in_f32(shape) : shape);
    Tensor part_lse = kit_uniform(kit, lse, -9, 9);
    for (int64_t i = 0; i < B * H * T; i++) {
        if (i % 5 == 1 || i % 7 == 2) tensor_f32(lse)[i] = -INFINITY;
        if (i % 5 == 1 || i % 7 == 3) tensor_f32(part_lse)[i] = -INFINITY;
        int64_t row = (i / (H * T) * T + i % T) * H + i / T % H;
        if (i % 5 == 1) tensor_put(out, row * D, NAN); /* not read */
    }
    assert_ok(attention_combine(&kit->exec, out, lse, part, part_lse));
    kit_output(kit, "out", out);
    kit_output(kit, "lse", lse);
}

void attention_combine_sweep(Sweep *sweep) {
    static const int64_t depths[] = {1, 4, 7, 16, 33, 64, 128};
    for (int d = 0; d < 7; d++)
        for (unsigned f = 0; f < 4; f++)
            compare(sweep, attention_combine_case,
                    (Args){{1 + d % 2, 1 + 9 * d, 1 + f, depths[d]}, f, norm_wise});
}

/* An int8 KV cache: random values with a scale per row. */
static Tensor some_cache8(Kit *kit, int64_t B, int64_t H, int64_t S, int64_t D) {
    Tensor cache = kit_take(kit, tensor_4d(NULL, DT_I8, B, H, S, D + CACHE_SCALE));
    RngKey key = kit_key(kit);
    for (int64_t row = 0; row < B * H * S; row++) {
        int8_t *to = (int8_t *)cache.data + row * (D + CACHE_SCALE);
        float scale = 0.001f * (float)(1 + row % 30);
        for (int64_t d = 0; d < D; d++) to[d] = (int8_t)((int)(kit_draw(key, row * D + d) % 255) - 127);
        memcpy(to + D, &scale, sizeof scale);
    }
    return cache;
}

/* Cases (B, T, G, D, S). Flag 1: each sequence has a different past and number of new positions; undefined
 * rows of out are zeroed. flags / 2 % 3 selects the cache's type: like qkv, bf16, int8. flags / 6: 1 three
 * query heads for each key head, 2 also a window, 3 nine query heads. */
static void attention_decode_case(Kit *kit, const Args *args) {
    int64_t B = args->n[0], T = args->n[1], G = args->n[2], D = args->n[3], S = args->n[4];
    static const int64_t groups[] = {1, 3, 3, 9};
    unsigned type = args->flags / 2 % 3, heads = args->flags / 6;
    int64_t H = G * groups[heads];
    Attention spec = {.scale = 1 / sqrtf((float)D), .kv_heads = G, .window = heads == 2 ? 1 + S / 3 : 0};
    Tensor out = kit_take(kit, typed(kit, shape4(B, T, H, D)));
    Tensor qkv = some_qkv(kit, &(Args){.n = {B, T, H, D, G}}), kcache, vcache;
    if (type == 2) {
        kcache = some_cache8(kit, B, G, S, D);
        vcache = some_cache8(kit, B, G, S, D);
    } else {
        Tensor like = typed(kit, shape4(B, G, S, D));
        if (type == 1 && like.dtype == DT_F32) like.dtype = DT_BF16;
        kcache = kit_random(kit, like);
        vcache = kit_random(kit, kcache);
    }
    Tensor past = kit_index(kit, shape1(B), 0, S - T + 1), fresh = kit_index(kit, shape1(B), 0, T + 1);
    for (int64_t b = 0; !(args->flags & 1) && b < B; b++) {
        tensor_i32(past)[b] = (int32_t)(S - T);
        tensor_i32(fresh)[b] = (int32_t)T;
    }
    assert_ok(attention_decode(&kit->exec, out, kcache, vcache, qkv, past, fresh, spec));
    for (int64_t i = 0; i < B * T; i++)
        if (i % T >= tensor_i32(fresh)[i / T])
            for (int64_t d = 0; d < H * D; d++) tensor_put(out, i * H * D + d, 0);
    kit_output(kit, "out", out);
    if (type == 2) return; /* if the integers differed, so would out */
    kit_output(kit, "kcache", kcache);
    kit_output(kit, "vcache", vcache);
}

void attention_decode_sweep(Sweep *sweep) {
    static const int64_t fresh[] = {1, 1, 2, 5, 17, 64, 200}, capacity[] = {64, 130, 7, 33, 40, 65, 900};
    static const int64_t depths[] = {1, 4, 7, 16, 32, 64, 80, 128};
    for (int t = 0; t < 7; t++)
        for (int d = 0; d < 8; d++)
            for (unsigned f = 0; f < 18; f++) {
                if (f > 1 && d % 3 != t % 3) continue;
                if (f > 5 && (d + t + (int)f) % 4) continue;
                if (SANITIZED && (t + d) % 3) continue;
                compare(sweep, attention_decode_case,
                        (Args){{1 + d % 3, fresh[t], 1 + d % 4, depths[d], capacity[t]}, f, norm_wise});
            }
    /* One new position after many: several tiles of keys for each warp, up to nine query heads. */
    for (int64_t D = 32; D <= 256; D *= 2)
        for (unsigned f = 0; f < 24; f++) {
            if (f / 2 % 3 || (SANITIZED && f > 1)) continue;
            compare(sweep, attention_decode_case, (Args){{2, 1, 2, D, 1500}, f, norm_wise});
        }
}

/* Cases (B, T, N, D). Flags: 1 only some heads; 2 only the first half of the elements, rounded up to an even
 * number; 4 a position per sequence, 8 a position per token. Some positions are outside of the table. */
static void rope_case(Kit *kit, const Args *args,
                      Status (*rope)(Exec *, Tensor, Tensor, Tensor, int64_t, HeadRange)) {
    int64_t B = args->n[0], T = args->n[1], N = args->n[2], D = args->n[3];
    int64_t R = args->flags & 2 ? (D / 2 + 1) / 2 * 2 : D, P = T + 5;
    Tensor x = kit_random(kit, typed(kit, shape4(B, T, N, D))), table = kit_take(kit, shape2(P, R));
    for (int64_t i = 0; i < P * R / 2; i++) {
        double angle = (double)(i / (R / 2)) * pow(100, -(double)(i % (R / 2)) / (double)R);
        tensor_f32(table)[i / (R / 2) * R + i % (R / 2)] = (float)cos(angle);
        tensor_f32(table)[i / (R / 2) * R + R / 2 + i % (R / 2)] = (float)sin(angle);
    }
    Tensor positions = TENSOR_NONE;
    if (args->flags & 4) positions = kit_index(kit, shape1(B), -2, 12);
    if (args->flags & 8) positions = kit_index(kit, shape2(B, T), -2, P + 2);
    HeadRange heads = args->flags & 1 ? (HeadRange){N / 2, N - N / 2} : (HeadRange){0};
    assert_ok(rope(&kit->exec, x, table, positions, args->flags & 8 ? 0 : 3, heads));
    kit_output(kit, "x", x);
}

static void over_rotations(Sweep *sweep, Body body) {
    static const int64_t depths[] = {2, 4, 6, 8, 14, 16, 32, 40, 64, 80, 128, 256};
    unsigned turn = 0;
    for (int d = 0; d < 12; d++)
        for (int i = 0; i < 6; i++, turn++)
            compare(sweep, body,
                    (Args){{1 + turn % 3, 1 + turn % 17, 1 + turn % 5, depths[d]}, turn * 5 % 16, norm_wise});
    compare(sweep, body, (Args){{2, 130, 12, 64}, 1, norm_wise});
}

static void rope_forward_case(Kit *kit, const Args *args) {
    rope_case(kit, args, rope_forward);
}

void rope_forward_sweep(Sweep *sweep) {
    over_rotations(sweep, rope_forward_case);
}

static void rope_backward_case(Kit *kit, const Args *args) {
    rope_case(kit, args, rope_backward);
}

void rope_backward_sweep(Sweep *sweep) {
    over_rotations(sweep, rope_backward_case);
}
