/* The int8 micro-kernels that linear_int8.c drives. Right panels have the format of kernels/int8.h. Left
 * panels contain `rows` rows in the same format: group of inputs after group of inputs, and row after row
 * within a group.
 *
 *   i8mm      SMMLA (aarch64): a pair of rows times a pair of columns over 8 inputs
 *   dotprod   SDOT (aarch64): 4 inputs of a row times those of 4 columns
 *   vnni      VPDPBUSD (x86-64, AVX-512 VNNI): 4 inputs of a row, offset by 128, times those of 16 columns
 *   amx       TDPBSSD (x86-64, AMX): 16 rows times 16 columns over 64 inputs; falls back to vnni for few rows
 *   avx2      VPMADDUBSW (x86-64, AVX2): 4 inputs of a row times those of 8 columns
 *   plain     portable C */
#ifndef WEFT_KERNELS_CPU_MICRO8_H
#define WEFT_KERNELS_CPU_MICRO8_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* c = panel a times panel b over `depth` inputs, a multiple of INT8_DEPTH. c has `rows` rows of the tile's
 * columns, c_stride apart. */
typedef void Micro8Run(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                       int64_t c_stride);

typedef struct Micro8 {
    const char *name;
    int rows;             /* rows of a tile and of a left panel; at most 32 */
    int left_group;       /* inputs per group in left panels; 0: the same as in right panels */
    Int8Tile tile, tile4; /* of int8 and of int4 weights */
    int bias_copies;      /* int4: see micro8_bias; 0 if left panels have no biases */
    /* Writes the bias of a slice's inputs if its format is not that of micro8_bias; else NULL. */
    void (*bias)(int32_t *to, const int8_t *inputs);
    bool offset_left; /* int8: left values are stored with an offset of 128, because the instruction treats
                         them as unsigned */
    Micro8Run *run;
    /* The same for int4 weights: the sums of each slice are multiplied by its steps. */
    Micro8Run *run4;
    /* For many rows: unpacks a panel of int8 or int4 weights to `unpacked_bytes` per input, which
     * run_unpacked or run4_unpacked then reads. NULL if it would not be faster. */
    void (*unpack)(int64_t depth, const int8_t *panel, int8_t *to);
    void (*unpack4)(int64_t depth, const int8_t *panel, int8_t *to);
    Micro8Run *run_unpacked, *run4_unpacked;
    int unpacked_bytes;
    /* Rows for run_unpacked have two bytes per input, which this writes, and a group has as many bytes as in
     * other left panels; NULL: one byte. */
    void (*widen)(int64_t depth, const int8_t *q, int8_t *to);
    void (*begin)(void), (*end)(void); /* called by each thread before and after its runs; may be NULL */
    /* Micro-kernels with the same tile for other numbers of rows: `one` for a single row, whose left panel is
     * the row itself, and `few` for few rows. NULL: this one. */
    const struct Micro8 *one, *few;
} Micro8;

/* With biased low nibbles, one instruction unpacks two vectors of int4 weights. Bytes are 16 h + l + 8, so
 * the sum X of inputs times bytes, minus the sum Y of inputs times (bytes & 15), is 16 times that of the high
 * nibbles, and Y minus 8 times the sum of the inputs is that of the low nibbles. Accumulators of both start
 * at the bias, -8 times the sum of a slice's inputs, so that no instruction is spent on it. Left panels are
 * therefore followed by int32 biases: for each slice, `bias_copies` of each row's. Kernels that unpack both
 * nibbles plus 8 need the same biases. */
static inline const int32_t *micro8_bias(const int8_t *left, int rows, int64_t depth) {
    return (const int32_t *)(const void *)(left + rows * depth);
}

/* Micro-kernels in this build; each runs only if choose.c detects its instructions. */
extern const Micro8 micro8_mmla;
extern const Micro8 micro8_sdot;
extern const Micro8 micro8_avx2;
extern const Micro8 micro8_vnni;
extern const Micro8 micro8_amx;

/* The fastest micro-kernel, or the one that WEFT_CPU_INT8 (i8mm, dotprod, amx, vnni, avx2 or plain) selects;
 * NULL: portable C. Fails if this CPU does not support the selected one. */
MUST_USE Status micro8_choose(const Micro8 **ret_micro);
/* The micro-kernel for weights of this many bits packed with this tile; NULL if this CPU has none. */
const Micro8 *micro8_for(Int8Tile tile, int bits);

#endif
