/* Values between files and host memory: type conversion and the turning of matrices, in pieces. */
#ifndef WEFT_CHECKPOINT_CONVERT_H
#define WEFT_CHECKPOINT_CONVERT_H

#include "checkpoint/safetensors.h"

/* dst (rows, cols) = the floating values of a file's tensor: as they lie, or, when turned, from
 * (cols, rows). */
MUST_USE Status values_read(float *dst, const SafeTensor *tensor, int64_t rows, int64_t cols, bool turned);
/* Writes src (rows, cols) as dtype: as it lies, or, when turned, as (cols, rows). */
MUST_USE Status values_write(SafeWriter *writer, DType dtype, const float *src, int64_t rows, int64_t cols,
                             bool turned);
/* Whether two tensors hold the same values. */
MUST_USE Status values_equal(const SafeTensor *a, const SafeTensor *b, bool *ret_equal);

#endif
