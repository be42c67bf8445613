/* SHA-256. Input is processed in blocks of 64 bytes; an incomplete block waits in `block`. sha256_text pads a
 * copy, so hashing can continue. */
#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int by) {
    return x >> by | x << (32 - by);
}

/* One round; the working variable a is s[first]. */
static inline void one_round(uint32_t s[8], int first, uint32_t input) {
    uint32_t a = s[first], b = s[(first + 1) % 8], c = s[(first + 2) % 8];
    uint32_t e = s[(first + 4) % 8], f = s[(first + 5) % 8], g = s[(first + 6) % 8], *h = &s[(first + 7) % 8];
    uint32_t sum = *h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + input;
    s[(first + 3) % 8] += sum;
    *h = sum + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
}

static void take_block(uint32_t state[8], const unsigned char *data) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)data[4 * i] << 24 | (uint32_t)data[4 * i + 1] << 16 |
               (uint32_t)data[4 * i + 2] << 8 | data[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    /* Rotating the index instead of the variables: after eight rounds each is back in its slot. */
    for (int i = 0; i < 64; i += 8) {
        one_round(s, 0, round_constants[i] + w[i]);
        one_round(s, 7, round_constants[i + 1] + w[i + 1]);
        one_round(s, 6, round_constants[i + 2] + w[i + 2]);
        one_round(s, 5, round_constants[i + 3] + w[i + 3]);
        one_round(s, 4, round_constants[i + 4] + w[i + 4]);
        one_round(s, 3, round_constants[i + 5] + w[i + 5]);
        one_round(s, 2, round_constants[i + 6] + w[i + 6]);
        one_round(s, 1, round_constants[i + 7] + w[i + 7]);
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void sha256_init(Sha256 *hash) {
    *hash = (Sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                               0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(Sha256 *hash, const void *data, size_t size) {
    const unsigned char *from = data;
    size_t waiting = hash->size % 64;
    hash->size += size;
    if (waiting) {
        size_t take = 64 - waiting < size ? 64 - waiting : size;
        memcpy(hash->block + waiting, from, take);
        from += take;
        size -= take;
        if (waiting + take < 64) return;
        take_block(hash->state, hash->block);
    }
    for (; size >= 64; from += 64, size -= 64) take_block(hash->state, from);
    if (size) memcpy(hash->block, from, size);
}

void sha256_text(const Sha256 *hash, char text[SHA256_TEXT]) {
    static const unsigned char padding[64] = {0x80};
    Sha256 end = *hash;
    unsigned char bits[8];
    for (int i = 0; i < 8; i++) bits[i] = (unsigned char)(hash->size * 8 >> (56 - 8 * i));
    sha256_add(&end, padding, 1 + (119 - hash->size % 64) % 64);
    sha256_add(&end, bits, sizeof bits);
    for (int i = 0; i < 8; i++) snprintf(text + 8 * i, 9, "%08x", (unsigned)end.state[i]);
}
