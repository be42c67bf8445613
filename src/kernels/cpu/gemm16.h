/* GEMM of any size with at least one 16-bit operand, on the device's threads. Accumulation is fp32. bf16
 * uses the CPU's bf16 instructions if it has any (micro16.h), in which case an fp32 operand is rounded to
 * bf16; everything else is converted to fp32. */
#ifndef WEFT_KERNELS_CPU_GEMM16_H
#define WEFT_KERNELS_CPU_GEMM16_H

#include "kernels/cpu/variant.h"

/* A GEMM operand of fp32, bf16 or fp16, row-major with rows `stride` apart. `trans` means that its
 * transpose is multiplied. */
typedef struct Operand16 {
    const void *data;
    DType dtype;
    int64_t stride;
    bool trans;
} Operand16;

/* The epilogue of a block of the result, `rows` x `cols` at (row, col), called by the thread that computed
 * it. `sums` are its elements, with rows `stride` apart; they may be modified. */
typedef void (*Finish16)(const void *context, float *sums, int64_t stride, int64_t row, int64_t col,
                         int64_t rows, int64_t cols);

/* c (m,n) [+]= a (m,k) b (k,n), with contiguous rows; `add` selects accumulation. c may be NULL, in which
 * case the result is only passed to `finish`. With both, `finish` works on c's elements. */
typedef struct Gemm16 {
    int64_t m, n, k;
    Operand16 a, b;
    float *c;
    bool add;
    Finish16 finish;
    const void *context;
    const struct Micro16 *micro; /* NULL: chosen by the operands' types */
} Gemm16;

/* Uses the stream's workspace. */
MUST_USE Status VARIANT(gemm16_run)(Stream *stream, const Gemm16 *gemm);

/* fp32 operands with the micro-kernel `micro`, and the bytes of workspace that this needs. c must not be
 * NULL. */
size_t VARIANT(gemm16_split_bytes)(const Gemm16 *gemm);
void VARIANT(gemm16_split_run)(Pool *pool, int threads, const Gemm16 *gemm, void *workspace);

#define gemm16_run         VARIANT(gemm16_run)
#define gemm16_split_bytes VARIANT(gemm16_split_bytes)
#define gemm16_split_run   VARIANT(gemm16_split_run)

#endif
