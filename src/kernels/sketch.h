/* Where sketch() adds an element, and with which sign.
 *
 * Global elements are grouped into words of 32, and words into rounds of as many elements as there are
 * totals. Word w of a round is added to word w XOR r of the totals, where r is drawn for each round, so that
 * the columns of a matrix do not always meet in the same totals. Element j of a word is negated if bit j of
 * the word's draw is set. Both draws are hashes of the key and an index, which a backend computes in any
 * order.
 */
#ifndef WEFT_KERNELS_SKETCH_H
#define WEFT_KERNELS_SKETCH_H

#include <stdbool.h>
#include <stdint.h>

/* kernels/cuda/sketch.cu defines it first, to call these functions on the device. */
#ifndef SKETCH_FUNCTION
#define SKETCH_FUNCTION static inline
#endif

enum { SKETCH_WORD = 32, SKETCH_MAX = 1 << 17 /* totals */ };

/* The random projection that sketch() applies, and the place of x's elements in the tensor that is sketched:
 * x[i] is its element (i / run) * group + start + i % run. */
typedef struct SketchMap {
    uint64_t key;
    int64_t run, group, start;
    bool subtract; /* from the totals, instead of adding */
} SketchMap;

/* splitmix64 */
SKETCH_FUNCTION uint64_t sketch_hash(uint64_t key, uint64_t index) {
    uint64_t z = key + (index + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

/* Bit j: element j of the global word is negated. */
SKETCH_FUNCTION uint32_t sketch_signs(uint64_t key, int64_t word) {
    return (uint32_t)sketch_hash(key, (uint64_t)word);
}

/* The value to XOR with the word indices of a round; only the low bits, which index the words of the totals,
 * are used. */
SKETCH_FUNCTION int64_t sketch_round(uint64_t key, int64_t round) {
    return (int64_t)(sketch_hash(~key, (uint64_t)round) >> 1);
}

#endif
