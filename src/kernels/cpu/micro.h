/* The fp32 GEMM micro-kernel: a tile of MICRO_ROWS x MICRO_COLS of the result stays in registers while
 * panels of both operands stream past. Panels are packed: per step k, a left panel has MICRO_ROWS elements
 * and a right panel MICRO_COLS. Missing rows and columns at an edge are 0.
 *
 * A tile is three vectors wide and as high as the registers allow: 8 rows with 32 registers (24
 * accumulators, 3 + 2 operands), 4 rows with 16. */
#ifndef WEFT_KERNELS_CPU_MICRO_H
#define WEFT_KERNELS_CPU_MICRO_H

#include "kernels/cpu/variant.h"
#include "kernels/cpu/vec.h"

#if defined(__aarch64__) || defined(__AVX512F__)
enum { MICRO_ROWS = 8 };
#else
enum { MICRO_ROWS = 4 };
#endif
enum { MICRO_COLS = 3 * VEC };

/* c (MICRO_ROWS, MICRO_COLS) [+]= panel a times panel b over `depth` steps. Rows of c are c_stride apart;
 * `add` selects accumulation. */
void VARIANT(micro_tile)(int64_t depth, const float *a, const float *b, float *c, int64_t c_stride, bool add);
/* The same for a tile of which only rows x cols exist. */
void VARIANT(micro_edge)(int64_t depth, const float *a, const float *b, float *c, int64_t c_stride, bool add,
                         int64_t rows, int64_t cols);

/* Pack `lines` lines into panels of `width` (MICRO_ROWS or MICRO_COLS), panel_stride apart. A line is a row
 * of the left operand or a column of the right one. pack_across: the steps of a line are contiguous, and
 * lines are `stride` apart. pack_along: the lines of a step are contiguous, and steps are `stride` apart. */
void VARIANT(pack_across)(float *panels, int width, const float *from, int64_t stride, int64_t lines,
                          int64_t depth, int64_t panel_stride);
void VARIANT(pack_along)(float *panels, int width, const float *from, int64_t stride, int64_t lines,
                         int64_t depth, int64_t panel_stride);

/* The same from bf16. */
void VARIANT(pack_across_bf16)(float *panels, int width, const uint16_t *from, int64_t stride, int64_t lines,
                               int64_t depth, int64_t panel_stride);
void VARIANT(pack_along_bf16)(float *panels, int width, const uint16_t *from, int64_t stride, int64_t lines,
                              int64_t depth, int64_t panel_stride);

#define micro_tile       VARIANT(micro_tile)
#define micro_edge       VARIANT(micro_edge)
#define pack_across      VARIANT(pack_across)
#define pack_along       VARIANT(pack_along)
#define pack_across_bf16 VARIANT(pack_across_bf16)
#define pack_along_bf16  VARIANT(pack_along_bf16)

#endif
