/* Losses of independent outputs against fp32 targets, element by element. */
#include <math.h>

#include "kernels/ref/ref.h"

Status mse_loss_ref(Stream *stream, Tensor losses, Tensor logits, Tensor targets, float scale,
                    bool gradient) {
    (void)stream;
    for (int64_t i = 0; i < tensor_count(logits); i++) {
        double target = tensor_f32(targets)[i], apart = isnan(target) ? 0 : tensor_get(logits, i) - target;
        tensor_f32(losses)[i] = (float)(apart * apart);
        if (gradient) tensor_put(logits, i, 2 * apart * scale);
    }
    return OK;
}

Status bce_loss_ref(Stream *stream, Tensor losses, Tensor logits, Tensor targets, float scale,
                    bool gradient) {
    (void)stream;
    for (int64_t i = 0; i < tensor_count(logits); i++) {
        double logit = tensor_get(logits, i), target = tensor_f32(targets)[i], small = exp(-fabs(logit));
        double sigmoid = (logit < 0 ? small : 1) / (1 + small);
        bool counted = !isnan(target);
        tensor_f32(losses)[i] = counted ? (float)(fmax(logit, 0) - logit * target + log1p(small)) : 0;
        if (gradient) tensor_put(logits, i, counted ? (sigmoid - target) * scale : 0);
    }
    return OK;
}
