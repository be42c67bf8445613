/* Matrix products of any size of which an operand at least is 16 bits wide, on the device's threads. Sums
 * are fp32. bf16 goes through the machine's own instructions where it has them (micro16.h), and an fp32
 * operand beside it is rounded to bf16 then; everything else is converted to fp32. */
#ifndef WEFT_KERNELS_CPU_GEMM16_H
#define WEFT_KERNELS_CPU_GEMM16_H

#include "kernels/cpu/variant.h"

/* A matrix of fp32, bf16 or fp16 as a product takes it: rows `stride` apart; with `trans` its transpose is
 * what is meant. */
typedef struct Operand16 {
    const void *data;
    DType dtype;
    int64_t stride;
    bool trans;
} Operand16;

/* What becomes of a block of the product, `rows` x `cols` at (row, col), in the hands of the thread that
 * computed it: `sums` are its elements, rows so far apart, and may be changed. */
typedef void (*Finish16)(const void *context, float *sums, int64_t stride, int64_t row, int64_t col,
                         int64_t rows, int64_t cols);

/* The product a (m,k) b (k,n) goes to c, rows n apart, plus what c holds with `add`; or, where c is NULL,
 * only to `finish`, which may be given with c too and then works on c's elements. */
typedef struct Gemm16 {
    int64_t m, n, k;
    Operand16 a, b;
    float *c;
    bool add;
    Finish16 finish;
    const void *context;
} Gemm16;

/* Takes the stream's workspace. */
MUST_USE Status VARIANT(gemm16_run)(Stream *stream, const Gemm16 *gemm);

#define gemm16_run VARIANT(gemm16_run)

#endif
