/* The draws of base/rng.h for a run of consecutive indices: one block of four draws per vector lane, the
 * same bits as rng_block. Only the 32 x 32 -> 64 bit product differs between instruction sets. */
#ifndef WEFT_KERNELS_CPU_PHILOX_H
#define WEFT_KERNELS_CPU_PHILOX_H

#include <string.h>

#include "base/rng.h"
#include "kernels/cpu/vec.h"

/* Elements made at a time; buffers for philox_run hold a multiple of this and one more. */
enum { PHILOX_STEP = 4 * VEC };

typedef struct PhiloxLanes {
    VecU c0, c1, c2, c3;
} PhiloxLanes;

static inline PhiloxLanes philox_rounds(PhiloxLanes lanes, uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; round++) {
        VecU high0, high1;
        VecU low0 = vec_mul_wide(lanes.c0, 0xD2511F53u, &high0);
        VecU low1 = vec_mul_wide(lanes.c2, 0xCD9E8D57u, &high1);
        lanes = (PhiloxLanes){high1 ^ lanes.c1 ^ k0, low1, high0 ^ lanes.c3 ^ k1, low0};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return lanes;
}

/* The draws of blocks block .. block + VEC - 1, in order of element. */
static inline void philox_step(RngKey key, uint64_t block, uint32_t out[PHILOX_STEP]) {
    uint32_t low[VEC], high[VEC];
    for (int lane = 0; lane < VEC; lane++) {
        low[lane] = (uint32_t)(block + (uint64_t)lane);
        high[lane] = (uint32_t)((block + (uint64_t)lane) >> 32);
    }
    PhiloxLanes lanes = {vec_load_u32(low), vec_load_u32(high), vec_set_u32((uint32_t)key.step),
                         vec_set_u32((uint32_t)(key.step >> 32))};
    lanes = philox_rounds(lanes, (uint32_t)key.key, (uint32_t)(key.key >> 32));
    vec_store_interleaved(out, lanes.c0, lanes.c1, lanes.c2, lanes.c3);
}

/* Draws of elements first .. first + count - 1. `buffer` holds count + 2 * PHILOX_STEP; the result is
 * where in it the first one lies. */
static inline const uint32_t *philox_run(RngKey key, uint64_t first, int64_t count, uint32_t *buffer) {
    uint64_t block = first / 4;
    int64_t skip = (int64_t)(first % 4);
    for (int64_t made = 0; made < skip + count; made += PHILOX_STEP, block += VEC)
        philox_step(key, block, buffer + made);
    return buffer + skip;
}

#endif
