/* Tests of every code point go through them in blocks of 4096. */
#ifndef WEFT_TESTS_TOKENIZER_BLOCKS_H
#define WEFT_TESTS_TOKENIZER_BLOCKS_H

#include "test.h"

/* Whether to test the block that starts with this code point. Under the sanitizers: those of the first two
 * planes, which have nearly all characters with properties of their own, and one of each other plane. */
static inline bool is_tested_block(uint32_t first) {
    return !SANITIZED || first < 0x20000 || first % 0x10000 == 0;
}

#endif
