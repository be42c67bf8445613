/* Weights from -8 to 7 with a step for each group of inputs, itself an integer from -127 to 127 times the
 * output's scale. Numbers on the negative side reach one further, so a step has the sign that lets the
 * group's largest weight be a negative number. Steps a little smaller or larger than what just holds that
 * weight are tried too: cutting off one weight often costs less than rounding all the others more coarsely.
 * The one with the smallest sum of squared errors is taken.
 */
#include "compress/int4.h"

#include <math.h>

enum { LEAST = -8, MOST = 7, STEPS = 127, TRIES = 16 };

/* Steps that are tried, against the one that just holds the largest weight; none is larger than the last. */
static const float first_try = 0.70f, last_try = 1.15f;

static float rounded(float w, float finer) {
    return fmaxf(LEAST, fminf(MOST, rintf(w * finer)));
}

static float error_of(const float *w, int64_t count, float step) {
    float sum = 0, finer = step == 0 ? 0 : 1 / step;
    for (int64_t i = 0; i < count; i++) {
        float off = rounded(w[i], finer) * step - w[i];
        sum += off * off;
    }
    return sum;
}

static float largest_of(const float *w, int64_t count) {
    float largest = 0;
    for (int64_t i = 0; i < count; i++)
        if (fabsf(w[i]) > fabsf(largest)) largest = w[i];
    return largest;
}

static int8_t best_step(const float *w, int64_t count, float scale) {
    float just = largest_of(w, count) / LEAST / scale, least = INFINITY;
    int best = 0;
    for (int i = 0; i < TRIES; i++) {
        float wanted = just * (first_try + (last_try - first_try) * (float)i / (TRIES - 1));
        int step = (int)fmaxf(-STEPS, fminf(STEPS, rintf(wanted)));
        if (i > 0 && step == best) continue;
        float error = error_of(w, count, (float)step * scale);
        if (error < least) least = error, best = step;
    }
    return (int8_t)best;
}

static int64_t count_of(int64_t cols, int64_t first) {
    return cols - first < INT4_GROUP ? cols - first : INT4_GROUP;
}

void int4_round(const float *w, int64_t cols, uint8_t *bytes, int8_t *step, float *ret_scale) {
    float scale = fabsf(largest_of(w, cols)) / -LEAST * last_try / STEPS;
    if (isinf(1 / scale)) scale = 0; /* as good as zero */
    memset(bytes, 0, (size_t)((cols + 1) / 2));
    *ret_scale = scale;
    for (int64_t first = 0; first < cols; first += INT4_GROUP) {
        int64_t count = count_of(cols, first), group = first / INT4_GROUP;
        step[group] = scale > 0 ? best_step(w + first, count, scale) : 0;
        float finer = step[group] ? 1 / ((float)step[group] * scale) : 0;
        for (int64_t k = first; k < first + count; k++) {
            int half = (int)rounded(w[k], finer) & 15;
            bytes[k / 2] = (uint8_t)(bytes[k / 2] | half << (k % 2 ? 4 : 0));
        }
    }
}

float int4_value(const uint8_t *bytes, const int8_t *step, float scale, int64_t col) {
    int half = bytes[col / 2] >> (col % 2 ? 4 : 0) & 15;
    return (float)(((half ^ 8) - 8) * step[col / INT4_GROUP]) * scale;
}
