/* Attention of new positions against caches of keys and values. Several new positions at once (a prompt)
 * go through the tiles of attention_forward.c; one or a few are bound by reading the caches, so each
 * query runs along the rows of its head once for the scores and once for the values.
 *
 * Legend: B sequences, T new positions, S positions a cache holds, H heads, D = C/H */
#include <math.h>

#include "kernels/cpu/approx.h"
#include "kernels/cpu/attention.h"

/* From so many new positions on, packing pays. */
enum { TILES_FROM = 8 };

static Status check_room(HeadShape s, int64_t S, Tensor past, Tensor fresh) {
    for (int64_t b = 0; b < s.B; b++) {
        int64_t before = tensor_i32(past)[b], now = tensor_i32(fresh)[b];
        if (before < 0 || now < 0 || now > s.T || before + now > S)
            return FAILED("internal: attention_decode: sequence %lld has %lld past and %lld new positions, "
                          "the cache holds %lld",
                          (long long)b, (long long)before, (long long)now, (long long)S);
    }
    return OK;
}

/* scores (keys) = scale * (k . q) for rows of k, which lie one after another. */
static void row_scores(float *scores, const float *q, Rows k, int64_t keys, float scale, float *stage) {
    int64_t D = k.D;
    for (int64_t first = 0; first < keys; first += STAGE_ROWS) {
        int64_t n = least_of(STAGE_ROWS, keys - first);
        const float *row = run_in(k.in, k.at + first * D, n * D, stage);
        for (int64_t i = 0; i < n; i++, row += D) {
            float dot = 0;
#pragma omp simd reduction(+ : dot)
            for (int64_t d = 0; d < D; d++) dot += q[d] * row[d];
            scores[first + i] = dot * scale;
        }
    }
}

/* out (D) += weights (n) v, four rows at a time. */
static void mix(float *out, const float *weights, const float *v, int64_t n, int64_t D) {
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) {
        const float *row = v + k * D, *w = weights + k;
#pragma omp simd
        for (int64_t d = 0; d < D; d++)
            out[d] += w[0] * row[d] + w[1] * row[D + d] + (w[2] * row[2 * D + d] + w[3] * row[3 * D + d]);
    }
    for (; k < n; k++)
        for (int64_t d = 0; d < D; d++) out[d] += weights[k] * v[k * D + d];
}

static void row_mix(float *out, const float *weights, Rows v, int64_t keys, float *stage) {
    memset(out, 0, (size_t)v.D * sizeof *out);
    for (int64_t first = 0; first < keys; first += STAGE_ROWS) {
        int64_t n = least_of(STAGE_ROWS, keys - first);
        mix(out, weights + first, run_in(v.in, v.at + first * v.D, n * v.D, stage), n, v.D);
    }
}

/* One thread's memory. */
typedef struct Space {
    float *scores;      /* (keys), rounded up to whole vectors */
    float *query, *out; /* (D) */
    float *stage;       /* (STAGE_ROWS, D), see attention.h */
} Space;

static Space space_take(Bump *bump, int64_t keys, int64_t D) {
    return (Space){
        .scores = bump_take(bump, (size_t)round_to(keys, VEC) * sizeof(float)),
        .query = bump_take(bump, (size_t)D * sizeof(float)),
        .out = bump_take(bump, (size_t)D * sizeof(float)),
        .stage = bump_take(bump, (size_t)(STAGE_ROWS * D) * sizeof(float)),
    };
}

/* One query of a job against the first `keys` rows of the caches. */
static void query_run(const HeadJob *job, int64_t t, const Space *space, int64_t keys) {
    float *scores = space->scores;
    int64_t D = job->D, at = job->out.at + t * job->out.stride;
    const float *q = run_in(job->q.in, job->q.at + t * job->q.stride, D, space->query);
    row_scores(scores, q, job->k, keys, job->scale, space->stage);
    float most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < keys; i++) most = scores[i] > most ? scores[i] : most;
    for (int64_t i = 0; i < keys; i += VEC) vec_store(scores + i, vec_exp(vec_load(scores + i) - most));
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < keys; i++) sum += scores[i];
    float *out = run_out(job->out.in, at, space->out);
    row_mix(out, scores, job->v, keys, space->stage);
    float inverse = 1.0f / sum;
#pragma omp simd
    for (int64_t d = 0; d < D; d++) out[d] *= inverse;
    run_end(job->out.in, at, D, out);
}

/* Rows first .. first + count - 1 of a cache = the new ones. */
static void cache_put(Rows cache, int64_t first, Rows fresh, int64_t count) {
    size_t size = dtype_size(cache.in.dtype);
    for (int64_t t = 0; t < count; t++)
        memcpy((char *)cache.in.data + (size_t)(cache.at + (first + t) * cache.stride) * size,
               (char *)fresh.in.data + (size_t)(fresh.at + t * fresh.stride) * size, (size_t)cache.D * size);
}

/* One head of one sequence: its new rows go to the caches, then its queries run. */
static void head_decode(const HeadJob *job, Rows keys, Rows values, void *memory) {
    cache_put(keys, job->past, job->k, job->T);
    cache_put(values, job->past, job->v, job->T);
    HeadJob cached = *job;
    cached.k = keys;
    cached.v = values;
    if (job->T >= TILES_FROM) {
        attention_head(&cached, (Range){0, job->T}, memory);
        return;
    }
    Bump bump = {.base = memory};
    Space space = space_take(&bump, job->keys, job->D);
    for (int64_t t = 0; t < job->T; t++) query_run(&cached, t, &space, job->past + t + 1);
}

static size_t decode_space(int64_t T, int64_t keys, int64_t D) {
    if (T >= TILES_FROM) return attention_head_space(keys, D);
    Bump count = {0};
    space_take(&count, keys, D);
    return (size_t)round_to((int64_t)count.used, BUMP_ALIGN);
}

static Status attention_decode_cpu(Stream *stream, Tensor out, Tensor kcache, Tensor vcache, Tensor qkv,
                                   Tensor past, Tensor fresh, float scale) {
    HeadShape s = head_shape(qkv);
    int64_t S = kcache.dim[2], longest = 0;
    TRY(check_room(s, S, past, fresh));
    for (int64_t b = 0; b < s.B; b++) {
        int64_t keys = tensor_i32(past)[b] + tensor_i32(fresh)[b];
        longest = keys > longest ? keys : longest;
    }
    int threads = threads_for(stream, s.B * s.H * longest * s.D);
    size_t few = decode_space(1, longest, s.D), many = decode_space(s.T, longest, s.D);
    size_t each = few > many ? few : many;
    void *memory;
    TRY(stream_workspace(stream, (size_t)threads * each, &memory));
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t at = 0; at < s.B * s.H; at++) {
        int64_t b = at / s.H, h = at % s.H;
        HeadJob job = {
            .T = tensor_i32(fresh)[b],
            .D = s.D,
            .keys = tensor_i32(past)[b] + tensor_i32(fresh)[b],
            .past = tensor_i32(past)[b],
            .causal = true,
            .scale = scale,
            .q = head_part(qkv, s, PART_Q, b, h),
            .k = head_part(qkv, s, PART_K, b, h),
            .v = head_part(qkv, s, PART_V, b, h),
            .out = head_out(out, s, b, h),
        };
        Rows keys = {kcache, at * S * s.D, s.D, s.D}, values = {vcache, at * S * s.D, s.D, s.D};
        head_decode(&job, keys, values, (unsigned char *)memory + (size_t)omp_get_thread_num() * each);
    }
    return OK;
}

void VARIANT(attention_decode_override)(KernelTable *table) {
    table->attention_decode = attention_decode_cpu;
}
