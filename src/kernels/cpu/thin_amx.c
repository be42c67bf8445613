/* TDPBF16PS for thin.c: its left operand has 32 inputs of 16 outputs, which are 64 bytes of 16 rows of the
 * weights, and its right operand has pairs of inputs of 16 rows of x. Compiled for AMX. */
#if defined(__x86_64__)

#include <immintrin.h>

#include "kernels/cpu/thin.h"
#include "kernels/cpu/tiles.h"

void thin_amx_begin(void) {
    tiles_begin();
}

void thin_amx_end(void) {
    tiles_end();
}

/* `columns` is a constant at the call sites. Tiles 0 to 3 are the accumulators, 4 the outputs, 5 to 7 the
 * rows of x. */
static inline __attribute__((always_inline)) void run(int64_t depth, int columns, const uint32_t *x,
                                                      int64_t width, const uint16_t *w, int64_t w_stride,
                                                      const uint16_t *next, float *y, int64_t y_stride) {
    int64_t w_bytes = 2 * w_stride, x_bytes = 4 * width, y_bytes = 4 * y_stride;
    tiles_zero();
    for (int64_t k = 0; k < depth; k += THIN_AMX_INPUTS, x += THIN_AMX_INPUTS / 2 * width) {
        for (int i = 0; i < THIN_AMX_OUTPUTS; i++) __builtin_prefetch(next + i * w_stride + k, 0, 2);
        _tile_loadd(4, w + k, w_bytes);
        _tile_loadd(5, x, x_bytes);
        _tile_dpbf16ps(0, 4, 5);
        if (columns > 1) {
            _tile_loadd(6, x + 16, x_bytes);
            _tile_dpbf16ps(1, 4, 6);
        }
        if (columns > 2) {
            _tile_loadd(7, x + 32, x_bytes);
            _tile_dpbf16ps(2, 4, 7);
        }
        if (columns > 3) {
            _tile_loadd(5, x + 48, x_bytes);
            _tile_dpbf16ps(3, 4, 5);
        }
    }
    _tile_stored(0, y, y_bytes);
    if (columns > 1) _tile_stored(1, y + 16, y_bytes);
    if (columns > 2) _tile_stored(2, y + 32, y_bytes);
    if (columns > 3) _tile_stored(3, y + 48, y_bytes);
}

void thin_amx(int64_t depth, int columns, const uint32_t *x, int64_t width, const uint16_t *w,
              int64_t w_stride, const uint16_t *next, float *y, int64_t y_stride) {
    switch (columns) {
    case 1: run(depth, 1, x, width, w, w_stride, next, y, y_stride); break;
    case 2: run(depth, 2, x, width, w, w_stride, next, y, y_stride); break;
    case 3: run(depth, 3, x, width, w, w_stride, next, y, y_stride); break;
    default: run(depth, 4, x, width, w, w_stride, next, y, y_stride);
    }
}

#endif
