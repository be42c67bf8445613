/* The 16-bit draws of base/rng.h, equal to rng_u16: one block of eight draws per vector lane. Several vectors
 * of blocks go through the rounds together to hide the latency of the multiplications. */
#ifndef WEFT_KERNELS_CPU_PHILOX_H
#define WEFT_KERNELS_CPU_PHILOX_H

#include "base/rng.h"
#include "kernels/cpu/vec.h"

/* A draw in the words of its block, which are little-endian. */
typedef uint16_t __attribute__((may_alias)) Draw;

/* Draws and words of a vector of blocks. */
enum { PHILOX_DRAWS = 8 * VEC, PHILOX_WORDS = 4 * VEC };
/* Words of a buffer for `count` draws. */
#define PHILOX_BUFFER(count) ((count) / 2 + 3 * PHILOX_WORDS)

/* Factors, and what is added to the key after each round. */
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

typedef struct PhiloxLanes {
    VecU c0, c1, c2, c3;
} PhiloxLanes;

static inline PhiloxLanes philox_round(PhiloxLanes lanes, VecU k0, VecU k1) {
    VecU high0, high1;
    VecU low0 = vec_mul_wide(lanes.c0, PHILOX_M0, &high0);
    VecU low1 = vec_mul_wide(lanes.c2, PHILOX_M1, &high1);
    return (PhiloxLanes){high1 ^ lanes.c1 ^ k0, low1, high0 ^ lanes.c3 ^ k1, low0};
}

/* The blocks first + offset after PHILOX_START rounds; `last` is the largest offset. All words but one are
 * the same in all lanes at first, so two of the four multiplications are of scalars. */
enum { PHILOX_START = 2 };
static inline PhiloxLanes philox_start(RngKey key, uint64_t first, VecU offset, uint32_t last) {
    uint32_t k0 = (uint32_t)key.key, k1 = (uint32_t)(key.key >> 32), upper = (uint32_t)(first >> 32);
    uint64_t product = (uint64_t)PHILOX_M1 * (uint32_t)key.step;
    uint32_t c0 = (uint32_t)(product >> 32) ^ upper ^ k0, c1 = (uint32_t)product;
    VecU low = vec_set_u32((uint32_t)first) + offset, high0, high1;
    VecU low0 = vec_mul_wide(low, PHILOX_M0, &high0);
    VecU low1 = vec_mul_wide(high0 ^ ((uint32_t)(key.step >> 32) ^ k1), PHILOX_M1, &high1);
    product = (uint64_t)PHILOX_M0 * c0;
    VecU c2 = vec_set_u32((uint32_t)(product >> 32)), c3 = vec_set_u32((uint32_t)product);
    if ((uint32_t)first > UINT32_MAX - last) { /* lanes whose upper word is one more */
        VecU carry = (VecU)(low < (uint32_t)first);
        product = (uint64_t)PHILOX_M0 * (c0 ^ upper ^ (upper + 1));
        c2 = (~carry & c2) | (carry & (uint32_t)(product >> 32));
        c3 = (~carry & c3) | (carry & (uint32_t)product);
    }
    return (PhiloxLanes){high1 ^ (c1 ^ (k0 + PHILOX_W0)), low1, low0 ^ (k1 + PHILOX_W1) ^ c2, c3};
}

/* The remaining rounds of `count` vectors of blocks, a constant at the call sites. */
static inline __attribute__((always_inline)) void philox_rounds(RngKey key, PhiloxLanes *lanes, int count) {
    VecU k0 = vec_set_u32((uint32_t)key.key + PHILOX_START * PHILOX_W0);
    VecU k1 = vec_set_u32((uint32_t)(key.key >> 32) + PHILOX_START * PHILOX_W1);
#pragma GCC unroll 7
    for (int round = PHILOX_START; round < RNG_ROUNDS_DROPOUT; round++) {
#pragma GCC unroll 3
        for (int i = 0; i < count; i++) lanes[i] = philox_round(lanes[i], k0, k1);
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
}

/* Masks of attention weights, equal to rng_kept: those of words `word` + offset. Offsets are below 2^31, and
 * that of the last lane is the largest. */
static inline VecU philox_kept(RngKey key, uint64_t word, VecU offset, uint32_t threshold) {
    uint32_t last = 2 * offset[VEC - 1] + 1;
    PhiloxLanes lanes[2] = {philox_start(key, 2 * word, 2 * offset, last),
                            philox_start(key, 2 * word, 2 * offset + 1, last)};
    philox_rounds(key, lanes, 2);
    VecU draw[8] = {lanes[0].c0, lanes[0].c1, lanes[0].c2, lanes[0].c3,
                    lanes[1].c0, lanes[1].c1, lanes[1].c2, lanes[1].c3};
    VecU kept = (VecU)((draw[0] ^ draw[1] << 8) >> 24 >= (threshold & 0xff));
#pragma GCC unroll 8
    for (int i = 7; i >= 0; i--) kept = threshold >> (15 - i) & 1 ? kept & draw[i] : kept | draw[i];
    return kept;
}

/* The draws of `count` vectors of consecutive blocks, in order. */
static inline __attribute__((always_inline)) void philox_blocks(RngKey key, uint64_t block, int count,
                                                                uint32_t *out) {
    PhiloxLanes lanes[2];
    for (int i = 0; i < count; i++)
        lanes[i] = philox_start(key, block + (uint64_t)(i * VEC), vec_blocks(), VEC - 1);
    philox_rounds(key, lanes, count);
    for (int i = 0; i < count; i++)
        vec_store_blocks(out + i * PHILOX_WORDS, lanes[i].c0, lanes[i].c1, lanes[i].c2, lanes[i].c3);
}

/* Draws first .. first + count - 1. `buffer` has PHILOX_BUFFER(count) words; returns a pointer into it. */
static inline const Draw *philox_run(RngKey key, uint64_t first, int64_t count, uint32_t *buffer) {
    uint64_t block = first / 8;
    int64_t skip = (int64_t)(first % 8), made = 0;
    for (; made + PHILOX_DRAWS < skip + count; made += 2 * PHILOX_DRAWS, block += 2 * VEC)
        philox_blocks(key, block, 2, buffer + made / 2);
    if (made < skip + count) philox_blocks(key, block, 1, buffer + made / 2);
    return (const Draw *)buffer + skip;
}

#endif
