#include "train/noise.h"

#include <math.h>

int noise_every(bool gpu) {
    return gpu ? 8 : 1;
}

void noise_add(Noise *noise, double micro_norm, double micro, double norm, double batch) {
    const double keep_square = 0.9;
    double small = micro_norm * micro_norm, large = norm * norm, before = noise->square;
    if (!isfinite(small) || !(large > 0) || !isfinite(large) || !(batch > micro)) return;
    noise->square = noise->steps > 0 ? keep_square * before + (1 - keep_square) * large : large;
    noise->steps++;
    if (!(before > 0)) return; /* the first step has no earlier |g|^2 to divide by */
    double signal = (batch * large - micro * small) / (batch - micro) / before;
    double trace = (small - large) / (1 / micro - 1 / batch) / before;
    /* Multiplying the sums of k - 1 steps by (k - 1) / k gives the k-th step weight 1, the i-th i / k. */
    double keep = (noise->steps - 2) / (noise->steps - 1), keep2 = keep * keep;
    noise->signal = keep * noise->signal + signal;
    noise->trace = keep * noise->trace + trace;
    noise->signal_signal = keep2 * noise->signal_signal + signal * signal;
    noise->signal_trace = keep2 * noise->signal_trace + signal * trace;
    noise->trace_trace = keep2 * noise->trace_trace + trace * trace;
}

NoiseScale noise_scale(const Noise *noise) {
    const double min_steps = 30, max_error = 0.25;
    const NoiseScale unknown = {NAN, NAN};
    if (noise->steps < min_steps || !(noise->signal > 0) || !(noise->trace > 0)) return unknown;
    double ratio = noise->trace / noise->signal, square = noise->signal * noise->signal;
    double residuals =
        noise->trace_trace - 2 * ratio * noise->signal_trace + ratio * ratio * noise->signal_signal;
    double bias = -(noise->signal_trace - ratio * noise->signal_signal) / square;
    NoiseScale found = {.scale = ratio - bias, .error = sqrt(fmax(residuals, 0) / square)};
    return found.error < max_error * found.scale ? found : unknown;
}

double noise_efficiency(double scale, double base, double batch) {
    return base == batch ? 1 : (scale + base) / (scale + batch);
}
