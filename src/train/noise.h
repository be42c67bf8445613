/* The gradient noise scale: the batch size at which a step's gradient is half noise, half signal.
 *
 * For gradients of the same weights from a small batch b and a large batch B, on average
 *     |small|^2 = |g|^2 + trace / b,    |large|^2 = |g|^2 + trace / B
 * where g is the true gradient and trace the per-sample variance summed over all parameters. Here the small
 * batch is a step's first micro-batch and the large one the whole step. Both unknowns are averaged over steps
 * (exponential moving average) before dividing: scale = trace / |g|^2, in samples. Each step is normalized by
 * its own |large|^2, so that a few steps with huge gradients, such as the first ones of a run, do not
 * dominate.
 *
 * A sample in a batch of M then contributes (scale + M0) / (scale + M) as much as a sample in a batch of M0.
 */
#ifndef WEFT_TRAIN_NOISE_H
#define WEFT_TRAIN_NOISE_H

/* Averages so far; all zero: no steps yet. */
typedef struct Noise {
    double signal, trace;
} Noise;

/* Adds a step: gradient norms over `micro` and over `batch` > `micro` samples. Ignored if not finite. */
void noise_add(Noise *noise, double micro_norm, double micro, double norm, double batch);
/* The noise scale in samples. NAN: unknown, or the averages are not positive yet. */
double noise_scale(const Noise *noise);
/* Statistical efficiency of batch size `batch` relative to `base`; 1 if they are equal, for any scale. */
double noise_efficiency(double scale, double base, double batch);

#endif
