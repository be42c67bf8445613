/* Products of bf16 numbers by the machine's own instructions, as gemm16.c drives them: the counterpart of
 * micro.h, with panels whose steps come in groups. Of a panel of `width` lines in groups of g steps, each
 * group holds line after line, g steps each; lines and steps that are missing at an edge are 0.
 *
 *   mmla   BFMMLA (aarch64): a pair of left rows times a pair of right columns over 4 steps
 *   dot    VDPBF16PS (x86-64, AVX-512 BF16): a left number's pair of steps times those of 16 columns
 *   amx    TDPBF16PS (x86-64, AMX): 16 left rows times 16 columns over 32 steps
 *
 * The same frame runs fp32 panels in groups of one, for machines without them and for fp16.
 */
#ifndef WEFT_KERNELS_CPU_MICRO16_H
#define WEFT_KERNELS_CPU_MICRO16_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/dtype.h"

/* Where a panel's lines come from: `lines` lines of `depth` steps at `from`. */
typedef struct PackSource {
    const void *from; /* elements of the panels' type */
    int64_t stride;   /* elements from line to line (pack_across) or from step to step (pack_along) */
    int64_t lines, depth;
} PackSource;

typedef struct Micro16 {
    const char *name;
    DType dtype;    /* of packed elements: bf16 or fp32 */
    int rows, cols; /* of a tile: the widths of left and right panels */
    int unit;       /* depths are padded to a multiple of this */
    int depth;      /* most steps whose right panel stays in the first cache */
    /* Called by each thread before its first tile and after its last; NULL: nothing to do. */
    void (*begin)(void);
    void (*end)(void);
    /* c, a whole tile with rows c_stride apart, = panel a times panel b over `depth` steps (a multiple of
     * unit), plus what c holds with `add`. */
    void (*tile)(int64_t depth, const void *a, const void *b, float *c, int64_t c_stride, bool add);
    /* Pack as many panels, panel_stride elements apart, as the source's lines need; `left` says of which
     * operand. The depth is filled up to a multiple of unit. */
    void (*pack_across)(void *panels, bool left, PackSource source, int64_t panel_stride);
    void (*pack_along)(void *panels, bool left, PackSource source, int64_t panel_stride);
    /* c (rows, cols), rows c_stride apart, = `rows` left rows times `cols` right columns, at most FEW_COLS.
     * Neither is packed: rows and columns are `depth` steps one after the other, the next one a_stride
     * respectively b_stride on. An element's sum does not depend on how many rows there are. NULL: there is
     * no such way. */
    void (*few)(int64_t depth, int64_t rows, const uint16_t *a, int64_t a_stride, int cols, const uint16_t *b,
                int64_t b_stride, float *c, int64_t c_stride);
} Micro16;

enum { FEW_COLS = 4 };

/* Those that the build's machine kind has; each runs only where bf16.c finds its instructions. */
extern const Micro16 micro16_mmla;
extern const Micro16 micro16_dot;
extern const Micro16 micro16_amx;

/* The one for this machine, or the one that WEFT_CPU_BF16 (off, mmla, dot or amx) asks for; NULL where bf16
 * is to be converted to fp32. Fails where this machine lacks what is asked for. */
MUST_USE Status micro16_choose(const Micro16 **ret_micro);

#endif
