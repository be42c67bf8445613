/* What the attention kernels share: where heads are in memory, which keys a query sees, and dropout
 * factors. Tile sizes are those of micro.h.
 *
 * All arithmetic is on fp32 panels, except in attention16.h, which takes over training in bf16 on x86-64 CPUs
 * with bf16 products. Rows of 16-bit types are converted to fp32 when panels are packed and rounded
 * when they are unpacked, through a buffer.
 *
 * B sequences, T positions, H heads, G key and value heads, D head size; qkv (B,T,H+2G,D), out (B,T,H,D),
 * lse (B,H,T) */
#ifndef WEFT_KERNELS_CPU_ATTENTION_H
#define WEFT_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/micro.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

typedef struct HeadShape {
    QkvShape qkv;
    int64_t B, T, H, G, D;
    int64_t rows; /* D, rounded up to full tiles */
} HeadShape;

static inline HeadShape head_shape(Tensor qkv, const Attention *spec) {
    QkvShape s = qkv_shape(qkv, spec);
    return (HeadShape){s, s.B, s.T, s.H, s.G, s.D, round_up(s.D, MICRO_ROWS)};
}

/* Scratch memory for fp32 values. */
static inline float *floats(Bump *bump, int64_t count) {
    return bump_take(bump, (size_t)count * sizeof(float));
}

/* Rows of D elements in a tensor: the first starts at element `at`, the others follow `stride` apart. */
typedef struct Rows {
    Tensor in;
    int64_t at, stride, D;
} Rows;

/* q of a query head, in qkv or dqkv, or its k or v, where keys and values are: one row per position. */
static inline Rows head_part(Tensor in, HeadShape s, int part, int64_t b, int64_t h) {
    int64_t rows = part == PART_Q ? s.T : s.qkv.keys, N = part == PART_Q ? s.qkv.N : s.qkv.M;
    return (Rows){in, (b * rows * N + qkv_head(&s.qkv, part, h)) * s.D, N * s.D, s.D};
}
/* The same in out or dout. */
static inline Rows head_out(Tensor out, HeadShape s, int64_t b, int64_t h) {
    return (Rows){out, (b * s.T * s.H + h) * s.D, s.H * s.D, s.D};
}

/* The rows from row `first`. */
static inline Rows rows_from(Rows rows, int64_t first) {
    rows.at += first * rows.stride;
    return rows;
}

static inline bool rows_are_f32(Rows rows) {
    return rows.in.dtype == DT_F32;
}
static inline float *rows_f32(Rows rows) {
    return tensor_f32(rows.in) + rows.at;
}

/* Packs `count` rows as lines of panels: micro_pack with a step per element or, along, with a step per row
 * and a line per element. */
static inline void rows_across(float *panels, int width, Rows rows, int64_t count, int64_t panel_stride) {
    PackSource source = {run_at(rows.in, rows.at), rows.in.dtype, true, rows.stride, count, rows.D};
    micro_pack(panels, width, source, panel_stride);
}
static inline void rows_along(float *panels, int width, Rows rows, int64_t count, int64_t panel_stride) {
    PackSource source = {run_at(rows.in, rows.at), rows.in.dtype, false, rows.stride, rows.D, count};
    micro_pack(panels, width, source, panel_stride);
}

/* Which rows of keys the queries of a head see. No query sees rows from `keys` on. */
typedef struct Mask {
    bool causal;
    int64_t window;        /* 0: no window */
    const int32_t *starts; /* by position; NULL: one document */
    int64_t keys;
    Positions query_at, key_at;
    CachePart part; /* of a cache; key_at is then {0} */
} Mask;

static inline Mask mask_of(HeadShape s, const Attention *spec, Tensor lens, int64_t b) {
    int64_t end = lens.data ? tensor_i32(lens)[b] : INT64_MAX;
    return (Mask){.causal = spec->causal,
                  .window = spec->window,
                  .starts = starts_of(spec, b, s.B),
                  .keys = rows_before(&spec->keys, s.qkv.keys, end),
                  .query_at = spec->queries,
                  .key_at = spec->keys};
}
/* The rows of keys before a position. */
static inline int64_t mask_rows(const Mask *mask, int64_t position) {
    if (mask->part.ranks <= 1) return rows_before(&mask->key_at, mask->keys, position);
    return min_of(mask->keys, cache_rows_before(&mask->part, position));
}
/* The rows [mask_first, mask_end) of keys that query q sees. Neither decreases from one query to the next. */
static inline int64_t mask_first(const Mask *mask, int64_t q) {
    if (!mask->window && !mask->starts) return 0;
    int64_t at = position_of(&mask->query_at, q), first = mask->starts ? mask->starts[at] : 0;
    return mask_rows(mask, first_position(first, mask->window, at));
}
static inline int64_t mask_end(const Mask *mask, int64_t q) {
    if (!mask->causal) return mask->keys;
    return mask_rows(mask, position_of(&mask->query_at, q) + 1);
}
/* The first of `queries` queries that sees key k, if any does. */
static inline int64_t mask_sees(const Mask *mask, int64_t queries, int64_t k) {
    return mask->causal ? rows_before(&mask->query_at, queries, position_of(&mask->key_at, k)) : 0;
}

/* Rows from `row` on, and before `end`, up to which positions follow one another. */
static inline int64_t rows_together(const Positions *at, int64_t row, int64_t end) {
    return row < at->turn ? min_of(end, at->turn) : end;
}

/* Dropout factors of `keys` keys, from key `k` on, a multiple of 16, from a query's four words. Writes up to
 * a multiple of 16 keys; all keys are in one group. */
static inline void factors_expand(float *factors, const uint32_t words[4], int64_t k, int64_t keys,
                                  float factor) {
    enum { PARTS = 16 / VEC };
    uint32_t all[16];
    for (int i = 0; i < 16; i++) all[i] = words[i % 8 / 2] << (24 - i % 2 * 8 - i / 8 * 16);
    VecU bits[PARTS];
    memcpy(bits, all, sizeof all);
    for (int64_t at = 0; at < keys; at += 16)
        for (int part = 0; part < PARTS; part++) {
            VecI kept = (VecI)(bits[part] << (uint32_t)((k + at) / 16 % 8)) < 0;
            vec_store(factors + at + part * VEC, (VecF)(kept & (VecI)vec_set(factor)));
        }
}

/* factors (rows, stride) = the dropout factors of `rows` queries of a head, from position q on, and `keys`
 * keys, from position k on, a multiple of 16. Keys past the last are written up to a multiple of 16. */
static inline void dropout_factors(float *factors, int64_t stride, const Dropout *dropout, int64_t b,
                                   int64_t h, int64_t q, int64_t rows, int64_t k, int64_t keys) {
    enum { ROWS = VEC / 4 }; /* a vector has four words each */
    uint32_t next = (uint32_t)(4 * dropout_groups(dropout)), threshold = dropout_threshold(dropout->p);
    VecU offset = (VecU)vec_count(0) / 4 * next + (VecU)vec_count(0) % 4;
    for (int64_t end = k + keys, from = k, to; from < end; from = to) {
        to = min_of(end, (from / DROPOUT_GROUP + 1) * DROPOUT_GROUP);
        for (int64_t row = 0; row < rows; row += ROWS) {
            uint32_t words[VEC];
            uint64_t word = dropout_word(dropout, b, h, q + row, from / 8 * 8);
            VecU kept = philox_kept(dropout->key, word, offset, threshold);
            memcpy(words, &kept, sizeof kept);
            for (int64_t i = 0; i < ROWS && row + i < rows; i++)
                factors_expand(factors + (row + i) * stride + from - k, words + 4 * i, from, to - from,
                               dropout_scale(dropout->p));
        }
    }
}

/* to (lines, depth) = the transpose of a panel (depth, MICRO_COLS). Rows of `to` are `stride` apart. */
static inline void panel_unpack(float *to, int64_t stride, const float *panel, int64_t lines, int64_t depth) {
    int64_t line = 0;
    for (; line + 4 <= lines; line += 4) {
        int64_t k = 0;
        for (; k + 4 <= depth; k += 4)
            vec4_transpose(to + line * stride + k, stride, panel + k * MICRO_COLS + line, MICRO_COLS);
        for (; k < depth; k++)
            for (int i = 0; i < 4; i++) to[(line + i) * stride + k] = panel[k * MICRO_COLS + line + i];
    }
    for (; line < lines; line++)
        for (int64_t k = 0; k < depth; k++) to[line * stride + k] = panel[k * MICRO_COLS + line];
}

/* The first `count` rows = the transpose of a panel (D, MICRO_COLS); count <= MICRO_COLS. */
static inline void rows_unpack(Rows rows, const float *panel, int64_t count, float *stage) {
    bool f32 = rows_are_f32(rows);
    panel_unpack(f32 ? rows_f32(rows) : stage, f32 ? rows.stride : rows.D, panel, count, rows.D);
    for (int64_t i = 0; i < count; i++)
        run_end(rows.in, rows.at + i * rows.stride, rows.D, stage + i * rows.D);
}

/* Adds it to the rows. `stage` has 2 MICRO_COLS rows. */
static inline void rows_add(Rows rows, const float *panel, int64_t count, float *stage) {
    float *had = stage + count * rows.D;
    panel_unpack(stage, rows.D, panel, count, rows.D);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = rows.at + i * rows.stride;
        const float *from = run_in(rows.in, at, rows.D, had), *more = stage + i * rows.D;
        float *to = run_out(rows.in, at, had);
#pragma omp simd
        for (int64_t d = 0; d < rows.D; d++) to[d] = from[d] + more[d];
        run_end(rows.in, at, rows.D, to);
    }
}

/* Forward attention of one head: out (T,D) = softmax(q k^T * scale) v. */
typedef struct HeadJob {
    int64_t T, D;
    Mask mask;
    float scale;
    Rows q, k, v, out;      /* q and out have T rows, k and v those that the mask leaves */
    float *lse;             /* (T); may be NULL */
    const Dropout *dropout; /* NULL: no dropout */
    int64_t b, h;           /* sequence and head, for the indices of dropout draws */
} HeadJob;

/* Bytes of scratch memory per thread for up to this many keys; and the computation for queries [from, to). */
size_t VARIANT(attention_head_scratch)(int64_t keys, int64_t D);
void VARIANT(attention_head)(const HeadJob *job, Range queries, void *scratch);

#define attention_head_scratch VARIANT(attention_head_scratch)
#define attention_head         VARIANT(attention_head)

#endif
