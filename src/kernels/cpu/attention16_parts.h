/* What forward and backward of attention16.h share: packing, masks, exponentials and dropout. */
#ifndef WEFT_KERNELS_CPU_ATTENTION16_PARTS_H
#define WEFT_KERNELS_CPU_ATTENTION16_PARTS_H

#include <math.h>

#include "kernels/cpu/approx.h"
#include "kernels/cpu/attention16.h"
#include "kernels/cpu/pack16_pairs.h"

/* Lanes of a row of SIDE queries. */
typedef struct Lanes {
    VecF low, high;
} Lanes;

typedef struct LanesI {
    VecI low, high;
} LanesI;

static inline uint16_t *rows_at(Rows rows, int64_t row) {
    return (uint16_t *)rows.in.data + rows.at + row * rows.stride;
}

/* Row `row`, 32 steps from d; 0 past the last row. */
static inline __m512i steps_of(Rows rows, int64_t count, int64_t row, int64_t d) {
    return row < count ? _mm512_loadu_si512(rows_at(rows, row) + d) : _mm512_setzero_si512();
}

/* Rows to prefetch, one range after the other: they are a token apart, which the CPU does not predict.
 * AHEAD_ROWS are prefetched before the first is used. Ranges that do not fit are left out. */
enum { AHEAD_RANGES = 12, AHEAD_ROWS = SIDE };
typedef struct Ahead {
    struct {
        const uint16_t *at;
        int64_t stride, count;
        bool write;
    } ranges[AHEAD_RANGES];
    int64_t D;
    int first, end; /* of the ranges that are left */
} Ahead;

static inline void ahead_add(Ahead *ahead, Rows rows, int64_t from, int64_t to, bool write) {
    if (ahead->first == ahead->end) ahead->first = ahead->end = 0;
    if (from >= to || ahead->end == AHEAD_RANGES) return;
    ahead->D = rows.D;
    ahead->ranges[ahead->end].at = rows_at(rows, from);
    ahead->ranges[ahead->end].stride = rows.stride;
    ahead->ranges[ahead->end].count = to - from;
    ahead->ranges[ahead->end++].write = write;
}

/* Prefetches the next rows. */
static inline void ahead_run(Ahead *ahead, int64_t rows) {
    for (; rows > 0 && ahead->first < ahead->end; rows--) {
        const uint16_t *at = ahead->ranges[ahead->first].at;
        if (ahead->ranges[ahead->first].write)
            for (int64_t d = 0; d < ahead->D; d += SIDE) __builtin_prefetch(at + d, 1, 3);
        else
            for (int64_t d = 0; d < ahead->D; d += SIDE) __builtin_prefetch(at + d, 0, 3);
        ahead->ranges[ahead->first].at += ahead->ranges[ahead->first].stride;
        if (--ahead->ranges[ahead->first].count == 0) ahead->first++;
    }
}

/* Rows [0, count), then 0 up to a multiple of SIDE: blocks of SIDE rows, each D / SIDE times (SIDE, SIDE). */
static inline void pack_rows(uint16_t *to, Rows rows, int64_t count, Ahead *ahead) {
    for (int64_t row = 0; row < round_up(count, SIDE); row++, ahead_run(ahead, 1))
        for (int64_t d = 0; d < rows.D; d += SIDE)
            _mm512_storeu_si512(to + row / SIDE * SIDE * rows.D + d * SIDE + row % SIDE * SIDE,
                                steps_of(rows, count, row, d));
}

/* A panel with SIDE rows as columns and D steps. */
static inline void pack_columns(uint16_t *panel, Rows rows, int64_t count) {
    for (int64_t d = 0; d < rows.D; d += SIDE)
        for (int64_t first = 0; first < SIDE; first += 16) {
            __m512i r[16];
            for (int i = 0; i < 16; i++) r[i] = steps_of(rows, count, first + i, d);
            pack16_transpose(r);
            for (int i = 0; i < 16; i++) _mm512_storeu_si512(panel + (d + first + i) * SIDE, r[i]);
        }
}

/* All rows as panels of SIDE columns. */
static inline void pack_columns_all(uint16_t *panels, Rows rows, int64_t count, Ahead *ahead) {
    for (int64_t row = 0; row < count; row += SIDE, ahead_run(ahead, SIDE))
        pack_columns(panels + row * rows.D, rows_from(rows, row), count - row);
}

/* Element i of both, alternating: those of [0, 16) and those of [16, 32). */
static inline __m512i interleave_low(__m512i even, __m512i odd) {
    const __m512i order = _mm512_set_epi32(
        0x002f000f, 0x002e000e, 0x002d000d, 0x002c000c, 0x002b000b, 0x002a000a, 0x00290009, 0x00280008,
        0x00270007, 0x00260006, 0x00250005, 0x00240004, 0x00230003, 0x00220002, 0x00210001, 0x00200000);
    return _mm512_permutex2var_epi16(even, order, odd);
}
static inline __m512i interleave_high(__m512i even, __m512i odd) {
    const __m512i order = _mm512_set_epi32(
        0x003f001f, 0x003e001e, 0x003d001d, 0x003c001c, 0x003b001b, 0x003a001a, 0x00390019, 0x00380018,
        0x00370017, 0x00360016, 0x00350015, 0x00340014, 0x00330013, 0x00320012, 0x00310011, 0x00300010);
    return _mm512_permutex2var_epi16(even, order, odd);
}

/* Where steps `step`, which is even, and step + 1 of a panel are; the other half of the columns is TILE
 * further. */
static inline uint16_t *pair_at(uint16_t *panel, int64_t step) {
    return panel + step / SIDE * SIDE * SIDE + step % SIDE / 2 * SIDE;
}

/* Panels with SIDE of the D dims as columns and a step per row, panel_stride apart. */
static inline void pack_steps(uint16_t *panels, Rows rows, int64_t count, int64_t panel_stride) {
    for (int64_t row = 0; row < round_up(count, SIDE); row += 2)
        for (int64_t d = 0; d < rows.D; d += SIDE) {
            __m512i even = steps_of(rows, count, row, d), odd = steps_of(rows, count, row + 1, d);
            uint16_t *to = pair_at(panels + d / SIDE * panel_stride, row);
            _mm512_storeu_si512(to, interleave_low(even, odd));
            _mm512_storeu_si512(to + TILE, interleave_high(even, odd));
        }
}

/* The left operand with a row per dim and a step per row: blocks of SIDE rows, (D, SIDE) each. */
static inline void pack_transposed(uint16_t *blocks, Rows rows, int64_t count, Ahead *ahead) {
    for (int64_t row = 0; row < count; row += SIDE, blocks += rows.D * SIDE)
        for (int64_t d = 0; d < rows.D; d += SIDE) {
            __m512i low[16], high[16];
            if (d == 0) ahead_run(ahead, SIDE);
            for (int i = 0; i < 16; i++) {
                __m512i even = steps_of(rows, count, row + 2 * i, d);
                __m512i odd = steps_of(rows, count, row + 2 * i + 1, d);
                low[i] = interleave_low(even, odd), high[i] = interleave_high(even, odd);
            }
            pack16_transpose(low);
            pack16_transpose(high);
            for (int i = 0; i < 16; i++) {
                _mm512_storeu_si512(blocks + (d + i) * SIDE, low[i]);
                _mm512_storeu_si512(blocks + (d + 16 + i) * SIDE, high[i]);
            }
        }
}

static inline void store_bf16(uint16_t *to, VecF v) {
    _mm256_storeu_si256((__m256i *)(void *)to, (__m256i)_mm512_cvtneps_pbh((__m512)v));
}

/* The first `count` rows, at most SIDE, = the transpose of from (D, SIDE), each column times its factor.
 * `unpacked`: the columns are in the order of unpack_low and unpack_high. */
static ALWAYS_INLINE void unpack_transposed(Rows rows, const float *from, int64_t count, Lanes factor,
                                            bool unpacked) {
    for (int64_t d = 0; d < rows.D; d += 16)
        for (int64_t first = 0; first < SIDE; first += 16) {
            __m512i r[16];
            for (int i = 0; i < 16; i++)
                r[i] =
                    (__m512i)(vec_load(from + (d + i) * SIDE + first) * (first ? factor.high : factor.low));
            pack16_transpose(r);
            for (int64_t i = 0; i < 16; i++) {
                int64_t row = unpacked ? i / 4 * 8 + i % 4 + first / 4 : first + i;
                if (row < count) store_bf16(rows_at(rows, row) + d, (VecF)r[i]);
            }
        }
}

/* 2^t: 0 below 2^-126, NaN for NaN. The polynomial, a minimax fit with a relative error of 8e-8, is that of t
 * minus the integer below it. */
static inline VecF exp2_of(VecF t) {
    VecF r = (VecF)_mm512_reduce_ps((__m512)t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC), r2 = r * r;
    VecF low = 0.693151295f * r + 1.0f, middle = 0.0557999127f * r + 0.240164444f;
    VecF high = 0.00186713005f * r + 0.00901703071f;
    VecF e = (high * r2 + middle) * r2 + low;
    __mmask16 normal = _mm512_cmp_ps_mask((__m512)t, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    return (VecF)_mm512_maskz_scalef_ps(normal, (__m512)e, (__m512)t);
}

/* The keys [first, end) that each of SIDE queries sees. */
typedef struct Sight {
    LanesI first, end;
    int64_t all_from, all_to; /* the keys that every query sees */
} Sight;

static inline LanesI lanes_same(int64_t value) {
    VecI same = (VecI)vec_set_u32((uint32_t)value);
    return (LanesI){same, same};
}

/* What the queries from q on see, of whole sequences; those past the last of `queries` see what that one
 * sees. Lanes are not stored one by one unless they have to be: loading them as a vector would wait until all
 * stores before are in the cache. */
static inline Sight sight_of(const Mask *mask, int64_t q, int64_t queries) {
    int64_t keys = mask->keys;
    Sight sight = {lanes_same(0), lanes_same(keys), 0, keys};
    if (mask->causal) {
        VecI count = vec_count(0), last = (VecI)vec_set_u32((uint32_t)(queries - 1));
        VecI all = (VecI)vec_set_u32((uint32_t)keys), base = (VecI)vec_set_u32((uint32_t)q + 1);
        VecI low = (VecI)_mm512_min_epi32((__m512i)count, (__m512i)last) + base;
        VecI high = (VecI)_mm512_min_epi32((__m512i)(count + VEC), (__m512i)last) + base;
        sight.end.low = (VecI)_mm512_min_epi32((__m512i)low, (__m512i)all);
        sight.end.high = (VecI)_mm512_min_epi32((__m512i)high, (__m512i)all);
        sight.all_to = min_of(keys, q + 1);
    }
    if (mask->window || mask->starts) {
        int32_t first[SIDE];
        for (int64_t i = 0; i < SIDE; i++) first[i] = (int32_t)mask_first(mask, q + min_of(i, queries - 1));
        memcpy(&sight.first, first, sizeof first);
        sight.all_from = first[SIDE - 1];
    }
    return sight;
}

/* Sets the scores of keys that a query does not see to -infinity. `scores` has the rows of keys [from, to).
 */
static inline void hide(float *scores, const Sight *sight, int64_t from, int64_t to) {
    for (int64_t k = from; k < to; k++) {
        if (k >= sight->all_from && k < sight->all_to) k = min_of(to, sight->all_to);
        if (k == to) return;
        float *at = scores + (k - from) * SIDE;
        VecI low = (sight->first.low > (int32_t)k) | (sight->end.low <= (int32_t)k);
        VecI high = (sight->first.high > (int32_t)k) | (sight->end.high <= (int32_t)k);
        vec_store(at, vec_select(low, vec_set(-INFINITY), vec_load(at)));
        vec_store(at + VEC, vec_select(high, vec_set(-INFINITY), vec_load(at + VEC)));
    }
}

/* Dropout words of SIDE queries, from query q on, and the DROPOUT_GROUP keys around key k. */
typedef struct Kept {
    VecU word[4][2];
} Kept;

static inline void kept_draw(Kept *kept, const Dropout *dropout, int64_t b, int64_t h, int64_t q, int64_t k) {
    uint32_t stride = (uint32_t)(4 * dropout_groups(dropout)), threshold = dropout_threshold(dropout->p);
    VecU offset = (VecU)vec_count(0) * stride;
    for (int t = 0; t < 4; t++)
        for (int half = 0; half < 2; half++) {
            uint64_t word = dropout_word(dropout, b, h, q + half * VEC, k / 8 * 8 + 2 * t);
            kept->word[t][half] = philox_kept(dropout->key, word, offset, threshold);
        }
}

/* Keys of the loops over weights: those of a query's four words. */
enum { KEPT_KEYS = 8 };

/* The bits of keys k, a multiple of KEPT_KEYS, and k + 1; the same as those of the next pairs. */
typedef struct KeptBits {
    __m512i of[2];
} KeptBits;

static inline KeptBits kept_bits(int64_t k) {
    return (KeptBits){
        {_mm512_set1_epi32((int)(1u << dropout_bit(k))), _mm512_set1_epi32((int)(1u << dropout_bit(k + 1)))}};
}

/* The lanes that keep key i of KEPT_KEYS. */
static inline __mmask16 kept_lanes(const Kept *kept, KeptBits bits, int i, int half) {
    return _mm512_test_epi32_mask((__m512i)kept->word[i / 2][half], bits.of[i % 2]);
}

/* Two rows of SIDE lanes as bf16: low lanes first. */
static inline __m512i to_bf16(VecF low, VecF high) {
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}

/* Element i of two such rows, alternating: i = 0 to 3, 8 to 11, 16 to 19 and 24 to 27; and the others. These
 * take less than half the time of interleave_low and interleave_high. */
static inline __m512i unpack_low(__m512i even, __m512i odd) {
    return _mm512_unpacklo_epi16(even, odd);
}
static inline __m512i unpack_high(__m512i even, __m512i odd) {
    return _mm512_unpackhi_epi16(even, odd);
}

/* A pair of steps of 16 columns, as bf16; lanes that are not kept become 0. Rounds ties up, which takes fewer
 * instructions than rounding them to even. */
static inline __m512i pair_of_kept(VecF even, VecF odd, __mmask16 even_kept, __mmask16 odd_kept) {
    const __m512i half = _mm512_set1_epi32(0x8000);
    __m512i low = _mm512_srli_epi32(_mm512_maskz_add_epi32(even_kept, (__m512i)even, half), 16);
    return _mm512_mask_blend_epi16(0xaaaaaaaau, low, _mm512_maskz_add_epi32(odd_kept, (__m512i)odd, half));
}

#endif
