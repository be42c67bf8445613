/* Products of int8 numbers by the machine's own instructions, as linear_int8.c drives them. Right panels are
 * those of kernels/int8.h. Left panels hold `rows` rows in the same way: groups of inputs one after the
 * other, of each group row after row.
 *
 *   i8mm      SMMLA (aarch64): a pair of rows times a pair of columns over 8 inputs
 *   dotprod   SDOT (aarch64): a row's 4 inputs times those of 4 columns
 *   vnni      VPDPBUSD (x86-64, AVX-512 VNNI): a row's 4 inputs, plus 128 each, times those of 16 columns
 *   amx       TDPBSSD (x86-64, AMX): 16 rows times 16 columns over 64 inputs; few rows as vnni
 *   plain     what the compiler makes of C; with AVX2, pairs of inputs in 16 bits
 */
#ifndef WEFT_KERNELS_CPU_MICRO8_H
#define WEFT_KERNELS_CPU_MICRO8_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

typedef struct Micro8 {
    const char *name;
    int rows;       /* of a tile, and of a left panel; at most 16 */
    int left_group; /* inputs that left panels have together; 0: as many as right ones */
    Int8Tile tile;
    bool raised; /* left numbers are stored plus 128 */
    /* c, `rows` rows of a tile's columns c_stride apart, = panel a times panel b over `depth` inputs, a
     * multiple of INT8_DEPTH. */
    void (*run)(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c, int64_t c_stride);
    /* The same where b is of 4 bits: each cut's sums are multiplied by its steps. */
    void (*run4)(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c, int64_t c_stride);
    void (*begin)(void), (*end)(void); /* around a thread's runs; may be NULL */
    const struct Micro8 *few;          /* for few rows and for 4 bits, of the same tile; NULL: itself */
} Micro8;

/* Those that the build's machine kind has; each runs only where int8.c finds its instructions. */
extern const Micro8 micro8_mmla;
extern const Micro8 micro8_sdot;
extern const Micro8 micro8_vnni;
extern const Micro8 micro8_amx;

/* The one for this machine, or the one that WEFT_CPU_INT8 (i8mm, dotprod, amx, vnni or plain) asks for, which
 * the machine must have; NULL: C. */
MUST_USE Status micro8_choose(const Micro8 **ret_micro);
/* The one for weights that are packed so; NULL where this machine has none. */
const Micro8 *micro8_for(Int8Tile tile);

#endif
