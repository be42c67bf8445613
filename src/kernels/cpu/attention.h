/* What the attention kernels share: where heads lie, what a query sees, dropout's factors for a stretch of
 * keys. Sizes of tiles are those of micro.h.
 *
 * Legend: B sequences, T positions, H heads, D = C/H; qkv (B,T,3,H,D), out (B,T,H,D), lse (B,H,T) */
#ifndef WEFT_KERNELS_CPU_ATTENTION_H
#define WEFT_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/micro.h"
#include "kernels/cpu/philox.h"

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

/* q, k or v of position 0 of a head, in qkv or dqkv; positions are 3 * H * D apart. */
static inline float *head_part(Tensor qkv, HeadShape s, int part, int64_t b, int64_t h) {
    return tensor_f32(qkv) + ((b * s.T * 3 + part) * s.H + h) * s.D;
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

/* Forward attention of one head: out (T,D) = softmax(q k^T * scale) v. Query q sees the first
 * min(keys, past + q + 1) keys when causal, all of them otherwise. */
typedef struct HeadJob {
    int64_t T, D, keys, past;
    bool causal;
    float scale;
    const float *q, *k, *v; /* (T,D), (keys,D), (keys,D); rows these apart: */
    int64_t q_stride, k_stride;
    float *out; /* (T,D), rows out_stride apart */
    int64_t out_stride;
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
