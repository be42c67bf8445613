#include "optim/optim.h"

#include <math.h>

Status optim_grad_norm(const Store *grads, Exec *exec, Group *world, Buffer total, double *ret_norm) {
    Stream *stream = exec->stream;
    Tensor sums = tensor_1d(total.data, DT_F64, 1);
    TRY(stream_zero(stream, total.data, sizeof(double)));
    for (int i = 0; i < grads->model->count; i++)
        if (grads->unit[i].numel)
            TRY(sum_squares(exec, sums, tensor_1d(grads->flat[i].data, DT_F32, grads->unit[i].numel)));
    TRY(all_reduce(world, stream, sums, REDUCE_SUM, NULL));
    double value;
    TRY(stream_copy(stream, &value, total.data, sizeof value, COPY_TO_HOST));
    TRY(stream_sync(stream));
    *ret_norm = sqrt(value);
    return OK;
}

double optim_clip_scale(const OptimSpec *spec, double norm) {
    double scale = spec->clip / (norm + 1e-6);
    return spec->clip > 0 && scale < 1 ? scale : 1;
}

Status optim_update(const OptimSpec *spec, Exec *exec, Store *params, Store *m, Store *v, const Store *grads,
                    int64_t step, double lr, double grad_scale) {
    AdamW update = {
        .lr = (float)lr,
        .beta1 = (float)spec->beta1,
        .beta2 = (float)spec->beta2,
        .eps = (float)spec->eps,
        .correction1 = (float)(1 - pow(spec->beta1, (double)step)),
        .correction2 = (float)(1 - pow(spec->beta2, (double)step)),
        .grad_scale = (float)grad_scale,
    };
    for (int i = 0; i < params->model->count; i++) {
        const Unit *unit = &params->unit[i];
        for (size_t j = 0; j < unit->count; j++) {
            const ParamSlot *slot = &unit->slot[j];
            Tensor part[4];
            const Store *const store[4] = {params, m, v, grads};
            for (int k = 0; k < 4; k++) {
                part[k] = unit_view(slot, store[k]->flat[i].data, DT_F32);
                part[k] = tensor_1d(part[k].data, DT_F32, slot->count);
            }
            update.decay = slot->desc.decay ? (float)spec->weight_decay : 0.0f;
            TRY(adamw_step(exec, part[0], part[1], part[2], TENSOR_NONE, part[3], update));
        }
    }
    return OK;
}
