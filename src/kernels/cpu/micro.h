/* The fp32 GEMM micro-kernel: a tile of MICRO_ROWS x MICRO_COLS of the result stays in registers while
 * panels of both operands stream past. Panels are packed: per step k, a left panel has MICRO_ROWS elements
 * and a right panel MICRO_COLS. Missing rows and columns at an edge are 0.
 *
 * A tile is three vectors wide and as high as the registers allow: 8 rows with 32 registers (24
 * accumulators, 3 + 2 operands), 4 rows with 16. */
#ifndef WEFT_KERNELS_CPU_MICRO_H
#define WEFT_KERNELS_CPU_MICRO_H

#include "kernels/cpu/micro16.h"
#include "kernels/cpu/variant.h"
#include "kernels/cpu/vec.h"

#if defined(__aarch64__) || defined(__AVX512F__)
enum { MICRO_ROWS = 8 };
#else
enum { MICRO_ROWS = 4 };
#endif
enum { MICRO_COLS = 3 * VEC };

/* c (MICRO_ROWS, MICRO_COLS) [+]= panel `left` times panel `right` over `depth` steps. Rows of c are c_stride
 * apart; `add` selects accumulation. */
void VARIANT(micro_tile)(int64_t depth, const void *left, const void *right, float *c, int64_t c_stride,
                         bool add);

/* The same, and prefetches lines meanwhile: burst of prefetches would wait for one another, and the product
 * for them. */
void VARIANT(micro_tile_ahead)(int64_t depth, const void *left, const void *right, float *c, int64_t c_stride,
                               bool add, MicroAhead *ahead);

/* Packs lines of any compute type into panels of `width` (MICRO_ROWS or MICRO_COLS), panel_stride apart. */
void VARIANT(micro_pack)(float *panels, int width, PackSource source, int64_t panel_stride);

#define micro_tile       VARIANT(micro_tile)
#define micro_tile_ahead VARIANT(micro_tile_ahead)
#define micro_pack       VARIANT(micro_pack)

#endif
