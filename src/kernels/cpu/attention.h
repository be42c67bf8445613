/* What the attention kernels share: where heads lie, what a query sees, dropout's factors for a stretch of
 * keys. Sizes of tiles are those of micro.h.
 *
 * All arithmetic is on panels of floats. Rows of 16-bit types are widened where panels are packed and rounded
 * where they are unpacked, a few rows at a time by way of a buffer.
 *
 * Legend: B sequences, T positions, H heads, D = C/H; qkv (B,T,3,H,D), out (B,T,H,D), lse (B,H,T) */
#ifndef WEFT_KERNELS_CPU_ATTENTION_H
#define WEFT_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/micro.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/runs.h"

typedef struct HeadShape {
    int64_t B, T, H, D;
    int64_t rows; /* D, rounded up to whole tiles */
} HeadShape;

static inline int64_t round_to(int64_t value, int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

static inline int64_t least_of(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline HeadShape head_shape(Tensor qkv) {
    return (HeadShape){qkv.dim[0], qkv.dim[1], qkv.dim[3], qkv.dim[4], round_to(qkv.dim[4], MICRO_ROWS)};
}

enum { PART_Q, PART_K, PART_V };

/* Rows of D numbers inside a tensor: the first at element `at`, the others `stride` apart. */
typedef struct Rows {
    Tensor in;
    int64_t at, stride, D;
} Rows;

/* q, k or v of a head, in qkv or dqkv, a row per position. */
static inline Rows head_part(Tensor qkv, HeadShape s, int part, int64_t b, int64_t h) {
    return (Rows){qkv, ((b * s.T * 3 + part) * s.H + h) * s.D, 3 * s.H * s.D, s.D};
}
/* The same in out or dout. */
static inline Rows head_out(Tensor out, HeadShape s, int64_t b, int64_t h) {
    return (Rows){out, (b * s.T * s.H + h) * s.D, s.H * s.D, s.D};
}

/* From row `first` on. */
static inline Rows rows_from(Rows rows, int64_t first) {
    rows.at += first * rows.stride;
    return rows;
}

static inline bool rows_wide(Rows rows) {
    return rows.in.dtype == DT_F32;
}
static inline float *rows_f32(Rows rows) {
    return tensor_f32(rows.in) + rows.at;
}

/* Rows that go through a buffer at a time: a multiple of MICRO_ROWS and MICRO_COLS. */
enum { STAGE_ROWS = 48 };

/* buffer (count, D) = the first rows. */
static inline void rows_stage(Rows rows, int64_t count, float *buffer) {
    for (int64_t i = 0; i < count; i++)
        half_load(buffer + i * rows.D, rows.in.data, rows.in.dtype, rows.at + i * rows.stride, rows.D);
}

/* pack_across and pack_along of `count` rows; `stage` holds (STAGE_ROWS, D). */
static inline void rows_across(float *panels, int width, Rows rows, int64_t count, int64_t panel_stride,
                               float *stage) {
    if (rows_wide(rows)) {
        pack_across(panels, width, rows_f32(rows), rows.stride, count, rows.D, panel_stride);
        return;
    }
    for (int64_t row = 0; row < count; row += STAGE_ROWS) {
        int64_t n = least_of(STAGE_ROWS, count - row);
        rows_stage(rows_from(rows, row), n, stage);
        pack_across(panels + row / width * panel_stride, width, stage, rows.D, n, rows.D, panel_stride);
    }
}
static inline void rows_along(float *panels, int width, Rows rows, int64_t count, int64_t panel_stride,
                              float *stage) {
    if (rows_wide(rows)) {
        pack_along(panels, width, rows_f32(rows), rows.stride, rows.D, count, panel_stride);
        return;
    }
    for (int64_t row = 0; row < count; row += STAGE_ROWS) {
        int64_t n = least_of(STAGE_ROWS, count - row);
        rows_stage(rows_from(rows, row), n, stage);
        pack_along(panels + row * width, width, stage, rows.D, rows.D, n, panel_stride);
    }
}

/* How many keys the queries of sequence b may see at all, and how many query q sees. */
static inline int64_t keys_of(HeadShape s, Tensor lens, int64_t b) {
    int64_t keys = lens.data ? least_of(tensor_i32(lens)[b], s.T) : s.T;
    return keys > 0 ? keys : 0;
}
static inline int64_t keys_seen(int64_t keys, bool causal, int64_t q) {
    return causal ? least_of(keys, q + 1) : keys;
}

/* factors (count): what dropout multiplies the weights of keys first .. first + count - 1 by. */
static inline void dropout_factors(float *factors, const Dropout *dropout, uint64_t first, int64_t count) {
    enum { STRETCH = 128 };
    uint32_t buffer[STRETCH + 2 * PHILOX_STEP];
    uint32_t threshold = dropout_threshold(dropout->p);
    float factor = dropout_scale(dropout->p);
    for (int64_t done = 0; done < count; done += STRETCH) {
        int64_t n = least_of(STRETCH, count - done);
        const uint32_t *draw = philox_run(dropout->key, first + (uint64_t)done, n, buffer);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) factors[done + i] = draw[i] >= threshold ? factor : 0.0f;
    }
}

/* to (lines, depth), rows `stride` apart, = a panel (depth, MICRO_COLS) the other way round. */
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

/* The first rows = a panel (D, MICRO_COLS) the other way round; at most MICRO_COLS of them. */
static inline void rows_unpack(Rows rows, const float *panel, int64_t count, float *stage) {
    bool wide = rows_wide(rows);
    panel_unpack(wide ? rows_f32(rows) : stage, wide ? rows.stride : rows.D, panel, count, rows.D);
    for (int64_t i = 0; i < count; i++)
        run_end(rows.in, rows.at + i * rows.stride, rows.D, stage + i * rows.D);
}

/* Forward attention of one head: out (T,D) = softmax(q k^T * scale) v. Query q sees the first
 * min(keys, past + q + 1) keys when causal, all of them otherwise. */
typedef struct HeadJob {
    int64_t T, D, keys, past;
    bool causal;
    float scale;
    Rows q, k, v, out;      /* T rows, `keys` rows, `keys` rows, T rows */
    float *lse;             /* (T), or NULL */
    const Dropout *dropout; /* NULL: none */
    int64_t b, h;           /* for dropout's draws */
} HeadJob;

/* Bytes of a thread's memory for jobs of at most so many keys, and the work on queries [from, to). */
size_t VARIANT(attention_head_space)(int64_t keys, int64_t D);
void VARIANT(attention_head)(const HeadJob *job, Range queries, void *memory);

#define attention_head_space VARIANT(attention_head_space)
#define attention_head       VARIANT(attention_head)

#endif
