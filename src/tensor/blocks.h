/* Weights as codes of 8 or 4 bits in blocks of CODE_BLOCK consecutive values, each with the largest magnitude
 * of its values as its scale, in fp32:
 *
 *   int8   value = q / 127 * scale, q a signed byte
 *   int4   value = (level - 8) / 7 * scale
 *   nf4    value = nf4[level] * scale: the NormalFloat of QLoRA and bitsandbytes
 *
 * The first of two levels is the upper half of a byte. */
#ifndef WEFT_TENSOR_BLOCKS_H
#define WEFT_TENSOR_BLOCKS_H

#include <stdint.h>

typedef enum { BLOCKS_NONE, BLOCKS_INT8, BLOCKS_INT4, BLOCKS_NF4 } BlockCode;
enum { CODE_BLOCK = 64 };

extern const char *const block_code_names[]; /* BLOCKS_NONE is "same"; ends with NULL */

/* Bytes of `count` codes, and the number of scales. */
static inline int64_t code_bytes(BlockCode code, int64_t count) {
    return code == BLOCKS_INT8 ? count : (count + 1) / 2;
}
static inline int64_t code_blocks(int64_t count) {
    return (count + CODE_BLOCK - 1) / CODE_BLOCK;
}

/* The values of the sixteen levels, relative to the scale; of a code of 4 bits. */
const float *code_levels(BlockCode code);
/* Codes of the nearest values. A block with NaN or infinite values has a scale of NaN. What follows the last
 * value in its byte is zero. */
void blocks_encode(BlockCode code, uint8_t *codes, float *scales, const float *values, int64_t count);
void blocks_decode(BlockCode code, float *values, const uint8_t *codes, const float *scales, int64_t count);

#endif
