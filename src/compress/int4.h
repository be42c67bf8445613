/* Quantizing one output's weights to int4. */
#ifndef WEFT_COMPRESS_INT4_H
#define WEFT_COMPRESS_INT4_H

#include "kernels/kernels.h"

/* Quantizes the weights w (cols) of one output into the form that int4_pack accepts: bytes ((cols+1)/2, two
 * weights per byte, the even column in the low half), step (one integer per group of INT4_GROUP columns) and
 * a scale. A weight is int4 * step * scale. The weights must be finite. */
void int4_quantize(const float *w, int64_t cols, uint8_t *bytes, int8_t *step, float *ret_scale);
/* The dequantized weight of column `col`. */
float int4_dequantize(const uint8_t *bytes, const int8_t *step, float scale, int64_t col);

#endif
