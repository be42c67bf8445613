/* TDPBSSD: a tile of 16 rows x 32 columns as two AMX tiles of 16 x 16 accumulators; see micro8.h. The
 * instruction processes 64 inputs. Its left operand has the 64 inputs of a row side by side, so left panels
 * have groups of 64. Its right operand has groups of 4 inputs, which is also the panel format of VPDPBUSD.
 * Both micro-kernels can thus use the same packed weights, and this one leaves few rows and int4 weights to
 * the other. */
#if defined(__x86_64__)

#include <immintrin.h>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/micro8.h"

enum { ROWS = 16, COLS = 32, INPUTS = 64, HALF = 16 };

/* Static, because the compiler believes that the instruction reads only the first bytes. */
static const TileConfig config = TILE_CONFIG_FULL;

static void begin_amx(void) {
    _tile_loadconfig(&config);
}

static void end_amx(void) {
    _tile_release();
}

/* Tiles 0 and 1 are the accumulators, 2 the rows, 3 and 4 the columns. All rows are stored, even if fewer
 * exist: c has room for them. */
static void run_amx(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c, int64_t c_stride) {
    int64_t bytes = c_stride * (int64_t)sizeof *c;
    (void)rows;
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t k = 0; k < depth; k += INPUTS, a += ROWS * INPUTS, b += COLS * INPUTS) {
        _tile_loadd(2, a, INPUTS);
        _tile_loadd(3, b, 4 * COLS);
        _tile_dpbssd(0, 2, 3);
        _tile_loadd(4, b + 4 * HALF, 4 * COLS);
        _tile_dpbssd(1, 2, 4);
    }
    _tile_stored(0, c, bytes);
    _tile_stored(1, c + HALF, bytes);
}

const Micro8 micro8_amx = {.name = "amx",
                           .rows = ROWS,
                           .left_group = INPUTS,
                           .tile = {COLS, 4, 64, false},
                           .tile4 = {COLS, 4, 64, false},
                           .run = run_amx,
                           .begin = begin_amx,
                           .end = end_amx,
                           .few = &micro8_vnni};

#endif
