/* VDPBF16PS: a tile of 8 rows x 48 columns in 24 registers; see micro16.h. A group is a pair of steps; the
 * instruction adds both products to the accumulators of 16 columns. Compiled for AVX-512 BF16 and without
 * pre-RA instruction scheduling, which hoists loads so far that accumulators spill. */
#if defined(__x86_64__)

#include "kernels/cpu/pack16_pairs.h"

enum { ROWS = 8, COLS = 48, GROUP = 2 };

#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define START(i)    __m512 s##i##0 = _mm512_setzero_ps(), s##i##1 = s##i##0, s##i##2 = s##i##0;
#define STEP(i)                                                                                              \
    {                                                                                                        \
        const __m512bh left = pair_of(a + GROUP * (i));                                                      \
        s##i##0 = _mm512_dpbf16_ps(s##i##0, left, b0);                                                       \
        s##i##1 = _mm512_dpbf16_ps(s##i##1, left, b1);                                                       \
        s##i##2 = _mm512_dpbf16_ps(s##i##2, left, b2);                                                       \
    }
#define STORE(i)                                                                                             \
    store_row(c + (i)*c_stride, s##i##0, add);                                                               \
    store_row(c + (i)*c_stride + 16, s##i##1, add);                                                          \
    store_row(c + (i)*c_stride + 32, s##i##2, add);

/* Broadcasts a pair of steps of a row to all columns. */
static inline __m512bh pair_of(const uint16_t *from) {
    int pair;
    memcpy(&pair, from, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

static inline __m512bh columns_of(const uint16_t *from) {
    return (__m512bh)_mm512_loadu_si512(from);
}

static inline void store_row(float *c, __m512 sum, bool add) {
    _mm512_storeu_ps(c, add ? _mm512_add_ps(sum, _mm512_loadu_ps(c)) : sum);
}

static void tile_dot(int64_t depth, const void *left_panel, const void *right_panel, float *c,
                     int64_t c_stride, bool add) {
    const uint16_t *a = left_panel, *b = right_panel;
    EACH_ROW(START)
    for (int i = 0; i < ROWS; i++) __builtin_prefetch(c + i * c_stride, 1);
    for (int64_t k = 0; k < depth; k += GROUP) {
        const __m512bh b0 = columns_of(b), b1 = columns_of(b + 32), b2 = columns_of(b + 64);
        EACH_ROW(STEP)
        a += ROWS * GROUP;
        b += COLS * GROUP;
    }
    EACH_ROW(STORE)
}

static void pack_dot(void *panels, bool left, PackSource source, int64_t panel_stride) {
    if (left)
        pairs_pack(panels, ROWS, GROUP, source, panel_stride);
    else
        pairs_pack(panels, COLS, GROUP, source, panel_stride);
}

const Micro micro16_dot = {
    .name = "avx512-bf16",
    .dtype = DT_BF16,
    .size = sizeof(uint16_t),
    .rows = ROWS,
    .cols = COLS,
    .unit = GROUP,
    .depth = 256,
    .tile = tile_dot,
    .pack = pack_dot,
};

#endif
