#include "base/rng.h"

#include <math.h>

uint64_t rng_hash(const char *text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

static uint64_t splitmix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t rng_mix(uint64_t a, uint64_t b) {
    return splitmix(splitmix(a) ^ b);
}

RngKey rng_key(uint64_t seed, const char *site, uint64_t step) {
    return (RngKey){.key = rng_mix(seed, rng_hash(site)), .step = step};
}

uint32_t rng_u32(RngKey key, uint64_t index) {
    uint32_t draw[4];
    rng_block(key, index / 4, draw);
    return draw[index % 4];
}

double rng_uniform(RngKey key, uint64_t index) {
    return rng_u32(key, index) * 0x1p-32;
}

uint64_t rng_below(RngKey key, uint64_t index, uint64_t bound) {
    uint32_t draw[4];
    rng_block(key, index, draw);
    uint64_t wide = (uint64_t)draw[0] << 32 | draw[1];
    return (uint64_t)(((unsigned __int128)wide * bound) >> 64);
}

/* Box-Muller: two uniforms make two normals. */
static void normal_pair(const uint32_t draw[2], float out[2]) {
    double radius = sqrt(-2.0 * log((draw[0] + 1.0) * 0x1p-32));
    double angle = 6.283185307179586 * (draw[1] * 0x1p-32);
    double sine, cosine;
    sincos(angle, &sine, &cosine);
    out[0] = (float)(radius * cosine);
    out[1] = (float)(radius * sine);
}

void rng_normal_block(RngKey key, uint64_t block, float out[4]) {
    uint32_t draw[4];
    rng_block(key, block, draw);
    normal_pair(draw, out);
    normal_pair(draw + 2, out + 2);
}

float rng_normal(RngKey key, uint64_t index) {
    uint32_t draw[4];
    float pair[2];
    rng_block(key, index / 4, draw);
    normal_pair(draw + index % 4 / 2 * 2, pair);
    return pair[index % 2];
}

/* A balanced Feistel network over the smallest even number of bits that holds n, with cycle walking: it is
 * applied again until the value falls below n. */
uint64_t rng_permute(RngKey key, uint64_t index, uint64_t n) {
    unsigned half = 1;
    while (half < 32 && (UINT64_C(1) << (2 * half)) < n) half++;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t value = index;
    do {
        uint64_t left = value >> half, right = value & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint32_t draw[4];
            rng_block(key, right << 2 | round, draw);
            uint64_t next = left ^ (((uint64_t)draw[0] << 32 | draw[1]) & mask);
            left = right;
            right = next;
        }
        value = left << half | right;
    } while (value >= n);
    return value;
}
