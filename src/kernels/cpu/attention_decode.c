/* Attention of new positions with a KV cache. Several new positions at once (a prompt) use the tiles of
 * attention_forward.c. With one or a few, reading the cache is the bottleneck, so each query passes over the
 * rows of its head once for the scores and once for the values. These passes read int8 caches directly; for
 * the tiles, int8 caches are first dequantized.
 *
 * Query heads that share keys and values run one after the other on a thread, so that only the first reads
 * them from memory, unless there are too few key heads for all threads.
 *
 * With a part of the cache, the rows that a query sees are still consecutive.
 *
 * B sequences, T new positions, S cache capacity in positions, H heads, G key and value heads, D head size */
#include <math.h>

#include "kernels/cpu/approx.h"
#include "kernels/cpu/attention.h"

/* The minimum number of new positions for which packing pays off. */
enum { TILES_FROM = 8 };
/* Vectors of the output that are accumulated at once. */
#if defined(__aarch64__)
enum { STRIP = 16 };
#else
enum { STRIP = 8 };
#endif

static Status check_cache_capacity(HeadShape s, int64_t S, Tensor past, Tensor fresh, const Attention *spec) {
    for (int64_t b = 0; b < s.B; b++) {
        int64_t before = tensor_i32(past)[b], now = tensor_i32(fresh)[b];
        if (before < 0 || now < 0 || now > s.T || cache_rows_before(&spec->part, before + now) > S)
            return FAILED("internal: attention_decode: sequence %lld has %lld past and %lld new positions, "
                          "but the cache has room for %lld",
                          (long long)b, (long long)before, (long long)now, (long long)S);
    }
    return OK;
}

/* scores (count) = scale * (k . q) for `count` (4 or 1) consecutive rows of k, starting at element `at`. */
static ALWAYS_INLINE void score_rows(DType dtype, float *scores, const float *q, const void *k, int64_t at,
                                     int count, int64_t D, float scale) {
    VecF dots[4][2] = {0}, sums[4] = {0};
    float all[4];
    int64_t d = 0;
    for (; d + 2 * VEC <= D; d += 2 * VEC)
        for (int i = 0; i < count; i++) {
            dots[i][0] += vec_load(q + d) * vec_get(k, dtype, at + i * D + d);
            dots[i][1] += vec_load(q + d + VEC) * vec_get(k, dtype, at + i * D + d + VEC);
        }
    for (int i = 0; i < count; i++) sums[i] = dots[i][0] + dots[i][1];
    vec_sum_four(all, sums);
    for (int i = 0; i < count; i++) {
        for (int64_t tail = d; tail < D; tail++) all[i] += q[tail] * half_get(k, dtype, at + i * D + tail);
        scores[i] = all[i] * scale;
    }
}

static ALWAYS_INLINE void row_scores(DType dtype, float *scores, const float *q, const void *k, int64_t keys,
                                     int64_t D, float scale) {
    int64_t i = 0;
    for (; i + 4 <= keys; i += 4) score_rows(dtype, scores + i, q, k, i * D, 4, D, scale);
    for (; i < keys; i++) score_rows(dtype, scores + i, q, k, i * D, 1, D, scale);
}

/* The scale that follows the elements of an int8 row. */
static float row_scale(const int8_t *row, int64_t D) {
    float scale;
    memcpy(&scale, row + D, sizeof scale);
    return scale;
}

static void row_scores_int8(float *scores, const float *q, const int8_t *k, int64_t keys, int64_t D,
                            float scale) {
    for (int64_t i = 0; i < keys; i++, k += D + CACHE_SCALE) {
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t d = 0; d < D; d++) dot += q[d] * (float)k[d];
        scores[i] = dot * (row_scale(k, D) * scale);
    }
}

static void row_mix_int8(float *out, const float *weights, const int8_t *v, int64_t keys, int64_t D) {
    int64_t pitch = D + CACHE_SCALE, i = 0;
    memset(out, 0, (size_t)D * sizeof *out);
    for (; i + 2 <= keys; i += 2, v += 2 * pitch) {
        float w0 = weights[i] * row_scale(v, D), w1 = weights[i + 1] * row_scale(v + pitch, D);
#pragma omp simd
        for (int64_t d = 0; d < D; d++) out[d] += w0 * (float)v[d] + w1 * (float)v[pitch + d];
    }
    if (i == keys) return;
    float w = weights[i] * row_scale(v, D);
#pragma omp simd
    for (int64_t d = 0; d < D; d++) out[d] += w * (float)v[d];
}

/* out = weights (keys) v for `width` vectors of out. `width` is a constant, so that the accumulators stay in
 * registers. Rows of v are D apart. */
static ALWAYS_INLINE void strip_mix(DType dtype, float *out, const float *weights, const void *v, int64_t at,
                                    int64_t keys, int64_t D, int width) {
    VecF sum[STRIP] = {0};
    for (int64_t k = 0; k < keys; k++, at += D)
#pragma GCC unroll 16
        for (int j = 0; j < width; j++) sum[j] += weights[k] * vec_get(v, dtype, at + j * VEC);
    for (int j = 0; j < width; j++) vec_store(out + j * VEC, sum[j]);
}

static ALWAYS_INLINE void row_mix(DType dtype, float *out, const float *weights, const void *v, int64_t keys,
                                  int64_t D) {
    int64_t d = 0;
    for (; d + STRIP * VEC <= D; d += STRIP * VEC) strip_mix(dtype, out + d, weights, v, d, keys, D, STRIP);
    for (; d + 4 * VEC <= D; d += 4 * VEC) strip_mix(dtype, out + d, weights, v, d, keys, D, 4);
    memset(out + d, 0, (size_t)(D - d) * sizeof *out);
    for (int64_t k = 0; k < keys && d < D; k++)
        for (int64_t tail = d; tail < D; tail++) out[tail] += weights[k] * half_get(v, dtype, k * D + tail);
}

/* Replaces x (n) by e^(x - max) and returns the sum. x has room for full vectors. */
static float exponentials(float *x, int64_t n, float *ret_max) {
    VecF max = vec_set(-INFINITY), sum = {0};
    int64_t padded = (n + VEC - 1) / VEC * VEC;
    for (int64_t i = n; i < padded; i++) x[i] = -INFINITY;
    for (int64_t i = 0; i < padded; i += VEC) max = vec_max(max, vec_load(x + i));
    float base = vec_max_of(max);
    for (int64_t i = 0; i < padded; i += VEC) {
        VecF e = vec_exp(vec_load(x + i) - base);
        vec_store(x + i, e);
        sum += e;
    }
    *ret_max = base;
    return vec_sum_of(sum);
}

/* Scratch memory of a thread. */
typedef struct Scratch {
    float *scores;      /* (keys), rounded up to full vectors */
    float *query, *out; /* (D) */
} Scratch;

static Scratch scratch_take(Bump *bump, int64_t keys, int64_t D) {
    return (Scratch){
        .scores = floats(bump, round_up(keys, VEC)),
        .query = floats(bump, D),
        .out = floats(bump, D),
    };
}

/* Attention of one query to the rows of the caches up to its own position. */
static void query_run(const HeadJob *job, int64_t t, const Scratch *scratch) {
    int64_t first = mask_first(&job->mask, t), keys = mask_end(&job->mask, t) - first;
    float *scores = scratch->scores;
    int64_t D = job->D, at = job->out.at + t * job->out.stride;
    const float *q = run_in(job->q.in, job->q.at + t * job->q.stride, D, scratch->query);
    bool int8 = job->k.in.dtype == DT_I8;
    const void *k = run_at(job->k.in, job->k.at + first * job->k.stride);
    const void *v = run_at(job->v.in, job->v.at + first * job->v.stride);
    if (int8)
        row_scores_int8(scores, q, k, keys, D, job->scale);
    else
        BY_TYPE(job->k.in.dtype, row_scores, scores, q, k, keys, D, job->scale);
    float largest, sum = exponentials(scores, keys, &largest), *out = run_out(job->out.in, at, scratch->out);
    if (int8)
        row_mix_int8(out, scores, v, keys, D);
    else
        BY_TYPE(job->v.in.dtype, row_mix, out, scores, v, keys, D);
    float inverse = sum == 0 ? 0.0f : 1.0f / sum;
    if (job->lse) job->lse[t] = largest + logf(sum);
#pragma omp simd
    for (int64_t d = 0; d < D; d++) out[d] *= inverse;
    run_end(job->out.in, at, D, out);
}

/* Quantizes D elements to an int8 row with its scale. */
static void quantize_row(int8_t *to, const float *x, int64_t D) {
    float largest = 0;
    int finite = 1;
    for (int64_t d = 0; d < D; d++) {
        finite &= isfinite(x[d]) != 0;
        largest = fabsf(x[d]) > largest ? fabsf(x[d]) : largest;
    }
    float scale = finite ? largest / 127.0f : NAN, inverse = finite && largest > 0 ? 127.0f / largest : 0;
    if (isinf(inverse)) inverse = 0; /* the reciprocal overflowed: treat the row as zero */
    for (int64_t d = 0; d < D; d++) to[d] = finite ? (int8_t)rintf(x[d] * inverse) : 0;
    memcpy(to + D, &scale, sizeof scale);
}

/* Stores the first of the new rows as row `to` of a cache; `row` is scratch for one row. */
static void cache_put(Rows cache, int64_t to, Rows fresh, float *row) {
    DType type = cache.in.dtype;
    size_t size = dtype_size(type);
    void *at = (char *)cache.in.data + (size_t)(cache.at + to * cache.stride) * size;
    if (type == fresh.in.dtype)
        memcpy(at, run_at(fresh.in, fresh.at), (size_t)cache.D * size);
    else if (type == DT_I8)
        quantize_row(at, run_in(fresh.in, fresh.at, cache.D, row), cache.D);
    else
        half_store(at, type, 0, run_in(fresh.in, fresh.at, cache.D, row), cache.D);
}

/* Dequantizes the first rows of an int8 cache to `to`. */
static Rows dequantize(Rows cache, int64_t count, float *to) {
    const int8_t *from = (const int8_t *)cache.in.data + cache.at;
    for (int64_t i = 0; i < count; i++, from += cache.stride) {
        float scale = row_scale(from, cache.D), *row = to + i * cache.D;
#pragma omp simd
        for (int64_t d = 0; d < cache.D; d++) row[d] = (float)from[d] * scale;
    }
    return (Rows){tensor_2d(to, DT_F32, count, cache.D), 0, cache.D, cache.D};
}

/* Many new positions: uses tiles. */
static void tiles_run(HeadJob *job, void *memory) {
    Bump bump = {.base = memory};
    if (job->k.in.dtype == DT_I8) {
        size_t bytes = (size_t)(job->mask.keys * job->D) * sizeof(float);
        job->k = dequantize(job->k, job->mask.keys, bump_take(&bump, bytes));
        job->v = dequantize(job->v, job->mask.keys, bump_take(&bump, bytes));
    }
    attention_head(job, (Range){0, job->T}, bump_take(&bump, attention_head_scratch(job->mask.keys, job->D)));
}

/* A call: new rows, caches and what all heads share. */
typedef struct Decode {
    HeadShape s;
    Tensor out, qkv, kcache, vcache;
    const int32_t *past, *fresh;
    const Attention *spec;
} Decode;

/* The rows of a key head in a cache; `at` counts heads over all sequences. */
static Rows cache_rows(const Decode *call, Tensor cache, int64_t at) {
    int64_t pitch = cache.dim[3];
    return (Rows){cache, at * cache.dim[2] * pitch, pitch, call->s.D};
}

/* Appends the new rows of a key head to the caches; `row` is scratch for one row. */
static void append(const Decode *call, int64_t at, float *row) {
    HeadShape s = call->s;
    const CachePart *part = &call->spec->part;
    int64_t b = at / s.G, h = at % s.G * s.qkv.group, past = call->past[b], fresh = call->fresh[b];
    Rows k = head_part(call->qkv, s, PART_K, b, h), v = head_part(call->qkv, s, PART_V, b, h);
    for (int64_t t = 0; t < fresh; t++) {
        int64_t to = cache_rows_before(part, past + t);
        if (cache_rows_before(part, past + t + 1) == to) continue;
        cache_put(cache_rows(call, call->kcache, at), to, rows_from(k, t), row);
        cache_put(cache_rows(call, call->vcache, at), to, rows_from(v, t), row);
    }
}

/* Runs the queries of a query head. */
static void head_decode(const Decode *call, int64_t at, void *memory) {
    HeadShape s = call->s;
    const Attention *spec = call->spec;
    int64_t b = at / s.H, h = at % s.H, keys = at / s.qkv.group, past = call->past[b];
    HeadJob job = {
        .T = call->fresh[b],
        .D = s.D,
        .mask = {.causal = true,
                 .window = spec->window,
                 .keys = cache_rows_before(&spec->part, past + call->fresh[b]),
                 .query_at = {.first = past},
                 .part = spec->part},
        .scale = spec->scale,
        .q = head_part(call->qkv, s, PART_Q, b, h),
        .k = cache_rows(call, call->kcache, keys),
        .v = cache_rows(call, call->vcache, keys),
        .out = head_out(call->out, s, b, h),
        .lse = spec->lse.data ? tensor_f32(spec->lse) + at * s.T : NULL,
    };
    if (job.T >= TILES_FROM) {
        tiles_run(&job, memory);
        return;
    }
    Bump bump = {.base = memory};
    Scratch scratch = scratch_take(&bump, job.mask.keys, s.D);
    for (int64_t t = 0; t < job.T; t++) query_run(&job, t, &scratch);
}

static size_t decode_scratch(int64_t T, int64_t keys, int64_t D, bool int8) {
    Bump rows = {0}, tiles = {0};
    scratch_take(&rows, keys, D);
    if (T < TILES_FROM) return (size_t)round_up((int64_t)rows.used, BUMP_ALIGN);
    for (int i = 0; int8 && i < 2; i++) bump_take(&tiles, (size_t)(keys * D) * sizeof(float));
    bump_take(&tiles, attention_head_scratch(keys, D));
    return (size_t)round_up((int64_t)(rows.used > tiles.used ? rows.used : tiles.used), BUMP_ALIGN);
}

/* What the threads share. A task is the query heads of a key head, or a single one if there are too few key
 * heads for all threads; new rows are then appended by tasks of their own. */
typedef struct Tasks {
    const Decode *call;
    unsigned char *memory; /* scratch memory, `each` bytes per thread */
    size_t each;
    int64_t step; /* query heads per task */
} Tasks;

static bool appends(const Tasks *tasks) {
    return tasks->step == tasks->call->s.qkv.group;
}

static void append_task(const void *context, int64_t task, int thread) {
    const Tasks *tasks = context;
    append(tasks->call, task, (float *)(void *)(tasks->memory + (size_t)thread * tasks->each));
}

static void heads_task(const void *context, int64_t task, int thread) {
    const Tasks *tasks = context;
    void *mine = tasks->memory + (size_t)thread * tasks->each;
    if (appends(tasks)) append(tasks->call, task, mine);
    for (int64_t i = 0; i < tasks->step; i++) head_decode(tasks->call, task * tasks->step + i, mine);
}

/* A decode step, as an OpenMP region. */
static void tasks_run_step(const Tasks *tasks, int64_t keys, int64_t heads, int threads) {
#pragma omp parallel num_threads(threads)
    {
        if (!appends(tasks)) {
#pragma omp for schedule(static)
            for (int64_t task = 0; task < keys; task++) append_task(tasks, task, omp_get_thread_num());
        }
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < heads; task++) heads_task(tasks, task, omp_get_thread_num());
    }
}

/* A prompt, as jobs of the pool like its linear layers: threads of an OpenMP region would still spin when
 * those start. */
static void tasks_run_prompt(const Tasks *tasks, int64_t keys, int64_t heads, Pool *pool) {
    if (!appends(tasks)) pool_run(pool, keys, append_task, tasks);
    pool_run(pool, heads, heads_task, tasks);
}

static Status attention_decode_cpu(Stream *stream, Tensor out, Tensor kcache, Tensor vcache, Tensor qkv,
                                   Tensor past, Tensor fresh, Attention spec) {
    HeadShape s = head_shape(qkv, &spec);
    int64_t longest = 0;
    TRY(check_cache_capacity(s, kcache.dim[2], past, fresh, &spec));
    for (int64_t b = 0; b < s.B; b++) {
        int64_t keys = cache_rows_before(&spec.part, tensor_i32(past)[b] + tensor_i32(fresh)[b]);
        longest = keys > longest ? keys : longest;
    }
    Decode call = {s, out, qkv, kcache, vcache, tensor_i32(past), tensor_i32(fresh), &spec};
    int threads = threads_for(stream, s.B * s.H * longest * s.D);
    Tasks tasks = {.call = &call, .each = decode_scratch(s.T, longest, s.D, kcache.dtype == DT_I8)};
    void *memory;
    TRY(stream_workspace(stream, (size_t)threads * tasks.each, &memory));
    tasks.memory = memory;
    int64_t keys = s.B * s.G;
    tasks.step = keys >= threads ? s.qkv.group : 1;
    if (s.T >= TILES_FROM)
        tasks_run_prompt(&tasks, keys, s.B * s.H / tasks.step, threads > 1 ? stream->device->pool : NULL);
    else
        tasks_run_step(&tasks, keys, s.B * s.H / tasks.step, threads);
    return OK;
}

void VARIANT(attention_decode_override)(KernelTable *table) {
    table->attention_decode = attention_decode_cpu;
}
