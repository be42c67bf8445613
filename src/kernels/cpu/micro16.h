/* The bf16 micro-kernels that gemm.c drives: the counterpart of micro.h, with panels whose steps come in
 * groups. A panel of `width` lines with groups of g steps stores, for each group, line after line, g steps
 * each. Missing lines and steps at an edge are 0.
 *
 *   mmla   BFMMLA (aarch64): a pair of left rows times a pair of right columns over 4 steps
 *   dot    VDPBF16PS (x86-64, AVX-512 BF16): a pair of steps of a left row times those of 16 columns
 *   amx    TDPBF16PS (x86-64, AMX): 16 left rows times 16 columns over 32 steps
 *
 * fp16, and bf16 on CPUs without these instructions, use the same code with fp32 panels in groups of one.
 * So does fp32 on request (micro_split.c). */
#ifndef WEFT_KERNELS_CPU_MICRO16_H
#define WEFT_KERNELS_CPU_MICRO16_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/dtype.h"

/* The source of panels: `lines` lines of `depth` steps. A line is a row of the left operand or a column of
 * the right one. */
typedef struct PackSource {
    const void *from;
    DType dtype;
    bool across;    /* the steps of a line are contiguous; otherwise the lines of a step */
    int64_t stride; /* elements between lines (across) or between steps */
    int64_t lines, depth;
} PackSource;

/* What to prefetch: `lines` cache lines of each of several rows, `stride` bytes apart. */
typedef struct MicroAhead {
    const char *row; /* the next line is `line` of this row */
    int64_t stride, lines, line;
    int64_t count; /* lines during a tile */
} MicroAhead;

/* Prefetches the next line. */
static inline void micro_ahead(MicroAhead *ahead) {
    __builtin_prefetch(ahead->row + ahead->line * 64, 0, 2);
    if (++ahead->line < ahead->lines) return;
    ahead->line = 0;
    ahead->row += ahead->stride;
}

typedef struct Micro {
    const char *name;
    DType dtype;    /* of the elements to pack: bf16 or fp32 */
    bool any_type;  /* packs all compute types; `dtype` is fp32 */
    int size;       /* bytes of a packed element */
    int rows, cols; /* tile size, which is the width of left and right panels */
    int unit;       /* depths are padded to a multiple of this */
    int depth;      /* largest number of steps for which a right panel stays in the L1 cache */
    /* Called by each thread before its first tile and after its last; may be NULL. */
    void (*begin)(void);
    void (*end)(void);
    /* c [+]= panel a times panel b over `depth` steps, a multiple of `unit`. c is a full tile with rows
     * c_stride apart; `add` selects accumulation. */
    void (*tile)(int64_t depth, const void *a, const void *b, float *c, int64_t c_stride, bool add);
    /* The same, and prefetches; NULL: not available. */
    void (*tile_ahead)(int64_t depth, const void *a, const void *b, float *c, int64_t c_stride, bool add,
                       MicroAhead *ahead);
    /* Packs all lines of the source into panels, panel_stride elements apart; `left` selects the operand. The
     * depth is padded to a multiple of `unit`. */
    void (*pack)(void *panels, bool left, PackSource source, int64_t panel_stride);
    /* The skinny GEMM, without packing: c (rows, cols) = `rows` left rows times `cols` right columns, at
     * most SKINNY_COLS. The `depth` steps of a row or column are contiguous; rows are a_stride and columns
     * b_stride apart. The sum of an element does not depend on the number of rows. NULL: not available. */
    void (*skinny)(int64_t depth, int64_t rows, const uint16_t *a, int64_t a_stride, int cols,
                   const uint16_t *b, int64_t b_stride, float *c, int64_t c_stride);
} Micro;

enum { SKINNY_COLS = 4 };

/* Micro-kernels in this build; each runs only if choose.c detects its instructions. */
extern const Micro micro16_mmla;
extern const Micro micro16_dot;
extern const Micro micro16_amx;
extern const Micro micro32_split;

/* The fastest micro-kernel, or the one that WEFT_CPU_BF16 (off, mmla, dot or amx) selects; NULL if bf16 is
 * converted to fp32. Fails if this CPU does not support the selected one. */
MUST_USE Status micro16_choose(const Micro **ret_micro);
/* The micro-kernel for fp32 operands that WEFT_CPU_FP32 (amx) selects; NULL: that of micro.h. */
const Micro *micro32_choose(void);
/* Fails if this CPU does not support the value of WEFT_CPU_FP32. */
MUST_USE Status micro32_check(void);

#endif
