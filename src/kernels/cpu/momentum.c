/* Lion, SGD with momentum, and the parts of Muon that are not matmuls: one pass over the flat buffers, which
 * also writes the copy in the compute type. */
#include <math.h>

#include "kernels/cpu/half.h"
#include "kernels/cpu/variant.h"

/* Elements per chunk, so that the copy is made while they are in the L1 cache. */
enum { CHUNK = 512 };

/* Each thread takes the chunks of its part of `count` elements: chunk_size(mine) elements from mine.from. */
#define EACH_CHUNK                                                                                           \
    _Pragma("omp parallel num_threads(threads_for(stream, count))") for (Range mine = range_mine(count, 16); \
                                                                         mine.from < mine.to;                \
                                                                         mine.from += CHUNK)

static int64_t chunk_size(Range mine) {
    return mine.to - mine.from < CHUNK ? mine.to - mine.from : CHUNK;
}

/* Parameters of a chunk as fp32: in place, or joined from their halves in the buffer. */
static float *params_in(Tensor param, Tensor copy, int64_t at, int64_t n, float *buffer) {
    if (param.dtype == DT_F32) return tensor_f32(param) + at;
    const uint16_t *upper = (const uint16_t *)copy.data + at, *rest = (const uint16_t *)param.data + at;
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) vec_store(buffer + i, vec_load_halves(upper + i, rest + i));
    for (; i < n; i++) buffer[i] = f32_from_halves(upper[i], rest[i]);
    return buffer;
}

/* Stores them after an update, or their copy. */
static void params_end(Tensor param, Tensor copy, int64_t at, int64_t n, const float *from) {
    if (param.dtype == DT_F32) {
        if (copy.data) half_store(copy.data, copy.dtype, at, from, n);
        return;
    }
    uint16_t *upper = (uint16_t *)copy.data + at, *rest = (uint16_t *)param.data + at;
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) vec_store_halves(upper + i, rest + i, vec_load(from + i));
    for (; i < n; i++) upper[i] = f32_halves(from[i], rest + i);
}

static ALWAYS_INLINE void lion_loop(float *restrict param, float *restrict m, const float *restrict grad,
                                    int64_t n, Lion spec, bool keep_zeros) {
    float beta1 = spec.beta1, beta2 = spec.beta2, rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    float lr = spec.lr, lr_decay = spec.lr * spec.decay, factor = spec.grad_scale;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * factor, was = m[i];
        float direction = beta1 * was + rest1 * g;
        float move = direction > 0 ? lr : direction < 0 ? -lr : 0.0f;
        float next = param[i] - (lr_decay * param[i] + move);
        bool pruned = keep_zeros && param[i] == 0;
        m[i] = pruned ? 0 : beta2 * was + rest2 * g;
        param[i] = pruned ? 0 : next;
    }
}

static Status lion_step_cpu(Stream *stream, Tensor param, Tensor m, Tensor copy, Tensor grad, Lion spec) {
    int64_t count = tensor_count(param);
    EACH_CHUNK {
        int64_t at = mine.from, n = chunk_size(mine);
        float buffer[CHUNK], *p = params_in(param, copy, at, n, buffer), *first = tensor_f32(m) + at;
        const float *g = tensor_f32(grad) + at;
        if (spec.keep_zeros)
            lion_loop(p, first, g, n, spec, true);
        else
            lion_loop(p, first, g, n, spec, false);
        params_end(param, copy, at, n, p);
    }
    return OK;
}

static ALWAYS_INLINE void sgd_loop(float *restrict param, float *restrict m, const float *restrict grad,
                                   int64_t n, Sgd spec, bool nesterov, bool keep_zeros) {
    float momentum = spec.momentum, lr = spec.lr, decay = spec.decay, factor = spec.grad_scale;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * factor + decay * param[i];
        float average = momentum * m[i] + g;
        float next = param[i] - lr * (nesterov ? g + momentum * average : average);
        bool pruned = keep_zeros && param[i] == 0;
        m[i] = pruned ? 0 : average;
        param[i] = pruned ? 0 : next;
    }
}

static Status sgd_step_cpu(Stream *stream, Tensor param, Tensor m, Tensor copy, Tensor grad, Sgd spec) {
    int64_t count = tensor_count(param);
    EACH_CHUNK {
        int64_t at = mine.from, n = chunk_size(mine);
        float buffer[CHUNK], *p = params_in(param, copy, at, n, buffer), *average = tensor_f32(m) + at;
        const float *g = tensor_f32(grad) + at;
        if (spec.keep_zeros)
            sgd_loop(p, average, g, n, spec, spec.nesterov, true);
        else if (spec.nesterov)
            sgd_loop(p, average, g, n, spec, true, false);
        else
            sgd_loop(p, average, g, n, spec, false, false);
        params_end(param, copy, at, n, p);
    }
    return OK;
}

static ALWAYS_INLINE void momentum_loop(float *restrict grad, float *restrict m, const float *restrict param,
                                        int64_t n, Momentum spec, bool keep_zeros) {
    float beta = spec.beta, rest = 1.0f - beta, factor = spec.grad_scale;
    float of_average = spec.nesterov ? beta : 1, of_gradient = spec.nesterov ? rest : 0;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * factor;
        float average = beta * m[i] + rest * g;
        bool pruned = keep_zeros && param[i] == 0;
        m[i] = pruned ? 0 : average;
        grad[i] = pruned ? 0 : of_average * average + of_gradient * g;
    }
}

static Status momentum_step_cpu(Stream *stream, Tensor grad, Tensor m, Tensor param, Tensor copy,
                                Momentum spec) {
    int64_t count = tensor_count(grad);
    EACH_CHUNK {
        int64_t at = mine.from, n = chunk_size(mine);
        float buffer[CHUNK], *g = tensor_f32(grad) + at, *average = tensor_f32(m) + at;
        if (spec.keep_zeros)
            momentum_loop(g, average, params_in(param, copy, at, n, buffer), n, spec, true);
        else
            momentum_loop(g, average, NULL, n, spec, false);
    }
    return OK;
}

static ALWAYS_INLINE void apply_loop(float *restrict param, const float *restrict update, int64_t n,
                                     Apply spec, bool keep_zeros) {
    float lr = spec.lr, lr_decay = spec.lr * spec.decay;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float next = param[i] - (lr_decay * param[i] + lr * update[i]);
        param[i] = keep_zeros && param[i] == 0 ? 0 : next;
    }
}

static Status apply_step_cpu(Stream *stream, Tensor param, Tensor copy, Tensor update, Apply spec) {
    int64_t count = tensor_count(param);
    EACH_CHUNK {
        int64_t at = mine.from, n = chunk_size(mine);
        float buffer[CHUNK], *p = params_in(param, copy, at, n, buffer);
        if (spec.keep_zeros)
            apply_loop(p, tensor_f32(update) + at, n, spec, true);
        else
            apply_loop(p, tensor_f32(update) + at, n, spec, false);
        params_end(param, copy, at, n, p);
    }
    return OK;
}

static Status normalize_cpu(Stream *stream, Tensor y, Tensor x, Tensor total, float eps) {
    int64_t count = tensor_count(x);
    float factor = (float)(1 / (sqrt(*(const double *)total.data) + eps));
    EACH_CHUNK {
        int64_t at = mine.from, n = chunk_size(mine);
        float buffer[CHUNK];
        float *to = y.dtype == DT_F32 ? tensor_f32(y) + at : buffer;
        const float *from = tensor_f32(x) + at;
        for (int64_t i = 0; i < n; i++) to[i] = from[i] * factor;
        if (y.dtype != DT_F32) half_store(y.data, y.dtype, at, buffer, n);
    }
    return OK;
}

void VARIANT(momentum_override)(KernelTable *table) {
    table->lion_step = lion_step_cpu;
    table->sgd_step = sgd_step_cpu;
    table->momentum_step = momentum_step_cpu;
    table->apply_step = apply_step_cpu;
    table->normalize = normalize_cpu;
}
