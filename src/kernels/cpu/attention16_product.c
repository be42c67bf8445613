/* The products of attention16.h. Compiled for AMX and AVX-512 BF16. */
#if defined(__x86_64__)

#include "kernels/cpu/attention16.h"

#include <immintrin.h>

#include "kernels/cpu/micro16.h"
#include "kernels/cpu/tiles.h"

enum { ROWS = 8 };

static void run_amx(int64_t depth, const Left16 *left, const uint16_t *panel, float *c, int64_t c_stride,
                    bool add) {
    tiles_product(depth, left->at, left->row, left->block, panel, SIDE, TILE, c, c_stride, add);
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

static const Product16 product_amx = {tiles_begin, tiles_end, run_amx},
                       product_dot = {nothing, nothing, run_dot};

Status product16_choose(const Product16 **ret_product, Tensor qkv, const Attention *spec) {
    const Micro *micro = NULL;
    *ret_product = NULL;
    if (qkv.dtype != DT_BF16 || tensor_cols(qkv) % SIDE || !(spec->scale > 0) || spec->kv.data) return OK;
    TRY(micro16_choose(&micro));
    if (micro == &micro16_amx) *ret_product = &product_amx;
    if (micro == &micro16_dot) *ret_product = &product_dot;
    return OK;
}

#endif
