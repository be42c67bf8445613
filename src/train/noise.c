/* Exponential moving averages of the signal and the noise, each relative to the step's own |large|^2. */
#include "train/noise.h"

#include <math.h>

void noise_add(Noise *noise, double micro_norm, double micro, double norm, double batch) {
    const double keep = 0.98;
    double ratio = micro_norm / norm * (micro_norm / norm); /* |small|^2 / |large|^2 */
    if (!isfinite(ratio) || !(batch > micro)) return;
    double signal = (batch - micro * ratio) / (batch - micro);
    double trace = (ratio - 1) / (1 / micro - 1 / batch);
    noise->signal = keep * noise->signal + (1 - keep) * signal;
    noise->trace = keep * noise->trace + (1 - keep) * trace;
}

double noise_scale(const Noise *noise) {
    return noise->signal > 0 && noise->trace > 0 ? noise->trace / noise->signal : NAN;
}

double noise_efficiency(double scale, double base, double batch) {
    return base == batch ? 1 : (scale + base) / (scale + batch);
}
