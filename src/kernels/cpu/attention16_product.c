/* The products of attention16.h. Compiled for AMX and AVX-512 BF16. */
#if defined(__x86_64__)

#include "kernels/cpu/attention16.h"

#include <immintrin.h>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/micro16.h"

enum { ROWS = 8 };

/* Static, because the compiler believes that the instruction reads only the first bytes. */
static const TileConfig config = TILE_CONFIG_FULL;

static void begin_amx(void) {
    _tile_loadconfig(&config);
}

static void end_amx(void) {
    _tile_release();
}

/* Tiles 0 to 3 are the accumulators, 4 and 5 the upper and lower left rows, 6 and 7 the right columns. */
static void run_amx(int64_t depth, const Left16 *left, const uint16_t *panel, float *c, int64_t c_stride,
                    bool add) {
    const uint16_t *a = left->at, *b = panel;
    float *lower = c + HALF * c_stride;
    int64_t bytes = c_stride * (int64_t)sizeof *c, row = 2 * left->row;
    if (add) {
        _tile_loadd(0, c, bytes);
        _tile_loadd(1, c + HALF, bytes);
        _tile_loadd(2, lower, bytes);
        _tile_loadd(3, lower + HALF, bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < depth; k += SIDE) {
        _tile_loadd(4, a, row);
        _tile_loadd(6, b, 2 * SIDE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + TILE, 2 * SIDE);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + HALF * left->row, row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        a += left->block;
        b += SIDE * SIDE;
    }
    _tile_stored(0, c, bytes);
    _tile_stored(1, c + HALF, bytes);
    _tile_stored(2, lower, bytes);
    _tile_stored(3, lower + HALF, bytes);
}

static void nothing(void) {}

static inline __m512bh pair_of(const uint16_t *from) {
    int pair;
    memcpy(&pair, from, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

/* ROWS rows. */
static inline void rows_dot(int64_t depth, Left16 left, const uint16_t *b, float *c, int64_t c_stride,
                            bool add) {
    __m512 sum[ROWS][2];
    for (int i = 0; i < ROWS; i++)
        for (int half = 0; half < 2; half++)
            sum[i][half] = add ? _mm512_loadu_ps(c + i * c_stride + half * HALF) : _mm512_setzero_ps();
    for (int64_t k = 0; k < depth; k += SIDE, left.at += left.block, b += TILE)
        for (int s = 0; s < SIDE; s += 2, b += SIDE) {
            __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + TILE);
#pragma GCC unroll 8
            for (int i = 0; i < ROWS; i++) {
                __m512bh pair = pair_of(left.at + i * left.row + s);
                sum[i][0] = _mm512_dpbf16_ps(sum[i][0], pair, b0);
                sum[i][1] = _mm512_dpbf16_ps(sum[i][1], pair, b1);
            }
        }
    for (int i = 0; i < ROWS; i++)
        for (int half = 0; half < 2; half++) _mm512_storeu_ps(c + i * c_stride + half * HALF, sum[i][half]);
}

static void run_dot(int64_t depth, const Left16 *left, const uint16_t *panel, float *c, int64_t c_stride,
                    bool add) {
    Left16 rows = *left;
    for (int i = 0; i < SIDE; i += ROWS, rows.at += ROWS * rows.row, c += ROWS * c_stride)
        rows_dot(depth, rows, panel, c, c_stride, add);
}

static const Product16 product_amx = {begin_amx, end_amx, run_amx}, product_dot = {nothing, nothing, run_dot};

Status product16_choose(const Product16 **ret_product, Tensor qkv, const Attention *spec) {
    const Micro *micro = NULL;
    *ret_product = NULL;
    if (qkv.dtype != DT_BF16 || tensor_cols(qkv) % SIDE || !(spec->scale > 0)) return OK;
    TRY(micro16_choose(&micro));
    if (micro == &micro16_amx) *ret_product = &product_amx;
    if (micro == &micro16_dot) *ret_product = &product_dot;
    return OK;
}

#endif
