/* AMX tiles of 16 rows of 64 bytes, for files compiled for AMX. A product of 32 x 32 elements has tiles 0 to
 * 3 as accumulators, upper left, upper right, lower left and lower right, tiles 4 and 5 for the upper and
 * lower left rows, and 6 and 7 for the right columns. */
#ifndef WEFT_KERNELS_CPU_TILES_H
#define WEFT_KERNELS_CPU_TILES_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

/* The operand of LDTILECFG: the shape of each tile. */
typedef struct TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileConfig;

/* Called by each thread before its first tile and after its last. The configuration is static, because the
 * compiler believes that the instruction reads only the first bytes. */
static inline void tiles_begin(void) {
    static const TileConfig full = {.palette = 1,
                                    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                    .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&full);
}
static inline void tiles_end(void) {
    _tile_release();
}

static inline void tiles_zero(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* The accumulators, from and to 32 rows of 32-bit elements that are `stride` elements apart. */
static inline void tiles_load(const void *from, int64_t stride) {
    const char *c = from, *lower = c + 64 * stride;
    _tile_loadd(0, c, 4 * stride);
    _tile_loadd(1, c + 64, 4 * stride);
    _tile_loadd(2, lower, 4 * stride);
    _tile_loadd(3, lower + 64, 4 * stride);
}
static inline void tiles_store(void *to, int64_t stride) {
    char *c = to, *lower = c + 64 * stride;
    _tile_stored(0, c, 4 * stride);
    _tile_stored(1, c + 64, 4 * stride);
    _tile_stored(2, lower, 4 * stride);
    _tile_stored(3, lower + 64, 4 * stride);
}

/* c (32,32) [+]= the bf16 product over `depth` steps, 32 at a time. The left operand has the steps of a row
 * side by side, rows a_row elements apart, and the next steps a_block further. The right operand has 16 pairs
 * of steps, b_row elements apart, the right columns b_right further, and the next steps after 32 * 32. */
static inline void tiles_product(int64_t depth, const uint16_t *a, int64_t a_row, int64_t a_block,
                                 const uint16_t *b, int64_t b_row, int64_t b_right, float *c,
                                 int64_t c_stride, bool add) {
    if (add)
        tiles_load(c, c_stride);
    else
        tiles_zero();
    for (int64_t k = 0; k < depth; k += 32, a += a_block, b += 32 * 32) {
        _tile_loadd(4, a, 2 * a_row);
        _tile_loadd(6, b, 2 * b_row);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + b_right, 2 * b_row);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + 16 * a_row, 2 * a_row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    tiles_store(c, c_stride);
}

#endif
