/* The heart of every matrix product here: a tile of MICRO_ROWS x MICRO_COLS of the result is held in
 * registers while panels of both operands stream past. Panels are packed: of the left operand, step k
 * holds MICRO_ROWS numbers, of the right one MICRO_COLS; what is missing at an edge is 0.
 *
 * The tile takes three vectors a row and as many rows as registers allow: 8 where there are 32 (24 sums,
 * 3 + 2 operands), 4 where there are 16.
 */
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

/* c (MICRO_ROWS, MICRO_COLS), rows c_stride apart, = panel a times panel b over `depth` steps, plus what
 * c holds with `add`. */
void VARIANT(micro_tile)(int64_t depth, const float *a, const float *b, float *c, int64_t c_stride, bool add);
/* The same for a tile of which only rows x cols exist. */
void VARIANT(micro_edge)(int64_t depth, const float *a, const float *b, float *c, int64_t c_stride, bool add,
                         int64_t rows, int64_t cols);

/* Pack as many panels of `width` lines (MICRO_ROWS or MICRO_COLS) as `lines` need, panel_stride apart. A
 * line is what a panel holds at each step: a row of the left operand or a column of the right one.
 * pack_across: the steps of a line lie next to each other, lines `stride` apart; pack_along: the lines of
 * a step lie next to each other, steps `stride` apart. */
void VARIANT(pack_across)(float *panels, int width, const float *from, int64_t stride, int64_t lines,
                          int64_t depth, int64_t panel_stride);
void VARIANT(pack_along)(float *panels, int width, const float *from, int64_t stride, int64_t lines,
                         int64_t depth, int64_t panel_stride);

#define micro_tile  VARIANT(micro_tile)
#define micro_edge  VARIANT(micro_edge)
#define pack_across VARIANT(pack_across)
#define pack_along  VARIANT(pack_along)

#endif
