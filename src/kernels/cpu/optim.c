/* AdamW: one pass over the four flat buffers, which also writes the copy in the compute type. */
#include <math.h>

#include "kernels/cpu/half.h"
#include "kernels/cpu/variant.h"

/* Inlined twice, so that the usual loop has no branch on keep_zeros. */
static inline __attribute__((always_inline)) void adamw_loop(float *restrict param, float *restrict m,
                                                             float *restrict v, const float *restrict grad,
                                                             int64_t n, AdamW spec, bool keep_zeros) {
    float beta1 = spec.beta1, beta2 = spec.beta2, rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    float step = spec.lr / spec.correction1, root = 1.0f / sqrtf(spec.correction2);
    float lr_decay = spec.lr * spec.decay, eps = spec.eps, factor = spec.grad_scale;
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

static void adamw_run(float *restrict param, float *restrict m, float *restrict v, const float *restrict grad,
                      int64_t n, AdamW spec) {
    if (spec.keep_zeros)
        adamw_loop(param, m, v, grad, n, spec, true);
    else
        adamw_loop(param, m, v, grad, n, spec, false);
}

/* Elements per chunk, so that the copy is made while they are in the L1 cache. */
enum { CHUNK = 512 };

static Status adamw_step_cpu(Stream *stream, Tensor param, Tensor m, Tensor v, Tensor copy, Tensor grad,
                             AdamW spec) {
    int64_t count = tensor_count(param);
#pragma omp parallel num_threads(threads_for(stream, count))
    {
        Range mine = range_mine(count, 16);
        for (int64_t at = mine.from; at < mine.to; at += CHUNK) {
            int64_t n = mine.to - at < CHUNK ? mine.to - at : CHUNK;
            adamw_run(tensor_f32(param) + at, tensor_f32(m) + at, tensor_f32(v) + at, tensor_f32(grad) + at,
                      n, spec);
            if (copy.data) half_store(copy.data, copy.dtype, at, tensor_f32(param) + at, n);
        }
    }
    return OK;
}

void VARIANT(optim_override)(KernelTable *table) {
    table->adamw_step = adamw_step_cpu;
}
