/* Fills, copies and sums over flat tensors. Sums run in fp64, each thread over its own stretch, and the
 * stretches are added in order. */
#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

static Status fill_cpu(Stream *stream, Tensor x, float value) {
    int64_t count = tensor_count(x);
    uint16_t half = x.dtype == DT_BF16 ? f32_to_bf16(value) : f32_to_f16(value);
#pragma omp parallel num_threads(threads_for(stream, count))
    {
        Range mine = range_mine(count, 16);
        if (x.dtype == DT_F32) {
#pragma omp simd
            for (int64_t i = mine.from; i < mine.to; i++) tensor_f32(x)[i] = value;
        } else {
#pragma omp simd
            for (int64_t i = mine.from; i < mine.to; i++) ((uint16_t *)x.data)[i] = half;
        }
    }
    return OK;
}

/* fp64 is rare and takes the plain way. */
static Status convert_wide(Stream *stream, Tensor y, Tensor x) {
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

static Status convert_cpu(Stream *stream, Tensor y, Tensor x) {
    if (y.dtype == DT_F64 || x.dtype == DT_F64 || x.dtype == y.dtype) return convert_wide(stream, y, x);
    int64_t count = tensor_count(x);
#pragma omp parallel num_threads(threads_for(stream, count))
    {
        Range mine = range_mine(count, 64);
        float buffer[RUN];
        for (int64_t at = mine.from; at < mine.to; at += RUN) {
            int64_t n = run_length(mine.to - at);
            const float *from = run_in(x, at, n, run_out(y, at, buffer));
            run_end(y, at, n, from);
        }
    }
    return OK;
}

static Status add_cpu(Stream *stream, Tensor y, Tensor x) {
    int64_t count = tensor_count(y);
#pragma omp parallel num_threads(threads_for(stream, count))
    {
        Range mine = range_mine(count, 16);
        float buffer[RUN], other[RUN];
        for (int64_t at = mine.from; at < mine.to; at += RUN) {
            int64_t n = run_length(mine.to - at);
            const float *from = run_in(y, at, n, buffer), *more = run_in(x, at, n, other);
            float *to = run_out(y, at, buffer);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) to[i] = from[i] + more[i];
            run_end(y, at, n, to);
        }
    }
    return OK;
}

static Status scale_cpu(Stream *stream, Tensor y, float factor) {
    int64_t count = tensor_count(y);
#pragma omp parallel num_threads(threads_for(stream, count))
    {
        Range mine = range_mine(count, 16);
        float buffer[RUN];
        for (int64_t at = mine.from; at < mine.to; at += RUN) {
            int64_t n = run_length(mine.to - at);
            const float *from = run_in(y, at, n, buffer);
            float *to = run_out(y, at, buffer);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) to[i] = from[i] * factor;
            run_end(y, at, n, to);
        }
    }
    return OK;
}

static double sum_run(const float *x, int64_t n) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    return sum;
}

static double sum_squares_run(const float *x, int64_t n) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

static double sum_part(Tensor x, Range range, double (*run)(const float *, int64_t)) {
    double sum = 0;
    float buffer[RUN];
    for (int64_t at = range.from; at < range.to; at += RUN) {
        int64_t n = run_length(range.to - at);
        sum += run(run_in(x, at, n, buffer), n);
    }
    return sum;
}

static Status sum_with(Stream *stream, Tensor total, Tensor x, double (*run)(const float *, int64_t)) {
    int64_t count = tensor_count(x);
    int threads = threads_for(stream, count);
    void *space;
    TRY(stream_workspace(stream, (size_t)threads * sizeof(double), &space));
    double *parts = space;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int part = 0; part < threads; part++)
        parts[part] = sum_part(x, range_part(count, 16, part, threads), run);
    double all = 0;
    for (int part = 0; part < threads; part++) all += parts[part];
    *(double *)total.data += all;
    return OK;
}

static Status sum_cpu(Stream *stream, Tensor total, Tensor x) {
    return sum_with(stream, total, x, sum_run);
}

static Status sum_squares_cpu(Stream *stream, Tensor total, Tensor x) {
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
