/* Softmax cross-entropy over rows of logits. The maximum and the sum of exponentials are computed in one
 * pass over the row: for each chunk that fits the L1 cache, first its maximum, then its exponentials. */
#include <math.h>

#include "kernels/cpu/approx.h"
#include "kernels/cpu/variant.h"
#include "kernels/ref/ref.h"

static float row_max(const float *x, int64_t n) {
    VecF max[4];
    for (int i = 0; i < 4; i++) max[i] = vec_set(-INFINITY);
    int64_t done = 0;
    for (; done + 4 * VEC <= n; done += 4 * VEC)
        for (int i = 0; i < 4; i++) max[i] = vec_max(max[i], vec_load(x + done + i * VEC));
    float all = vec_max_of(vec_max(vec_max(max[0], max[1]), vec_max(max[2], max[3])));
    for (; done < n; done++) all = x[done] > all ? x[done] : all;
    return all;
}

static float chunk_exp_sum(const float *x, float max, int64_t n) {
    const float log2e = 1.44269504f;
    VecF sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 * VEC <= n; i += 4 * VEC)
        for (int part = 0; part < 4; part++)
            sum[part] += vec_exp2((vec_load(x + i + part * VEC) - max) * log2e);
    float total = vec_sum_of((sum[0] + sum[1]) + (sum[2] + sum[3]));
    for (; i < n; i++) total += expf(x[i] - max);
    return total;
}

/* The maximum, and the sum of e^(x - maximum). Chunks also keep the fp32 partial sums short. A NaN, which
 * the maximum may miss, shows up in the sum. */
static void row_stats(const float *x, int64_t n, float *ret_max, float *ret_sum) {
    enum { CHUNK = 4096 };
    double total = 0;
    float max = -INFINITY;
    for (int64_t from = 0; from < n; from += CHUNK) {
        int64_t count = from + CHUNK < n ? CHUNK : n - from;
        float chunk_max = row_max(x + from, count);
        if (chunk_max > max) {
            total *= exp((double)max - (double)chunk_max);
            max = chunk_max;
        }
        total += (double)chunk_exp_sum(x + from, max == -INFINITY ? 0 : max, count);
    }
    *ret_max = max;
    *ret_sum = (float)total;
}

/* The arguments of all kernels. */
typedef struct Losses {
    Tensor losses, stats, logits, labels;
    VocabPart part;
    float scale;
    bool gradient;
} Losses;

static void partial_rows(const void *context, Range mine) {
    const Losses *f = context;
    int64_t V = tensor_cols(f->logits), real = vocab_columns(f->part, V);
    for (int64_t row = mine.from; row < mine.to; row++) {
        const float *x = tensor_f32(f->logits) + row * V;
        float *stat = tensor_f32(f->stats) + row * 3;
        int64_t label = vocab_row(f->part, V, tensor_i32(f->labels)[row]);
        row_stats(x, real, &stat[0], &stat[1]);
        stat[2] = label >= 0 ? x[label] : 0;
    }
}

static Status xent_partial_cpu(Stream *stream, Tensor stats, Tensor logits, Tensor labels, VocabPart part) {
    FP32_ELSE(xent_partial_ref(stream, stats, logits, labels, part), logits);
    Losses context = {.stats = stats, .logits = logits, .labels = labels, .part = part};
    ranges_run(stream, tensor_rows(logits), 1, tensor_count(logits), partial_rows, &context);
    return OK;
}

static void row_gradient(float *x, float max, float sum, int64_t label, int64_t real, int64_t V,
                         float scale) {
    float factor = scale / sum;
    int64_t i = 0;
    for (; i + 4 * VEC <= real; i += 4 * VEC) {
        VecF part[4];
        for (int p = 0; p < 4; p++) part[p] = vec_exp(vec_load(x + i + p * VEC) - max) * factor;
        for (int p = 0; p < 4; p++) vec_store(x + i + p * VEC, part[p]);
    }
    for (; i < real; i++) x[i] = expf(x[i] - max) * factor;
    memset(x + real, 0, (size_t)(V - real) * sizeof *x);
    if (label >= 0) x[label] -= scale;
}

static void finish_rows(const void *context, Range mine) {
    const Losses *f = context;
    int64_t V = tensor_cols(f->logits), real = vocab_columns(f->part, V);
    for (int64_t row = mine.from; row < mine.to; row++) {
        const float *stat = tensor_f32(f->stats) + row * 3;
        int32_t label = tensor_i32(f->labels)[row];
        float *x = tensor_f32(f->logits) + row * V;
        bool counted = label >= 0 && label < f->part.valid;
        tensor_f32(f->losses)[row] = counted ? stat[0] + logf(stat[1]) - stat[2] : 0;
        if (f->gradient && !counted)
            memset(x, 0, (size_t)V * sizeof *x);
        else if (f->gradient)
            row_gradient(x, stat[0], stat[1], vocab_row(f->part, V, label), real, V, f->scale);
    }
}

static Status xent_finish_cpu(Stream *stream, Tensor losses, Tensor logits, Tensor stats, Tensor labels,
                              VocabPart part, float scale, bool gradient) {
    FP32_ELSE(xent_finish_ref(stream, losses, logits, stats, labels, part, scale, gradient), logits);
    Losses context = {losses, stats, logits, labels, part, scale, gradient};
    ranges_run(stream, tensor_rows(logits), 1, tensor_count(logits), finish_rows, &context);
    return OK;
}

/* x = e^(x - max) over a chunk; returns the sum. Prefetches the chunk that follows in memory: exponentials
 * leave the memory idle, and the maximum of the next chunk would only wait for it. */
static float chunk_exp(float *x, float max, int64_t n) {
    enum { LINE = 16 };
    VecF sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 * VEC <= n; i += 4 * VEC) {
        VecF part[4];
        for (int line = 0; line < 4 * VEC; line += LINE) __builtin_prefetch(x + n + i + line, 1, 3);
        for (int p = 0; p < 4; p++) part[p] = vec_exp(vec_load(x + i + p * VEC) - max);
        for (int p = 0; p < 4; p++) vec_store(x + i + p * VEC, part[p]), sum[p] += part[p];
    }
    float total = vec_sum_of((sum[0] + sum[1]) + (sum[2] + sum[3]));
    for (; i < n; i++) total += x[i] = expf(x[i] - max);
    return total;
}

/* A row of logits becomes its gradient, with one exponential per logit: chunks are first scaled by their own
 * maxima, and then by that of the row. Stores the row's stats. */
static void row_loss(float *x, float *stat, int64_t label, int64_t real, int64_t V, float scale) {
    enum { CHUNK = 4096, CHUNKS = 64 };
    int64_t chunk = real <= CHUNK * CHUNKS ? CHUNK : (real + CHUNKS - 1) / CHUNKS;
    float max[CHUNKS], sum[CHUNKS], all = -INFINITY;
    stat[2] = label >= 0 ? x[label] : 0;
    for (int64_t from = 0, c = 0; from < real; from += chunk, c++) {
        int64_t n = from + chunk < real ? chunk : real - from;
        float own = row_max(x + from, n);
        max[c] = own == -INFINITY ? 0 : own;
        sum[c] = chunk_exp(x + from, max[c], n);
        all = own > all ? own : all;
    }
    double total = 0;
    float base = all == -INFINITY ? 0 : all;
    for (int64_t from = 0, c = 0; from < real; from += chunk, c++)
        total += (double)sum[c] * exp((double)max[c] - (double)base);
    for (int64_t from = 0, c = 0; from < real; from += chunk, c++) {
        float factor = (float)(exp((double)max[c] - (double)base) / total) * scale;
        int64_t to = from + chunk < real ? from + chunk : real;
#pragma omp simd
        for (int64_t i = from; i < to; i++) x[i] *= factor;
    }
    memset(x + real, 0, (size_t)(V - real) * sizeof *x);
    if (label >= 0) x[label] -= scale;
    stat[0] = all;
    stat[1] = (float)total;
}

static void loss_rows(const void *context, Range mine) {
    const Losses *f = context;
    int64_t V = tensor_cols(f->logits), real = vocab_columns(f->part, V);
    for (int64_t row = mine.from; row < mine.to; row++) {
        int32_t label = tensor_i32(f->labels)[row];
        float *x = tensor_f32(f->logits) + row * V, *stat = tensor_f32(f->stats) + row * 3;
        bool counted = label >= 0 && label < f->part.valid;
        row_loss(x, stat, vocab_row(f->part, V, label), real, V, f->scale);
        tensor_f32(f->losses)[row] = counted ? stat[0] + logf(stat[1]) - stat[2] : 0;
        if (!counted) memset(x, 0, (size_t)V * sizeof *x);
    }
}

static Status xent_loss_cpu(Stream *stream, Tensor losses, Tensor stats, Tensor logits, Tensor labels,
                            VocabPart part, float scale, bool gradient) {
    if (!gradient || logits.dtype != DT_F32) {
        TRY(xent_partial_cpu(stream, stats, logits, labels, part));
        return xent_finish_cpu(stream, losses, logits, stats, labels, part, scale, gradient);
    }
    Losses context = {losses, stats, logits, labels, part, scale, gradient};
    ranges_run(stream, tensor_rows(logits), 1, tensor_count(logits), loss_rows, &context);
    return OK;
}

void VARIANT(xent_override)(KernelTable *table) {
    table->xent_partial = xent_partial_cpu;
    table->xent_finish = xent_finish_cpu;
    table->xent_loss = xent_loss_cpu;
}
