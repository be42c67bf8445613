/* What backends share: how a table is filled, and the small rules that every backend must follow to the
 * letter (which elements dropout keeps, which row of the vocabulary a token is).
 *
 * A backend's slots may rely on what the functions of kernels.h have checked: shapes agree, required
 * tensors are there, all types are as kernels.h lays them down, and there is at least one row of work.
 * They check themselves that indices found in tensors are in range before they use them.
 */
#ifndef WEFT_KERNELS_BACKEND_H
#define WEFT_KERNELS_BACKEND_H

#include "kernels/kernels.h"

/* Fills every slot with the reference. */
void kernels_ref_fill(KernelTable *table);
/* Replaces the slots of a filled table that the cpu backend does better. */
void kernels_cpu_override(KernelTable *table);
/* Fills every slot with the cuda backend's; false where the build has none. */
bool kernels_cuda_fill(KernelTable *table);

/* Tables for planning, see kernels_dryrun. That of the GPU needs no CUDA. */
void kernels_dryrun_fill_cpu(KernelTable *table, const KernelTable *cpu);
void kernels_dryrun_fill_cuda(KernelTable *table);

/* Whether all of the tensors that are not none are fp32. */
bool kernels_fp32(size_t count, const Tensor *tensors);
/* Leaves a call whose tensors are not all fp32 to another function, usually the reference's. */
#define FP32_ELSE(other, ...)                                                                                \
    do {                                                                                                     \
        if (!kernels_fp32(sizeof((Tensor[]){__VA_ARGS__}) / sizeof(Tensor), (Tensor[]){__VA_ARGS__}))        \
            return other;                                                                                    \
    } while (0)

/* Draws below this are dropped. */
static inline uint32_t dropout_threshold(float p) {
    return (uint32_t)((double)p * 0x1p32);
}
static inline float dropout_scale(float p) {
    return (float)(1.0 / (1.0 - (double)p));
}
/* The draw's index of element (b, t, 0) of a (B,T,C) tensor; those of its row follow one by one. */
static inline uint64_t dropout_row(const Dropout *dropout, int64_t b, int64_t t) {
    return (uint64_t)(((b + dropout->origin[0]) * dropout->extent[0] + t + dropout->origin[1]) *
                          dropout->extent[1] +
                      dropout->origin[2]);
}
/* The same for key 0 of the scores of query q in head h of sequence b. */
static inline uint64_t dropout_scores(const Dropout *dropout, int64_t b, int64_t h, int64_t q) {
    int64_t head = (b + dropout->origin[0]) * dropout->extent[0] + h + dropout->origin[1];
    return (uint64_t)((head * dropout->extent[1] + q) * dropout->extent[1]);
}

/* How many of V local columns are real. */
static inline int64_t vocab_columns(VocabPart part, int64_t V) {
    int64_t real = part.valid - part.start;
    return real < 0 ? 0 : real < V ? real : V;
}
/* The local row of a token, or -1 when it is not one of this part's. */
static inline int64_t vocab_row(VocabPart part, int64_t V, int32_t token) {
    int64_t row = token - part.start;
    return row >= 0 && row < vocab_columns(part, V) ? row : -1;
}

#endif
