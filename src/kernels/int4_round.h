/* Which integers a group of weights becomes in 4 bits, for whoever rounds them: `weft quantize` and training
 * that gets used to it.
 *
 * Weights are from -8 to 7 with a step for each group of inputs, itself an integer from -127 to 127 times the
 * output's scale. Numbers on the negative side reach one further, so a step has the sign that lets the
 * group's largest weight be a negative number. Steps a little smaller or larger than what just holds that
 * weight are tried too: cutting off one weight often costs less than rounding all the others more coarsely.
 * The one with the smallest sum of squared errors is taken, added up pair by pair from far apart to near, so
 * that every backend takes the same. Files that include this are compiled without fused operations. */
#ifndef WEFT_KERNELS_INT4_ROUND_H
#define WEFT_KERNELS_INT4_ROUND_H

#include <math.h>

#include "kernels/kernels.h"

enum { INT4_LEAST = -8, INT4_MOST = 7, INT4_STEPS = 127, INT4_TRIES = 16 };

/* Steps that are tried, against the one that just holds the largest weight; none is larger than the last. */
#define INT4_FIRST_TRY 0.70f
#define INT4_LAST_TRY  1.15f

static inline float int4_clamp(float steps) {
    steps = steps < INT4_LEAST ? INT4_LEAST : steps;
    return steps > INT4_MOST ? INT4_MOST : steps;
}

/* From the largest magnitude of an output's weights; 0 where they are as good as zero. */
static inline float int4_scale(float largest) {
    float scale = largest / -INT4_LEAST * INT4_LAST_TRY / INT4_STEPS;
    return isinf(1 / scale) ? 0 : isinf(scale) ? NAN : scale;
}

static inline float int4_error(const float w[INT4_GROUP], float step) {
    float square[INT4_GROUP], finer = step == 0 ? 0 : 1 / step;
    for (int i = 0; i < INT4_GROUP; i++) {
        float off = int4_clamp(rintf(w[i] * finer)) * step - w[i];
        square[i] = off * off;
    }
    for (int half = INT4_GROUP / 2; half; half /= 2)
        for (int i = 0; i < half; i++) square[i] += square[i + half];
    return square[0];
}

/* The step number `at` of those that are tried, for a group whose largest weight is `largest`. */
static inline int int4_try(float largest, float scale, int at) {
    float part = INT4_FIRST_TRY + (INT4_LAST_TRY - INT4_FIRST_TRY) * (float)at / (INT4_TRIES - 1);
    float wanted = rintf(largest / INT4_LEAST / scale * part);
    return (int)(wanted > -INT4_STEPS ? wanted < INT4_STEPS ? wanted : INT4_STEPS : -INT4_STEPS);
}

/* The best step for a group, what is missing of it being 0. */
static inline int int4_step(const float w[INT4_GROUP], float scale) {
    float largest = 0, least = INFINITY;
    int best = 0;
    if (!(scale > 0)) return 0;
    for (int i = 0; i < INT4_GROUP; i++)
        if (fabsf(w[i]) > fabsf(largest)) largest = w[i];
    for (int i = 0; i < INT4_TRIES; i++) {
        int step = int4_try(largest, scale, i);
        if (i > 0 && step == best) continue;
        float error = int4_error(w, (float)step * scale);
        if (error < least) least = error, best = step;
    }
    return best;
}

static inline float int4_finer(int step, float scale) {
    return step ? 1 / ((float)step * scale) : 0;
}

#endif
