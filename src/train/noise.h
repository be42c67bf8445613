/* The gradient noise scale: the batch at which a step's gradient is as much noise as signal.
 *
 * Of two gradients of the same weights, one by a small batch b and one by a large batch B,
 *     |small|^2 = |g|^2 + trace / b,    |large|^2 = |g|^2 + trace / B
 * on average, g being the true gradient and trace the variance of a sample's, summed over all parameters.
 * Here the small one is a step's first micro-batch, the large one the whole step. Both unknowns are averaged
 * over steps, the last ones counting most, before one is divided by the other: scale = trace / |g|^2, in
 * samples. Each step is taken in units of its own |large|^2, so that a few steps with huge gradients, as the
 * first ones of a run, do not outweigh all others.
 *
 * M samples in one batch then bring (scale + M0) / (scale + M) of what they bring in batches of M0. */
#ifndef WEFT_TRAIN_NOISE_H
#define WEFT_TRAIN_NOISE_H

/* Averages so far; zeroes: none. */
typedef struct Noise {
    double signal, trace;
} Noise;

/* Norms of the gradient by `micro` samples and by `batch`, which is more. */
void noise_add(Noise *noise, double micro_norm, double micro, double norm, double batch);
/* NAN: not known, or no signal stands out yet. */
double noise_scale(const Noise *noise);
/* The statistical efficiency of a batch against `base`; 1 when they are equal, whatever the scale. */
double noise_efficiency(double scale, double base, double batch);

#endif
