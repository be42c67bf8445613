/* What attention backward in fp32 and in bf16 share: how the work is partitioned, and the tensors of a head.
 *
 * A task is a range of the keys of a key head, for all query heads that share it. If there are few heads,
 * each is split into several tasks; each split then has a dQ of its own, and these are added in order
 * afterwards. */
#ifndef WEFT_KERNELS_CPU_ATTENTION_BACKWARD_H
#define WEFT_KERNELS_CPU_ATTENTION_BACKWARD_H

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention16.h"

/* How the work is partitioned. */
typedef struct Plan {
    int threads;
    int64_t heads, splits; /* heads: of keys, over all sequences; splits: ranges of keys per head */
    size_t each;           /* bytes of scratch memory per thread */
    size_t partial;        /* floats of one split's dQ */
} Plan;

/* What the tasks share. */
typedef struct Backward {
    Tensor dqkv, dout, out, lse, qkv, lens;
    const Attention *spec;
    const Product16 *product; /* NULL in fp32 */
    HeadShape shape;
    Plan plan;
    unsigned char *memory;
    float *partial; /* dQ of all splits of all heads, if heads are split */
} Backward;

typedef struct Head {
    const Backward *f;
    int64_t b, h, keys; /* keys: number of keys that any query may see */
    Rows q, k, v;       /* T each */
    Rows grad, out;
    const float *lse;      /* (T) */
    const int32_t *starts; /* (T); NULL: one document */
} Head;

/* Splits have a multiple of `block` keys, except the last. `scratch`: what a thread needs. */
static inline Plan plan_of(const Stream *stream, HeadShape s, int64_t block, Bump scratch, size_t partial) {
    Plan plan = {.threads = threads_for(stream, s.B * s.H * s.T * s.D), .heads = s.B * s.G, .splits = 1};
    if (plan.heads < 2 * plan.threads)
        plan.splits = min_of((2 * plan.threads + plan.heads - 1) / plan.heads, (s.T + block - 1) / block);
    plan.each = (scratch.used + BUMP_ALIGN - 1) / BUMP_ALIGN * BUMP_ALIGN;
    plan.partial = partial;
    return plan;
}

static inline Head head_of(const Backward *f, int64_t at) {
    HeadShape s = f->shape;
    int64_t b = at / s.H, h = at % s.H;
    return (Head){
        .f = f,
        .b = b,
        .h = h,
        .keys = keys_of(s, f->lens, b),
        .q = head_part(f->qkv, s, PART_Q, b, h),
        .k = head_part(f->qkv, s, PART_K, b, h),
        .v = head_part(f->qkv, s, PART_V, b, h),
        .grad = head_out(f->dout, s, b, h),
        .out = head_out(f->out, s, b, h),
        .lse = tensor_f32(f->lse) + at * s.T,
        .starts = starts_of(f->spec, b, s.T),
    };
}

/* The first key that query q sees. It never decreases from one query to the next. */
static inline int64_t first_seen(const Head *head, int64_t q) {
    int64_t window = head->f->spec->window;
    return window || head->starts ? first_key(head->starts, window, q) : 0;
}

/* Keys that no query sees have gradient 0. */
static inline void clear_hidden(const Head *head, Rows rows) {
    size_t size = dtype_size(rows.in.dtype);
    for (int64_t t = head->keys; t < head->f->shape.T; t++)
        memset((char *)rows.in.data + (size_t)(rows.at + t * rows.stride) * size, 0, (size_t)rows.D * size);
}

/* A thread's scratch memory. */
static inline Bump bump_of(const Backward *f, int thread) {
    return (Bump){.base = f->memory + (size_t)thread * f->plan.each, .size = f->plan.each};
}

/* Where a split of query head `at` accumulates dQ. */
static inline float *partial_of(const Backward *f, int64_t at, int64_t split) {
    return f->partial + (size_t)(at * f->plan.splits + split) * f->plan.partial;
}

/* dQ of query head `at`, summed over its splits. */
static inline float *partial_sum(const Backward *f, int64_t at) {
    float *sum = partial_of(f, at, 0);
    for (int64_t split = 1; split < f->plan.splits; split++) {
        const float *from = partial_of(f, at, split);
#pragma omp simd
        for (size_t i = 0; i < f->plan.partial; i++) sum[i] += from[i];
    }
    return sum;
}

/* Allocates memory and runs heads_task for each split of each key head, then sum_task for each query head if
 * heads are split. */
MUST_USE static inline Status backward_run(Backward *f, Stream *stream,
                                           void (*heads_task)(const void *f, int64_t task, int thread),
                                           void (*sum_task)(const void *f, int64_t at, int thread)) {
    const Plan *plan = &f->plan;
    int64_t heads = f->shape.B * f->shape.H;
    size_t scratch_bytes = (size_t)plan->threads * plan->each;
    size_t parts = plan->splits > 1 ? (size_t)(heads * plan->splits) * plan->partial : 0;
    void *memory;
    TRY(stream_workspace(stream, scratch_bytes + parts * sizeof(float), &memory));
    f->memory = memory;
    f->partial = (float *)(void *)((unsigned char *)memory + scratch_bytes);
    Pool *pool = plan->threads > 1 ? stream->device->pool : NULL;
    pool_run(pool, plan->heads * plan->splits, heads_task, f);
    if (plan->splits > 1) pool_run(pool, heads, sum_task, f);
    return OK;
}

#endif
