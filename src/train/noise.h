/* The gradient noise scale: the batch size at which a step's gradient is half noise, half signal (McCandlish
 * et al. 2018, "simple" noise scale, appendix A), and the statistical efficiency of a batch size.
 *
 * Let G be the true gradient at a step's weights and tr the variance of a single sample's gradient, summed
 * over all parameters. The scale is tr / |G|^2, in samples. A step of B samples in n micro-batches of b = B /
 * n has micro-batch gradients u_i and their mean g, and on average
 *
 *     mean |u_i|^2 = |G|^2 + tr / b,     |g|^2 = |G|^2 + tr / B.
 *
 * Solved for the unknowns, these are unbiased estimates from one step:
 *
 *     signal = (B |g|^2 - b mean |u_i|^2) / (B - b)            (|G|^2)
 *     trace  = (mean |u_i|^2 - |g|^2) / (1/b - 1/B)            (tr)
 *
 * With all n micro-batches, trace is the usual sample variance, in which G cancels, and its error falls as
 * 1/sqrt(n - 1). With a single micro-batch instead of all, the errors of both would be up to sqrt(n) times
 * larger. A single step says little even so: where the scale exceeds the batch, signal is a small difference
 * of large numbers, often negative. Hence:
 *
 * - Both are averaged over steps before dividing. A step's weight is its number among the measured steps, so
 *   that an estimate comes mainly from the second half of the run so far, divided by the average |g|^2 of
 *   earlier steps, so that steps with large gradients do not dominate. Dividing by the step's own |g|^2 would
 *   bias the signal, since the two vary together; earlier steps are independent of it.
 * - The standard error is that of a ratio of averages r = T / S (delta method): with residuals
 *   e = trace - r signal, its square is (sum of squared weights times e^2) / (sum of weights times signal)^2.
 *   Steps are independent draws, so no correlation enters.
 * - A ratio of averages is still biased to second order, by -(sum w^2 signal e) / (sum w signal)^2
 *   (Tin 1965), which is subtracted.
 * - No value is given before 30 steps have been measured and the error is below 25%.
 *
 * Step results contain mean |u_i|^2 as estimated from sketches (shards_probe). The estimate is unbiased with
 * a relative error of about sqrt(2 / (totals (n - 1))), which is independent in each step and thus included
 * in the standard error above.
 *
 * A sample in a batch of M contributes (scale + M0) / (scale + M) times as much as a sample in a batch of M0.
 */
#ifndef WEFT_TRAIN_NOISE_H
#define WEFT_TRAIN_NOISE_H

#include <stdbool.h>

/* Weighted sums over the measured steps; all zero: no steps yet. */
typedef struct Noise {
    double steps;                                    /* measured */
    double square;                                   /* moving average of |g|^2 */
    double signal, trace;                            /* sums of w * ... */
    double signal_signal, signal_trace, trace_trace; /* sums of w^2 * ... */
} Noise;

typedef struct NoiseScale {
    double scale, error; /* in samples; both NAN: not known with an error below 25% */
} NoiseScale;

/* The number of steps from one measurement to the next. Sketching a micro-batch's gradient costs a pass over
 * the gradients: negligible on the CPU, but up to 1% of a step on a GPU, where it is limited by memory
 * bandwidth. */
int noise_every(bool gpu);
/* Adds a step of `batch` samples in micro-batches of `micro` < `batch`: the root mean square of the gradient
 * norms of its micro-batches, and the norm of its gradient. Ignored if not finite. */
void noise_add(Noise *noise, double micro_norm, double micro, double norm, double batch);
NoiseScale noise_scale(const Noise *noise);
/* Statistical efficiency of batch size `batch` relative to `base`; 1 if they are equal, for any scale. */
double noise_efficiency(double scale, double base, double batch);

#endif
