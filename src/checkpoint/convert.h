/* Conversion between values in files and fp32 in host memory. */
#ifndef WEFT_CHECKPOINT_CONVERT_H
#define WEFT_CHECKPOINT_CONVERT_H

#include "checkpoint/safetensors.h"

/* Reads `count` elements of a floating-point tensor, starting at element `first`, as fp32. */
MUST_USE Status values_read(float *dst, const SafeTensor *tensor, int64_t first, int64_t count);
/* Writes src as `dtype` at byte offset `at` of the file's data. */
MUST_USE Status values_write(SafeWriter *writer, int64_t at, DType dtype, const float *src, int64_t count);
/* Whether two floating-point tensors have the same values, compared bitwise as fp32. */
MUST_USE Status values_equal(const SafeTensor *a, const SafeTensor *b, bool *ret_equal);

#endif
