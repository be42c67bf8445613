/* Linear layers with some rows, more than in a decode step but few enough that packing the weights for a GEMM
 * would take a large part of the time: prompts. The rows are transposed instead, so that a vector has one
 * input of several rows, and weights are read where they are. See thin.c. */
#ifndef WEFT_KERNELS_CPU_THIN_H
#define WEFT_KERNELS_CPU_THIN_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/variant.h"

/* y (m,n) = x (m,k) times the transpose of w (n,k), both contiguous. The result is only passed to `finish`.
 */
typedef struct Thin {
    int64_t m, n, k;
    const void *x, *w;
    DType x_type, w_type;
    Finish *finish;
    const void *context;
    int64_t row; /* that of y's first row for `finish` */
} Thin;

/* Whether thin_run is likely to be faster than a GEMM. */
MUST_USE Status VARIANT(thin_suits)(const Thin *thin, bool *ret_suits);
/* Runs `count` of them, at most THIN_LIST, that differ only in m, row and where their data is. */
enum { THIN_LIST = 32 };
MUST_USE Status VARIANT(thin_run)(const Stream *stream, const Thin *thins, int count, void *workspace);
/* Bytes of workspace for any `count` of them, or THIN_LIST, whose m amount to at most that of `thin`. */
MUST_USE Status VARIANT(thin_bytes)(const Stream *stream, const Thin *thin, int64_t count, size_t *ret_bytes);

#define thin_suits VARIANT(thin_suits)
#define thin_run   VARIANT(thin_run)
#define thin_bytes VARIANT(thin_bytes)

/* AMX, for bf16: y (16, 16 * columns) = 16 rows of w, w_stride elements apart, times `columns` (at most
 * THIN_AMX_COLUMNS) blocks of 16 rows of x. x is stored as pairs of inputs: (depth / 2, width), where width
 * is a multiple of 16. depth is a multiple of 32. `next` are the 16 rows of w that will be needed next.
 * Rows of y are y_stride apart. */
enum { THIN_AMX_OUTPUTS = 16, THIN_AMX_INPUTS = 32, THIN_AMX_COLUMNS = 4 };
void thin_amx_begin(void);
void thin_amx_end(void);
void thin_amx(int64_t depth, int columns, const uint32_t *x, int64_t width, const uint16_t *w,
              int64_t w_stride, const uint16_t *next, float *y, int64_t y_stride);

#endif
