/* Fills, conversions and reductions over flat tensors. Reductions run in fp64: each part of SUM_PART elements
 * has its own sum, and the partial sums are added in order, so they do not depend on the number of threads.
 */
#include "kernels/cpu/map.h"
#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

/* The operands of a kernel over flat tensors. */
typedef struct Flat {
    Tensor y, x;
    float value;
} Flat;

static void fill_range(const void *context, Range mine) {
    const Flat *f = context;
    float value = f->value;
    uint16_t half = f->y.dtype == DT_BF16 ? f32_to_bf16(value) : f32_to_f16(value);
    if (f->y.dtype == DT_F32) {
#pragma omp simd
        for (int64_t i = mine.from; i < mine.to; i++) tensor_f32(f->y)[i] = value;
    } else {
#pragma omp simd
        for (int64_t i = mine.from; i < mine.to; i++) ((uint16_t *)f->y.data)[i] = half;
    }
}

static Status fill_cpu(Stream *stream, Tensor x, float value) {
    Flat flat = {.y = x, .value = value};
    ranges_run(stream, tensor_count(x), 16, tensor_count(x), fill_range, &flat);
    return OK;
}

/* Plain copies, and fp64, which is rare. This cannot fail with the types that `convert` accepts. */
static void convert_plain(const void *context, Range mine) {
    const Flat *f = context;
    status_free(dtype_convert(run_at(f->y, mine.from), f->y.dtype, run_at(f->x, mine.from), f->x.dtype,
                              (size_t)(mine.to - mine.from)));
}

static ALWAYS_INLINE void convert_from(DType from_type, void *to, DType to_type, const void *from,
                                       int64_t n) {
    switch (to_type) {
    case DT_BF16: half_copy(to, DT_BF16, from, from_type, n); break;
    case DT_F16: half_copy(to, DT_F16, from, from_type, n); break;
    default: half_copy(to, DT_F32, from, from_type, n);
    }
}

static void convert_range(const void *context, Range mine) {
    const Flat *f = context;
    BY_TYPE(f->x.dtype, convert_from, run_at(f->y, mine.from), f->y.dtype, run_at(f->x, mine.from),
            mine.to - mine.from);
}

static Status convert_cpu(Stream *stream, Tensor y, Tensor x) {
    bool plain = y.dtype == DT_F64 || x.dtype == DT_F64 || x.dtype == y.dtype;
    Flat flat = {.y = y, .x = x};
    ranges_run(stream, tensor_count(x), 64, tensor_count(x), plain ? convert_plain : convert_range, &flat);
    return OK;
}

static ALWAYS_INLINE void add_from(DType from_type, void *to, DType to_type, const void *from, int64_t n) {
    BY_TYPE(to_type, map_add, to, from_type, from, n);
}

static void add_range(const void *context, Range mine) {
    const Flat *f = context;
    BY_TYPE(f->x.dtype, add_from, run_at(f->y, mine.from), f->y.dtype, run_at(f->x, mine.from),
            mine.to - mine.from);
}

static Status add_cpu(Stream *stream, Tensor y, Tensor x) {
    Flat flat = {.y = y, .x = x};
    ranges_run(stream, tensor_count(y), 16, tensor_count(y), add_range, &flat);
    return OK;
}

static ALWAYS_INLINE void scale_run(DType dtype, void *y, int64_t n, float factor) {
    int64_t i = 0;
    for (; i + 2 * VEC <= n; i += 2 * VEC) {
        VecF first = vec_get(y, dtype, i) * factor, second = vec_get(y, dtype, i + VEC) * factor;
        vec_put(y, dtype, i, first), vec_put(y, dtype, i + VEC, second);
    }
    for (; i < n; i++) half_put(y, dtype, i, half_get(y, dtype, i) * factor);
}

static void scale_range(const void *context, Range mine) {
    const Flat *f = context;
    BY_TYPE(f->y.dtype, scale_run, run_at(f->y, mine.from), mine.to - mine.from, f->value);
}

static Status scale_cpu(Stream *stream, Tensor y, float factor) {
    Flat flat = {.y = y, .value = factor};
    ranges_run(stream, tensor_count(y), 16, tensor_count(y), scale_range, &flat);
    return OK;
}

/* Half a vector of floats as fp64. */
typedef double VecD __attribute__((vector_size(4 * VEC)));

static inline VecD vec_load_wide(const float *from) {
    typedef float Half __attribute__((vector_size(2 * VEC)));
    Half half;
    memcpy(&half, from, sizeof half);
    return __builtin_convertvector(half, VecD);
}

/* The sum of x or of its squares. Prefetches, because the CPU's own prefetching alone keeps too few lines in
 * flight. */
static ALWAYS_INLINE double sum_power(const float *x, int64_t n, int power) {
    enum { SUMS = 4, WIDE = VEC / 2, LINE = 16, AHEAD = 512 };
    VecD sums[SUMS] = {0};
    int64_t i = 0;
    for (; i + SUMS * WIDE <= n; i += SUMS * WIDE) {
        for (int line = 0; line < SUMS * WIDE; line += LINE) __builtin_prefetch(x + i + AHEAD + line, 0, 3);
        for (int s = 0; s < SUMS; s++) {
            VecD v = vec_load_wide(x + i + s * WIDE);
            sums[s] += power == 2 ? v * v : v;
        }
    }
    double sum = 0;
    VecD all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int lane = 0; lane < WIDE; lane++) sum += all[lane];
    for (; i < n; i++) sum += power == 2 ? (double)x[i] * (double)x[i] : (double)x[i];
    return sum;
}
static double sum_run(const float *x, int64_t n) {
    return sum_power(x, n, 1);
}
static double sum_squares_run(const float *x, int64_t n) {
    return sum_power(x, n, 2);
}

static double sum_part(Tensor x, Range range, double (*run)(const float *, int64_t)) {
    enum { CHUNK = 512 };
    if (x.dtype == DT_F32) return run(tensor_f32(x) + range.from, range.to - range.from);
    double sum = 0;
    float buffer[CHUNK];
    for (int64_t at = range.from; at < range.to; at += CHUNK) {
        int64_t n = range.to - at < CHUNK ? range.to - at : CHUNK;
        sum += run(run_in(x, at, n, buffer), n);
    }
    return sum;
}

/* A part takes 10 us, so that threads that progress at different speeds finish together. */
enum { SUM_PART = 32768 };

static int64_t sum_parts(int64_t count) {
    return (count + SUM_PART - 1) / SUM_PART;
}

typedef struct SumJob {
    Tensor x;
    double (*run)(const float *, int64_t);
    double *parts;
} SumJob;

static void sum_task(const void *context, int64_t part, int thread) {
    (void)thread;
    const SumJob *job = context;
    int64_t from = part * SUM_PART, count = tensor_count(job->x);
    Range range = {from, from + SUM_PART < count ? from + SUM_PART : count};
    job->parts[part] = sum_part(job->x, range, job->run);
}

static double sum_in_order(const double *parts, int64_t count) {
    double all = 0;
    for (int64_t part = 0; part < count; part++) all += parts[part];
    return all;
}

/* `parts` has room for all partial sums. */
static double sum_parallel(const Stream *stream, double *parts, Tensor x,
                           double (*run)(const float *, int64_t)) {
    int64_t count = tensor_count(x);
    SumJob job = {x, run, parts};
    pool_run(pool_for(stream, count), sum_parts(count), sum_task, &job);
    return sum_in_order(parts, sum_parts(count));
}

static Status sum_with(Stream *stream, Tensor total, Tensor x, double (*run)(const float *, int64_t)) {
    void *workspace;
    TRY(stream_workspace(stream, (size_t)sum_parts(tensor_count(x)) * sizeof(double), &workspace));
    *(double *)total.data += sum_parallel(stream, workspace, x, run);
    return OK;
}

static Status sum_cpu(Stream *stream, Tensor total, Tensor x) {
    return sum_with(stream, total, x, sum_run);
}

/* Squares that idle threads add up. */
typedef struct BackgroundSum {
    Tensor x, total;
    double parts[];
} BackgroundSum;

static void background_sum_task(const void *context, int64_t part, int thread) {
    BackgroundSum *sum = (BackgroundSum *)context;
    sum_task(&(SumJob){sum->x, sum_squares_run, sum->parts}, part, thread);
}

static void background_sum_finish(const void *context) {
    const BackgroundSum *sum = context;
    *(double *)sum->total.data += sum_in_order(sum->parts, sum_parts(tensor_count(sum->x)));
}

static Status add_background_sum(Stream *stream, Tensor total, Tensor x) {
    int64_t parts = sum_parts(tensor_count(x));
    void *workspace;
    size_t bytes = sizeof(BackgroundSum) + (size_t)parts * sizeof(double);
    TRY(stream_workspace(stream, bytes, &workspace));
    BackgroundSum *sum = workspace;
    *sum = (BackgroundSum){.x = x, .total = total};
    PoolWork work = {parts, background_sum_task, background_sum_finish, sum, bytes};
    return pool_add_background(stream->device->pool, &work, &stream->background_work);
}

static Status sum_squares_cpu(Stream *stream, Tensor total, Tensor x) {
    if (stream->background && tensor_count(x) > SUM_PART) return add_background_sum(stream, total, x);
    return sum_with(stream, total, x, sum_squares_run);
}

static Status sum_squares_parts_cpu(Stream *stream, Tensor totals, Tensor x, int64_t skip, int64_t share) {
    int64_t count = tensor_count(x);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)sum_parts(share < count ? share : count) * sizeof(double),
                         &workspace));
    for (int64_t at = 0, end; at < count; at = end) {
        int64_t part = (skip + at) / share, next = (part + 1) * share - skip;
        end = next < count ? next : count;
        ((double *)totals.data)[part] +=
            sum_parallel(stream, workspace, tensor_slice(x, at, end - at), sum_squares_run);
    }
    return OK;
}

void VARIANT(elementwise_override)(KernelTable *table) {
    table->fill = fill_cpu;
    table->convert = convert_cpu;
    table->add = add_cpu;
    table->scale = scale_cpu;
    table->sum = sum_cpu;
    table->sum_squares = sum_squares_cpu;
    table->sum_squares_parts = sum_squares_parts_cpu;
}
