/* Fills, copies and sums over flat tensors. Sums run in fp64, each thread over its own stretch, and the
 * stretches are added in order. */
#include "kernels/cpu/variant.h"
#include "kernels/ref/ref.h"

static Status fill_cpu(Stream *stream, Tensor x, float value) {
    FP32_ELSE(fill_ref(stream, x, value), x);
    int64_t count = tensor_count(x);
#pragma omp parallel num_threads(threads_for(stream, count))
    {
        Range mine = range_mine(count, 16);
        float *to = tensor_f32(x);
#pragma omp simd
        for (int64_t i = mine.from; i < mine.to; i++) to[i] = value;
    }
    return OK;
}

static Status convert_cpu(Stream *stream, Tensor y, Tensor x) {
    int64_t count = tensor_count(x);
    int threads = threads_for(stream, count);
    Status status = OK;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int part = 0; part < threads; part++) {
        Range mine = range_part(count, 64, part, threads);
        Status mine_status = dtype_convert((char *)y.data + (size_t)mine.from * dtype_size(y.dtype), y.dtype,
                                           (char *)x.data + (size_t)mine.from * dtype_size(x.dtype), x.dtype,
                                           (size_t)(mine.to - mine.from));
        if (mine_status) {
#pragma omp critical(weft_convert)
            {
                status_free(status);
                status = mine_status;
            }
        }
    }
    return status;
}

static Status add_cpu(Stream *stream, Tensor y, Tensor x) {
    FP32_ELSE(add_ref(stream, y, x), y, x);
    int64_t count = tensor_count(y);
#pragma omp parallel num_threads(threads_for(stream, count))
    {
        Range mine = range_mine(count, 16);
        float *to = tensor_f32(y);
        const float *from = tensor_f32(x);
#pragma omp simd
        for (int64_t i = mine.from; i < mine.to; i++) to[i] += from[i];
    }
    return OK;
}

static Status scale_cpu(Stream *stream, Tensor y, float factor) {
    FP32_ELSE(scale_ref(stream, y, factor), y);
    int64_t count = tensor_count(y);
#pragma omp parallel num_threads(threads_for(stream, count))
    {
        Range mine = range_mine(count, 16);
        float *to = tensor_f32(y);
#pragma omp simd
        for (int64_t i = mine.from; i < mine.to; i++) to[i] *= factor;
    }
    return OK;
}

static double sum_run(const float *x, Range range) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = range.from; i < range.to; i++) sum += (double)x[i];
    return sum;
}

static double sum_squares_run(const float *x, Range range) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = range.from; i < range.to; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

static Status sum_with(Stream *stream, Tensor total, Tensor x, double (*run)(const float *, Range)) {
    int64_t count = tensor_count(x);
    int threads = threads_for(stream, count);
    void *space;
    TRY(stream_workspace(stream, (size_t)threads * sizeof(double), &space));
    double *parts = space;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int part = 0; part < threads; part++)
        parts[part] = run(tensor_f32(x), range_part(count, 16, part, threads));
    double all = 0;
    for (int part = 0; part < threads; part++) all += parts[part];
    *(double *)total.data += all;
    return OK;
}

static Status sum_cpu(Stream *stream, Tensor total, Tensor x) {
    FP32_ELSE(sum_ref(stream, total, x), x);
    return sum_with(stream, total, x, sum_run);
}

static Status sum_squares_cpu(Stream *stream, Tensor total, Tensor x) {
    FP32_ELSE(sum_squares_ref(stream, total, x), x);
    return sum_with(stream, total, x, sum_squares_run);
}

void VARIANT(elementwise_override)(KernelTable *table) {
    table->fill = fill_cpu;
    table->convert = convert_cpu;
    table->add = add_cpu;
    table->scale = scale_cpu;
    table->sum = sum_cpu;
    table->sum_squares = sum_squares_cpu;
}
