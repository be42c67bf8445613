/* Four lanes process 8-byte words in turn, so that their multiplications overlap. Each step is a
 * bijection of the lane for a given word and of the word for a given lane, and so is the final folding: a
 * difference in one word cannot cancel out. Words are read as little-endian on every host. */
#include "data/checksum.h"

#include <endian.h>
#include <string.h>

enum { LANES = 4 };

static const uint64_t odd_a = 0xd6e8feb86659fd93u, odd_b = 0xa3b195354a39b70du;

static inline uint64_t rotate_left(uint64_t x, int by) {
    return x << by | x >> (64 - by);
}

static inline uint64_t mix(uint64_t lane, uint64_t word) {
    return rotate_left((lane ^ word) * odd_a, 29);
}

static inline uint64_t word_at(const unsigned char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return le64toh(word);
}

uint64_t checksum(const void *data, size_t size, uint64_t seed) {
    const unsigned char *at = data;
    size_t left = size;
    uint64_t lane[LANES];
    for (int i = 0; i < LANES; i++) lane[i] = (seed + (uint64_t)i) * odd_b + odd_a;
    for (; left >= LANES * 8; at += LANES * 8, left -= LANES * 8)
        for (int i = 0; i < LANES; i++) lane[i] = mix(lane[i], word_at(at + i * 8));
    for (int i = 0; left > 0; i++) {
        unsigned char rest[8] = {0};
        size_t here = left < 8 ? left : 8;
        memcpy(rest, at, here);
        lane[i] = mix(lane[i], word_at(rest));
        at += here;
        left -= here;
    }
    uint64_t sum = (uint64_t)size * odd_b;
    for (int i = 0; i < LANES; i++) {
        sum = rotate_left((sum ^ lane[i]) * odd_b, 31);
        sum ^= sum >> 32;
    }
    return sum;
}
