/* Counter-based random number generator: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy
 * as 1, 2, 3").
 *
 * A draw is a pure function of a key (seed and call site), a step and the *global* element index. There is no
 * state, so initial weights, dropout masks and data order do not depend on the layout of ranks and threads,
 * and backward regenerates the forward's dropout mask instead of storing it.
 */
#ifndef WEFT_BASE_RNG_H
#define WEFT_BASE_RNG_H

#include <stdint.h>

typedef struct RngKey {
    uint64_t key;  /* seed and site */
    uint64_t step; /* optimizer step, epoch, or 0 */
} RngKey;

uint64_t rng_hash(const char *text);      /* FNV-1a, 64 bit */
uint64_t rng_mix(uint64_t a, uint64_t b); /* splitmix64 of both */
RngKey rng_key(uint64_t seed, const char *site, uint64_t step);

/* Philox rounds of all draws except those of dropout, which are many: 7 is the smallest number that passes
 * the authors' statistical tests. */
enum { RNG_ROUNDS = 10, RNG_ROUNDS_DROPOUT = 7 };

static inline void rng_rounds(RngKey key, uint64_t block, int rounds, uint32_t out[4]) {
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
    uint32_t c2 = (uint32_t)key.step, c3 = (uint32_t)(key.step >> 32);
    uint32_t k0 = (uint32_t)key.key, k1 = (uint32_t)(key.key >> 32);
    for (int round = 0; round < rounds; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* One Philox block: the draws of elements 4*block .. 4*block+3. */
static inline void rng_block(RngKey key, uint64_t block, uint32_t out[4]) {
    rng_rounds(key, block, RNG_ROUNDS, out);
}

/* A draw of 16 bits, for dropout. Elements 8*block .. 8*block+7 share a block: two per word, the lower half
 * first. */
static inline uint16_t rng_u16(RngKey key, uint64_t index) {
    uint32_t draw[4];
    rng_rounds(key, index / 8, RNG_ROUNDS_DROPOUT, draw);
    return (uint16_t)(draw[index % 8 / 2] >> 16 * (index % 2));
}

/* Which of 32 elements dropout keeps, one bit each; an element is kept if its 16-bit draw is at least
 * `threshold`. Eight bits of a draw are the element's own: bit i of eight words, the highest first. They
 * almost always decide, so the lower eight are shared by all 32 elements: each draw is still uniform, and the
 * draws of two elements are independent but for one in 2^16 cases, in which both are decided by the shared
 * bits. Those are the xor of bits of two words at different positions, so they do not depend on any element's
 * own bits.
 *
 * Compared from the lowest bit to the highest: where the threshold has a 1, a 0 decides against the element,
 * and where it has a 0, a 1 decides for it. */
static inline uint32_t rng_kept(RngKey key, uint64_t word, uint32_t threshold) {
    uint32_t draw[8];
    rng_rounds(key, 2 * word, RNG_ROUNDS_DROPOUT, draw);
    rng_rounds(key, 2 * word + 1, RNG_ROUNDS_DROPOUT, draw + 4);
    uint32_t kept = (draw[0] ^ draw[1] << 8) >> 24 >= (threshold & 0xff) ? UINT32_MAX : 0;
    for (int i = 7; i >= 0; i--) kept = threshold >> (15 - i) & 1 ? kept & draw[i] : kept | draw[i];
    return kept;
}

uint32_t rng_u32(RngKey key, uint64_t index);
double rng_uniform(RngKey key, uint64_t index);                 /* [0, 1), 32 bits */
uint64_t rng_below(RngKey key, uint64_t index, uint64_t bound); /* [0, bound), bound > 0 */
float rng_normal(RngKey key, uint64_t index);                   /* mean 0, standard deviation 1 */
/* The normals of elements 4*block .. 4*block+3, in less than half the time of four rng_normal calls. */
void rng_normal_block(RngKey key, uint64_t block, float out[4]);

/* A keyed permutation of [0, n): the element at position `index` of the shuffled order. It needs no table, so
 * training can start at any position of an epoch. */
uint64_t rng_permute(RngKey key, uint64_t index, uint64_t n);

#endif
