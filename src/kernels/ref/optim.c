/* AdamW (Loshchilov and Hutter), each element in double. */
#include <math.h>

#include "kernels/ref/ref.h"

float ref_param(Tensor param, Tensor copy, int64_t i) {
    if (param.dtype == DT_F32) return tensor_f32(param)[i];
    return f32_from_halves(((const uint16_t *)copy.data)[i], ((const uint16_t *)param.data)[i]);
}

void ref_put_param(Tensor param, Tensor copy, int64_t i, float value) {
    if (param.dtype == DT_F32_LOWER) {
        ((uint16_t *)copy.data)[i] = f32_halves(value, (uint16_t *)param.data + i);
        return;
    }
    tensor_f32(param)[i] = value;
    if (copy.data) tensor_put(copy, i, value);
}

static void step_part(const AdamWPart *part, const AdamW *spec) {
    double b1 = spec->beta1, b2 = spec->beta2;
    float *m = tensor_f32(part->m), *v = tensor_f32(part->v);
    for (int64_t i = 0; i < tensor_count(part->param); i++) {
        double g = (double)tensor_f32(part->grad)[i] * spec->grad_scale,
               p = ref_param(part->param, part->copy, i);
        bool pruned = part->keep_zeros && p == 0;
        double first = b1 * m[i] + (1 - b1) * g;
        double second = b2 * v[i] + (1 - b2) * g * g;
        double step = first / spec->correction1 / (sqrt(second / spec->correction2) + spec->eps);
        m[i] = pruned ? 0 : (float)first;
        v[i] = pruned ? 0 : (float)second;
        ref_put_param(part->param, part->copy, i,
                      pruned ? 0 : (float)(p - part->lr * (part->decay * p + step)));
    }
}

Status adamw_step_ref(Stream *stream, const AdamWPart *part, int parts, AdamW spec) {
    (void)stream;
    for (int i = 0; i < parts; i++) step_part(&part[i], &spec);
    return OK;
}
