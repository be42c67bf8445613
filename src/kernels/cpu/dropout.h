/* Dropout on a stretch of one row, drawn anew each time it is needed. */
#ifndef WEFT_KERNELS_CPU_DROPOUT_H
#define WEFT_KERNELS_CPU_DROPOUT_H

#include "kernels/backend.h"
#include "kernels/cpu/philox.h"

enum { DROPOUT_STRETCH = 256, DROPOUT_BUFFER = DROPOUT_STRETCH + 2 * PHILOX_STEP };

/* out = res + dropout(y) over n elements whose draws start at `first`; res may be NULL; out may be
 * either. */
static inline void dropout_run(float *out, const float *res, const float *y, int64_t n,
                               const Dropout *dropout, uint64_t first) {
    uint32_t buffer[DROPOUT_BUFFER];
    uint32_t threshold = dropout_threshold(dropout->p);
    float factor = dropout_scale(dropout->p);
    for (int64_t done = 0; done < n; done += DROPOUT_STRETCH) {
        int64_t count = n - done < DROPOUT_STRETCH ? n - done : DROPOUT_STRETCH;
        const uint32_t *draw = philox_run(dropout->key, first + (uint64_t)done, count, buffer);
        if (res) {
#pragma omp simd
            for (int64_t i = 0; i < count; i++) {
                float kept = y[done + i] * factor;
                out[done + i] = res[done + i] + (draw[i] >= threshold ? kept : 0.0f);
            }
        } else {
#pragma omp simd
            for (int64_t i = 0; i < count; i++) {
                float kept = y[done + i] * factor;
                out[done + i] = draw[i] >= threshold ? kept : 0.0f;
            }
        }
    }
}

/* The same, a plain sum without dropout. */
static inline void dropout_add_run(float *out, const float *res, const float *y, int64_t n,
                                   const Dropout *dropout, uint64_t first) {
    if (dropout->p > 0) {
        dropout_run(out, res, y, n, dropout, first);
    } else if (res) {
#pragma omp simd
        for (int64_t c = 0; c < n; c++) out[c] = res[c] + y[c];
    } else if (out != y) {
        memmove(out, y, (size_t)n * sizeof *out);
    }
}

#endif
