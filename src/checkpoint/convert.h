/* Runs of values between files and host memory. */
#ifndef WEFT_CHECKPOINT_CONVERT_H
#define WEFT_CHECKPOINT_CONVERT_H

#include "checkpoint/safetensors.h"

/* dst = `count` floating values of a file's tensor, from element `first` on. */
MUST_USE Status values_read(float *dst, const SafeTensor *tensor, int64_t first, int64_t count);
/* Places src, as dtype, from byte `at` of the file's data on. */
MUST_USE Status values_place(SafeWriter *writer, int64_t at, DType dtype, const float *src, int64_t count);
/* Whether two tensors hold the same values. */
MUST_USE Status values_equal(const SafeTensor *a, const SafeTensor *b, bool *ret_equal);

#endif
