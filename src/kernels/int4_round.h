/* How weights are quantized to int4, shared by `weft quantize` and quantization-aware training.
 *
 * A weight is an integer from -8 to 7 times the step of its group of INT4_GROUP inputs. A step is itself an
 * integer from -127 to 127 times the output's scale. The negative side reaches one further, so a step's
 * sign is chosen such that the group's largest weight is negative. Steps slightly smaller and larger than
 * the one that just represents that weight are tried as well: clamping one weight often costs less than
 * rounding all others more coarsely. The step with the smallest sum of squared errors wins. The sum is a
 * fixed tree reduction, so that every backend chooses the same step. Files that include this header are
 * compiled without FMA contraction for the same reason. */
#ifndef WEFT_KERNELS_INT4_ROUND_H
#define WEFT_KERNELS_INT4_ROUND_H

#include <math.h>

#include "kernels/kernels.h"

enum { INT4_MIN = -8, INT4_MAX = 7, INT4_STEPS = 127, INT4_TRIES = 16 };

/* Candidate steps, relative to the one that just represents the largest weight. */
#define INT4_FIRST_TRY 0.70f
#define INT4_LAST_TRY  1.15f

static inline float int4_clamp(float q) {
    q = q < INT4_MIN ? INT4_MIN : q;
    return q > INT4_MAX ? INT4_MAX : q;
}

/* The scale of an output from the largest magnitude of its weights; 0 if its reciprocal would overflow. */
static inline float int4_scale(float largest) {
    float scale = largest / -INT4_MIN * INT4_LAST_TRY / INT4_STEPS;
    return isinf(1 / scale) ? 0 : isinf(scale) ? NAN : scale;
}

/* The sum of squared errors of a group quantized with this step. */
static inline float int4_error(const float w[INT4_GROUP], float step) {
    float square[INT4_GROUP], inverse = step == 0 ? 0 : 1 / step;
    for (int i = 0; i < INT4_GROUP; i++) {
        float off = int4_clamp(rintf(w[i] * inverse)) * step - w[i];
        square[i] = off * off;
    }
    for (int half = INT4_GROUP / 2; half; half /= 2)
        for (int i = 0; i < half; i++) square[i] += square[i + half];
    return square[0];
}

/* Candidate `at` of INT4_TRIES, for a group whose weight of largest magnitude is `largest`. */
static inline int int4_try(float largest, float scale, int at) {
    float ratio = INT4_FIRST_TRY + (INT4_LAST_TRY - INT4_FIRST_TRY) * (float)at / (INT4_TRIES - 1);
    float wanted = rintf(largest / INT4_MIN / scale * ratio);
    return (int)(wanted > -INT4_STEPS ? wanted < INT4_STEPS ? wanted : INT4_STEPS : -INT4_STEPS);
}

/* The best step for a group. A short group is padded with zeros. */
static inline int int4_step(const float w[INT4_GROUP], float scale) {
    float largest = 0, least_error = INFINITY;
    int best = 0;
    if (!(scale > 0)) return 0;
    for (int i = 0; i < INT4_GROUP; i++)
        if (fabsf(w[i]) > fabsf(largest)) largest = w[i];
    for (int i = 0; i < INT4_TRIES; i++) {
        int step = int4_try(largest, scale, i);
        if (i > 0 && step == best) continue;
        float error = int4_error(w, (float)step * scale);
        if (error < least_error) least_error = error, best = step;
    }
    return best;
}

/* The factor applied to a weight before rounding; 0 if step is 0. */
static inline float int4_inverse_step(int step, float scale) {
    return step ? 1 / ((float)step * scale) : 0;
}

#endif
