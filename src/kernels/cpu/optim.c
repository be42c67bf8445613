/* AdamW: one pass over the four flat buffers, which also writes the copy in the compute type. */
#include <math.h>

#include "kernels/cpu/half.h"
#include "kernels/cpu/variant.h"

/* Inlined twice, so that the usual loop has no branch on keep_zeros. */
static inline __attribute__((always_inline)) void adamw_loop(float *restrict param, float *restrict m,
                                                             float *restrict v, const float *restrict grad,
                                                             int64_t n, float lr, float decay, AdamW spec,
                                                             bool keep_zeros) {
    float beta1 = spec.beta1, beta2 = spec.beta2, rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    float step = lr / spec.correction1, root = 1.0f / sqrtf(spec.correction2);
    float lr_decay = lr * decay, eps = spec.eps, factor = spec.grad_scale;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * factor;
        float mi = beta1 * m[i] + rest1 * g;
        float vi = beta2 * v[i] + rest2 * g * g;
        float next = param[i] - (lr_decay * param[i] + step * mi / (sqrtf(vi) * root + eps));
        bool pruned = keep_zeros && param[i] == 0;
        m[i] = pruned ? 0 : mi;
        v[i] = pruned ? 0 : vi;
        param[i] = pruned ? 0 : next;
    }
}

static void adamw_run(const AdamWPart *part, int64_t at, int64_t n, AdamW spec) {
    float *param = tensor_f32(part->param) + at, *m = tensor_f32(part->m) + at, *v = tensor_f32(part->v) + at;
    const float *grad = tensor_f32(part->grad) + at;
    if (part->keep_zeros)
        adamw_loop(param, m, v, grad, n, part->lr, part->decay, spec, true);
    else
        adamw_loop(param, m, v, grad, n, part->lr, part->decay, spec, false);
    if (part->copy.data) half_store(part->copy.data, part->copy.dtype, at, param, n);
}

/* Elements per chunk, so that the copy is made while they are in the L1 cache. */
enum { CHUNK = 512 };

typedef struct Update {
    const AdamWPart *part;
    AdamW spec;
} Update;

static void update_range(const void *context, Range mine) {
    const Update *update = context;
    for (int64_t at = mine.from; at < mine.to; at += CHUNK)
        adamw_run(update->part, at, mine.to - at < CHUNK ? mine.to - at : CHUNK, update->spec);
}

static Status adamw_step_cpu(Stream *stream, const AdamWPart *part, int parts, AdamW spec) {
    for (int i = 0; i < parts; i++) {
        int64_t count = tensor_count(part[i].param);
        Update update = {&part[i], spec};
        ranges_run(stream, count, 16, count, update_range, &update);
    }
    return OK;
}

void VARIANT(optim_override)(KernelTable *table) {
    table->adamw_step = adamw_step_cpu;
}
