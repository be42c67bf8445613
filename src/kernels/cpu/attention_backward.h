/* What attention backward in fp32 and in bf16 share: how the work is partitioned, and the tensors of a head.
 *
 * If there are few heads, the keys of each are split into ranges; each split has a dQ of its own, and these
 * are added in order. The number of splits depends on the shape alone, so that the bits of dQ do not depend
 * on the number of threads. A task is one split of a key head, or all of them if there are enough heads for
 * all threads, for all query heads that share it. */
#ifndef WEFT_KERNELS_CPU_ATTENTION_BACKWARD_H
#define WEFT_KERNELS_CPU_ATTENTION_BACKWARD_H

#include "kernels/cpu/attention.h"

typedef struct Product16 Product16;
typedef struct BackwardType BackwardType;

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
    const BackwardType *type;
    const Product16 *product; /* NULL in fp32 */
    HeadShape shape;
    Plan plan;
    unsigned char *memory;
    float *partial; /* dQ: of all splits of all heads, or of the first and another split of each thread */
} Backward;

typedef struct Head {
    const Backward *f;
    int64_t at, b, h; /* at: over all sequences */
    Mask mask;
    Rows q, dq, k, v, dk, dv;
    Rows grad, out;
    const float *lse; /* (T) */
} Head;

/* What fp32 and bf16 do differently. */
struct BackwardType {
    int64_t block;                  /* splits have a multiple of this many keys, except the last */
    size_t (*partial)(HeadShape s); /* floats of one split's dQ */
    /* Takes a thread's scratch memory. */
    void (*reserve)(Bump *bump, HeadShape s);
    /* Computes the splits' dK and dV, and their dQ (partial_of). If the plan is whole, the first dQ gets the
     * sum of all. Of the query heads that share keys, all but the first add to dK and dV, and the last stores
     * them. */
    void (*head)(const Head *head, Bump *bump, Range splits, int thread);
    /* Stores dQ, from its sum. */
    void (*store)(const Head *head, Bump *bump, const float *sum);
};

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

#endif
