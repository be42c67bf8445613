/* TDPBSSD: a tile of 32 rows x 32 columns as 2 x 2 AMX tiles of 16 x 16 accumulators; see micro8.h. The
 * instruction processes 64 inputs. Its left operand has the 64 inputs of a row side by side, so left panels
 * have groups of 64. Its right operand has groups of 4 inputs, which is also the panel format of VPDPBUSD.
 * Both micro-kernels can thus use the same packed weights, and this one leaves few rows to the other.
 *
 * int4 weights times their steps have up to 11 bits. Panels are unpacked, once for all rows of a block, to
 * the low bytes of the products, which are unsigned, and to the high bytes. Each is multiplied on its own,
 * and the sums of the high bytes count 256 times. */
#if defined(__x86_64__)

#include <immintrin.h>

#include "kernels/cpu/micro8.h"
#include "kernels/cpu/tiles.h"

enum { ROWS = 32, COLS = 32, INPUTS = 64, HALF = 16, TILE_BYTES = 1024 };
enum { SLICE = COLS * (INT4_GROUP / 2 + 1) };

/* Up to HALF rows. Tiles 0 and 1 are the accumulators, 4 the rows, 6 and 7 the columns. All rows are stored,
 * even if fewer exist: c has room for them. */
static void run_upper(int64_t depth, const int8_t *a, const int8_t *b, int32_t *c, int64_t bytes) {
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t k = 0; k < depth; k += INPUTS, a += ROWS * INPUTS, b += COLS * INPUTS) {
        _tile_loadd(4, a, INPUTS);
        _tile_loadd(6, b, 4 * COLS);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(7, b + 4 * HALF, 4 * COLS);
        _tile_dpbssd(1, 4, 7);
    }
    _tile_stored(0, c, bytes);
    _tile_stored(1, c + HALF, bytes);
}

static void run_amx(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c, int64_t c_stride) {
    if (rows <= HALF) {
        run_upper(depth, a, b, c, c_stride * (int64_t)sizeof *c);
        return;
    }
    tiles_zero();
    for (int64_t k = 0; k < depth; k += INPUTS, a += ROWS * INPUTS, b += COLS * INPUTS) {
        _tile_loadd(4, a, INPUTS);
        _tile_loadd(6, b, 4 * COLS);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(7, b + 4 * HALF, 4 * COLS);
        _tile_dpbssd(1, 4, 7);
        _tile_loadd(5, a + HALF * INPUTS, INPUTS);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    tiles_store(c, c_stride);
}

/* ---- int4 weights ---- */

/* The steps of 16 columns, times 16, for both pairs of a group's inputs. */
static inline __m512i load_steps(const int8_t *from) {
    const __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from));
    const __m512i low = _mm512_and_si512(wide, _mm512_set1_epi32(0xffff));
    return _mm512_slli_epi16(_mm512_or_si512(low, _mm512_slli_epi32(wide, 16)), 4);
}

/* Stores the low and the high bytes of weights times steps. `even` and `odd` have the weights of even and of
 * odd inputs, times 4096. */
static inline void store_bytes(int8_t *to, __m512i even, __m512i odd, __m512i steps) {
    enum { OR_AND = 0xf8 }; /* VPTERNLOG: a | (b & c) */
    const __m512i first = _mm512_mulhi_epi16(even, steps), second = _mm512_mulhi_epi16(odd, steps);
    const __m512i low =
        _mm512_ternarylogic_epi32(_mm512_slli_epi16(second, 8), first, _mm512_set1_epi16(0xff), OR_AND);
    const __m512i high = _mm512_ternarylogic_epi32(_mm512_srli_epi16(first, 8), second,
                                                   _mm512_set1_epi16((short)0xff00), OR_AND);
    _mm512_storeu_si512(to, low);
    _mm512_storeu_si512(to + TILE_BYTES, high);
}

/* Per 64 inputs: low and high bytes of the left columns, then of the right ones, a tile each. */
static void unpack_amx(int64_t depth, const int8_t *panel, int8_t *to) {
    const __m512i top = _mm512_set1_epi16((short)0xf000);
    for (int64_t k = 0; k < depth; k += INT4_GROUP, panel += SLICE) {
        const __m512i left = load_steps(panel + COLS * INT4_GROUP / 2);
        const __m512i right = load_steps(panel + COLS * INT4_GROUP / 2 + HALF);
        int8_t *row = to + k / INPUTS * 4 * TILE_BYTES + k % INPUTS * HALF;
        for (int g = 0; g < INT4_GROUP / 4; g++, row += 4 * HALF) {
            const __m512i both = _mm512_loadu_si512(panel + 64 * g);
            store_bytes(row, _mm512_slli_epi16(both, 12), _mm512_and_si512(_mm512_slli_epi16(both, 4), top),
                        left);
            store_bytes(row + 2 * TILE_BYTES, _mm512_and_si512(_mm512_slli_epi16(both, 8), top),
                        _mm512_and_si512(both, top), right);
        }
    }
}

/* c = low + 256 high, for HALF rows. */
static void combine(int32_t *c, int64_t c_stride, const int32_t *low, const int32_t *high) {
    for (int i = 0; i < HALF; i++) {
        const __m512i upper = _mm512_slli_epi32(_mm512_loadu_si512(high + i * HALF), 8);
        _mm512_storeu_si512(c + i * c_stride, _mm512_add_epi32(upper, _mm512_loadu_si512(low + i * HALF)));
    }
}

/* Tiles 0 and 1 are the accumulators of low and high bytes for the upper rows, 2 and 3 those for the lower
 * rows, 4 and 5 the rows, 6 and 7 the low and high bytes of the columns. */
static void run4_half(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                      int64_t c_stride) {
    int32_t sums[4][HALF * HALF] __attribute__((aligned(64)));
    tiles_zero();
    for (int64_t k = 0; k < depth; k += INPUTS, a += ROWS * INPUTS, b += 4 * TILE_BYTES) {
        _tile_loadd(4, a, INPUTS);
        _tile_loadd(6, b, 4 * HALF);
        _tile_dpbsud(0, 4, 6);
        _tile_loadd(7, b + TILE_BYTES, 4 * HALF);
        _tile_dpbssd(1, 4, 7);
        if (rows <= HALF) continue;
        _tile_loadd(5, a + HALF * INPUTS, INPUTS);
        _tile_dpbsud(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, sums[0], 4 * HALF);
    _tile_stored(1, sums[1], 4 * HALF);
    _tile_stored(2, sums[2], 4 * HALF);
    _tile_stored(3, sums[3], 4 * HALF);
    combine(c, c_stride, sums[0], sums[1]);
    if (rows > HALF) combine(c + HALF * c_stride, c_stride, sums[2], sums[3]);
}

static void run4_amx(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                     int64_t c_stride) {
    run4_half(depth, rows, a, b, c, c_stride);
    run4_half(depth, rows, a, b + 2 * TILE_BYTES, c + HALF, c_stride);
}

const Micro8 micro8_amx = {.name = "amx",
                           .rows = ROWS,
                           .left_group = INPUTS,
                           .tile = {COLS, 4, 64, false},
                           .tile4 = {COLS, 4, 64, false},
                           .run = run_amx,
                           .unpack4 = unpack_amx,
                           .run4_unpacked = run4_amx,
                           .unpacked_bytes = 2 * COLS,
                           .begin = tiles_begin,
                           .end = tiles_end,
                           .few = &micro8_vnni};

#endif
