/* The 16-bit draws of base/rng.h for a run of consecutive indices: one block of eight draws per vector lane,
 * equal to rng_u16. Two vectors of blocks go through the rounds together to hide the latency of
 * the multiplications. */
#ifndef WEFT_KERNELS_CPU_PHILOX_H
#define WEFT_KERNELS_CPU_PHILOX_H

#include "base/rng.h"
#include "kernels/cpu/vec.h"

/* A draw in the words of its block, which are little-endian. */
typedef uint16_t __attribute__((may_alias)) Draw;

/* Draws and words generated per step. */
enum { PHILOX_GROUPS = 2, PHILOX_STEP = PHILOX_GROUPS * 8 * VEC, PHILOX_WORDS = PHILOX_STEP / 2 };
/* Words of a buffer for `count` draws. */
#define PHILOX_BUFFER(count) ((count) / 2 + 2 * PHILOX_WORDS)

typedef struct PhiloxLanes {
    VecU c0, c1, c2, c3;
} PhiloxLanes;

static inline PhiloxLanes philox_round(PhiloxLanes lanes, VecU k0, VecU k1) {
    VecU high0, high1;
    VecU low0 = vec_mul_wide(lanes.c0, 0xD2511F53u, &high0);
    VecU low1 = vec_mul_wide(lanes.c2, 0xCD9E8D57u, &high1);
    return (PhiloxLanes){high1 ^ lanes.c1 ^ k0, low1, high0 ^ lanes.c3 ^ k1, low0};
}

/* The counters of blocks block .. block + VEC - 1. */
static inline PhiloxLanes philox_start(RngKey key, uint64_t block) {
    VecU low = vec_set_u32((uint32_t)block) + (VecU)vec_count(0);
    VecU carry = (VecU)(low < vec_set_u32((uint32_t)block));
    return (PhiloxLanes){low, vec_set_u32((uint32_t)(block >> 32)) - carry, vec_set_u32((uint32_t)key.step),
                         vec_set_u32((uint32_t)(key.step >> 32))};
}

/* PHILOX_STEP draws, in order, starting with block `block`. */
static inline void philox_step(RngKey key, uint64_t block, uint32_t out[PHILOX_WORDS]) {
    PhiloxLanes first = philox_start(key, block), second = philox_start(key, block + VEC);
    VecU k0 = vec_set_u32((uint32_t)key.key), k1 = vec_set_u32((uint32_t)(key.key >> 32));
    for (int round = 0; round < RNG_ROUNDS_DROPOUT; round++) {
        first = philox_round(first, k0, k1);
        second = philox_round(second, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    vec_store_interleaved(out, first.c0, first.c1, first.c2, first.c3);
    vec_store_interleaved(out + 4 * VEC, second.c0, second.c1, second.c2, second.c3);
}

/* Draws first .. first + count - 1. `buffer` has PHILOX_BUFFER(count) words; returns a pointer into it. */
static inline const Draw *philox_run(RngKey key, uint64_t first, int64_t count, uint32_t *buffer) {
    uint64_t block = first / 8;
    int64_t skip = (int64_t)(first % 8);
    for (int64_t made = 0; made < skip + count; made += PHILOX_STEP, block += PHILOX_GROUPS * VEC)
        philox_step(key, block, buffer + made / 2);
    return (const Draw *)buffer + skip;
}

#endif
