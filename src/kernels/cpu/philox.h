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

typedef struct PhiloxLanes {
    VecU c0, c1, c2, c3;
} PhiloxLanes;

static inline PhiloxLanes philox_round(PhiloxLanes lanes, VecU k0, VecU k1) {
    VecU high0, high1;
    VecU low0 = vec_mul_wide(lanes.c0, 0xD2511F53u, &high0);
    VecU low1 = vec_mul_wide(lanes.c2, 0xCD9E8D57u, &high1);
    return (PhiloxLanes){high1 ^ lanes.c1 ^ k0, low1, high0 ^ lanes.c3 ^ k1, low0};
}

/* The counters of consecutive blocks. */
static inline PhiloxLanes philox_start(RngKey key, uint64_t block) {
    VecU low = vec_set_u32((uint32_t)block) + (VecU)vec_count(0);
    VecU carry = (VecU)(low < vec_set_u32((uint32_t)block));
    return (PhiloxLanes){low, vec_set_u32((uint32_t)(block >> 32)) - carry, vec_set_u32((uint32_t)key.step),
                         vec_set_u32((uint32_t)(key.step >> 32))};
}

/* Turns counters into draws. `count` is a constant at the call sites. */
static inline __attribute__((always_inline)) void philox_rounds(RngKey key, PhiloxLanes *lanes, int count) {
    VecU k0 = vec_set_u32((uint32_t)key.key), k1 = vec_set_u32((uint32_t)(key.key >> 32));
#pragma GCC unroll 7
    for (int round = 0; round < RNG_ROUNDS_DROPOUT; round++) {
#pragma GCC unroll 3
        for (int i = 0; i < count; i++) lanes[i] = philox_round(lanes[i], k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Masks of attention weights, equal to rng_kept: those of words `word` + offset, where offsets are below
 * 2^31. */
static inline VecU philox_kept(RngKey key, uint64_t word, VecU offset, uint32_t threshold) {
    uint32_t first = (uint32_t)(2 * word);
    VecU low = vec_set_u32(first) + 2 * offset, carry = (VecU)(low < first);
    VecU high = vec_set_u32((uint32_t)(word >> 31)) - carry;
    VecU step = vec_set_u32((uint32_t)key.step), step_high = vec_set_u32((uint32_t)(key.step >> 32));
    PhiloxLanes lanes[2] = {{low, high, step, step_high}, {low + 1, high, step, step_high}};
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
    for (int i = 0; i < count; i++) lanes[i] = philox_start(key, block + (uint64_t)(i * VEC));
    philox_rounds(key, lanes, count);
    for (int i = 0; i < count; i++)
        vec_store_interleaved(out + i * PHILOX_WORDS, lanes[i].c0, lanes[i].c1, lanes[i].c2, lanes[i].c3);
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
