/* What attention backward in fp32 and in bf16 share: how the work is partitioned, and the tensors of a head.
 *
 * If there are few heads, the keys of each are split into ranges; each split has a dQ of its own, and these
 * are added in order. The number of splits depends on the shape alone, so that the bits of dQ do not depend
 * on the number of threads. A task is one split of a key head, or all of them if there are enough heads for
 * all threads, for all query heads that share it. */
#ifndef WEFT_KERNELS_CPU_ATTENTION_BACKWARD_H
#define WEFT_KERNELS_CPU_ATTENTION_BACKWARD_H

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention16.h"

/* Heads that are enough for 16 threads, and the blocks of keys from which on one is split: the sum of its
 * splits' dQ then takes less than a tenth of the time. */
enum { ENOUGH_HEADS = 32, SPLIT_BLOCKS = 2 };

/* How the work is partitioned. */
typedef struct Plan {
    int threads;
    int64_t heads, splits; /* heads: of keys, over all sequences; splits: ranges of keys per head */
    bool whole;            /* a task has all splits of a head */
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
    float *partial; /* dQ: of all splits of all heads, or of the first and another split of each thread */
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
    int64_t most = s.T / (SPLIT_BLOCKS * block);
    if (plan.heads < ENOUGH_HEADS && most > 1)
        plan.splits = min_of((ENOUGH_HEADS + plan.heads - 1) / plan.heads, most);
    plan.whole = plan.splits == 1 || plan.threads == 1 || plan.heads >= 2 * plan.threads;
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

/* Where dQ of a split of query head `at` is accumulated. */
static inline float *partial_of(const Backward *f, int64_t at, int64_t split, int thread) {
    const Plan *plan = &f->plan;
    int64_t slot = plan->whole ? min_of(plan->splits, 2) * thread + (split > 0) : at * plan->splits + split;
    return f->partial + (size_t)slot * plan->partial;
}

/* to += from, both dQ of splits. */
static inline void partial_add(const Backward *f, float *to, const float *from) {
#pragma omp simd
    for (size_t i = 0; i < f->plan.partial; i++) to[i] += from[i];
}

/* The splits of a task; its key head is task_head. */
static inline Range task_splits(const Plan *plan, int64_t task) {
    if (plan->whole) return (Range){0, plan->splits};
    return (Range){task % plan->splits, task % plan->splits + 1};
}
static inline int64_t task_head(const Plan *plan, int64_t task) {
    return plan->whole ? task : task / plan->splits;
}

/* dQ of query head `at` after its splits ran as tasks of their own. */
static inline float *partial_sum(const Backward *f, int64_t at) {
    float *sum = partial_of(f, at, 0, 0);
    for (int64_t split = 1; split < f->plan.splits; split++) partial_add(f, sum, partial_of(f, at, split, 0));
    return sum;
}

/* Allocates memory and runs heads_task for each task, then sum_task for each query head if splits were tasks
 * of their own. */
MUST_USE static inline Status backward_run(Backward *f, Stream *stream,
                                           void (*heads_task)(const void *f, int64_t task, int thread),
                                           void (*sum_task)(const void *f, int64_t at, int thread)) {
    const Plan *plan = &f->plan;
    int64_t heads = f->shape.B * f->shape.H;
    size_t scratch_bytes = (size_t)plan->threads * plan->each;
    int64_t slots = plan->whole ? min_of(plan->splits, 2) * plan->threads : heads * plan->splits;
    void *memory;
    TRY(stream_workspace(stream, scratch_bytes + (size_t)slots * plan->partial * sizeof(float), &memory));
    f->memory = memory;
    f->partial = (float *)(void *)((unsigned char *)memory + scratch_bytes);
    Pool *pool = plan->threads > 1 ? stream->device->pool : NULL;
    pool_run(pool, plan->heads * (plan->whole ? 1 : plan->splits), heads_task, f);
    if (!plan->whole) pool_run(pool, heads, sum_task, f);
    return OK;
}

#endif
