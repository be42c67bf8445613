/* Gradient clipping, AdamW coefficients and dynamic loss scaling. */
#include "optim/optim.h"

#include <math.h>

double optim_clip_scale(const OptimSpec *spec, double norm) {
    double scale = spec->clip / (norm + 1e-6);
    return spec->clip > 0 && scale < 1 ? scale : 1;
}

AdamW optim_adamw(const OptimSpec *spec, int64_t step, double lr, double grad_scale) {
    return (AdamW){
        .lr = (float)lr,
        .beta1 = (float)spec->beta1,
        .beta2 = (float)spec->beta2,
        .eps = (float)spec->eps,
        .correction1 = (float)(1 - pow(spec->beta1, (double)step)),
        .correction2 = (float)(1 - pow(spec->beta2, (double)step)),
        .grad_scale = (float)grad_scale,
        .keep_zeros = spec->keep_zeros,
    };
}

void loss_scale_next(LossScale *scale, bool overflowed) {
    const double largest = 16777216; /* 2^24 */
    if (overflowed) {
        scale->scale /= 2;
        scale->good = 0;
    } else if (++scale->good >= scale->interval) {
        if (scale->scale < largest) scale->scale *= 2;
        scale->good = 0;
    }
}
