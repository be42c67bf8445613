/* Rounding an output's weights to 4 bits. */
#ifndef WEFT_COMPRESS_INT4_H
#define WEFT_COMPRESS_INT4_H

#include "kernels/kernels.h"

/* Finds, for weights w (cols) of one output, what int4_pack takes: bytes ((cols+1)/2), steps (cols /
 * INT4_GROUP, rounded up) and a scale. The weights are finite. */
void int4_round(const float *w, int64_t cols, uint8_t *bytes, int8_t *step, float *ret_scale);
/* A weight as it became. */
float int4_value(const uint8_t *bytes, const int8_t *step, float scale, int64_t col);

#endif
