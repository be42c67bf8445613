/* GEMM of any size and compute types on the device's threads. Accumulation is fp32. bf16 uses the CPU's bf16
 * instructions if it has any (micro16.h), in which case an fp32 operand next to a bf16 one is rounded to
 * bf16; all other 16-bit operands are converted to fp32. */
#ifndef WEFT_KERNELS_CPU_GEMM_H
#define WEFT_KERNELS_CPU_GEMM_H

#include "kernels/cpu/variant.h"

/* An operand of fp32, bf16 or fp16, row-major with rows `stride` apart. `trans` means that its transpose is
 * multiplied. */
typedef struct Operand {
    const void *data;
    DType dtype;
    int64_t stride;
    bool trans;
} Operand;

/* The epilogue of a block of the result, `rows` x `cols` at (row, col), called by the thread that completed
 * it, while it is still in its cache. `sums` are its elements, with rows `stride` apart; they may be
 * modified. */
typedef void Finish(const void *context, float *sums, int64_t stride, int64_t row, int64_t col, int64_t rows,
                    int64_t cols);

/* c (m,n) [+]= a (m,k) b (k,n), with contiguous rows; `add` selects accumulation. c may be NULL, in which
 * case the result is only passed to `finish`. With both, `finish` works on c's elements. */
typedef struct Gemm {
    int64_t m, n, k;
    Operand a, b;
    float *c;
    bool add;
    Finish *finish;
    const void *context;
    int64_t row; /* that of the result's first row for `finish` */
} Gemm;

/* Bytes of workspace that gemm_run needs, from everything except pointers to data. They may be 0. */
MUST_USE Status VARIANT(gemm_bytes)(const Stream *stream, const Gemm *gemm, size_t *ret_bytes);
MUST_USE Status VARIANT(gemm_run)(const Stream *stream, const Gemm *gemm, void *workspace);

/* GEMMs, such as those of experts, that differ in m or k and in where their operands are. All else is that of
 * `largest`, whose m and k no other exceeds. They may have no rows (m = 0) or, with c, no steps (k = 0). */
typedef struct GemmList {
    int count; /* at most EXPERTS_MAX */
    Gemm largest;
    Gemm (*at)(const void *context, int64_t i);
    const void *context;
} GemmList;
MUST_USE Status VARIANT(gemm_list_bytes)(const Stream *stream, const GemmList *list, size_t *ret_bytes);
MUST_USE Status VARIANT(gemm_list_run)(const Stream *stream, const GemmList *list, void *workspace);

/* Skinny GEMM: a left operand with few rows, as in generation. Packing the right operand would cost more than
 * the multiplication, which reads it only once. Each element is accumulated in the same order for any number
 * of rows, so that a sequence gets the same bits alone and in a batch. */
static inline bool gemm_is_skinny(const Gemm *gemm) {
    return gemm->m <= SKINNY_ROWS && !gemm->a.trans && gemm->b.trans &&
           (gemm->b.dtype != DT_F32 || gemm->a.dtype == DT_F32);
}
MUST_USE Status VARIANT(gemm_skinny_bytes)(const Gemm *gemm, size_t *ret_bytes);
MUST_USE Status VARIANT(gemm_skinny_run)(int threads, const Gemm *gemm, void *workspace);

#define gemm_bytes        VARIANT(gemm_bytes)
#define gemm_run          VARIANT(gemm_run)
#define gemm_list_bytes   VARIANT(gemm_list_bytes)
#define gemm_list_run     VARIANT(gemm_list_run)
#define gemm_skinny_bytes VARIANT(gemm_skinny_bytes)
#define gemm_skinny_run   VARIANT(gemm_skinny_run)

#endif
