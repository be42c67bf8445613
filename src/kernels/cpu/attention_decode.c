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
static ALWAYS_INLINE void row_scores(DType dtype, float *scores, const float *q, const void *k, int64_t keys,
                                     int64_t D, float scale) {
    for (int64_t i = 0; i < keys; i++) {
        VecF dots[2] = {0};
        float dot = 0;
        int64_t d = 0, row = i * D;
        for (; d + 2 * VEC <= D; d += 2 * VEC) {
            dots[0] += vec_load(q + d) * vec_get(k, dtype, row + d);
            dots[1] += vec_load(q + d + VEC) * vec_get(k, dtype, row + d + VEC);
        }
        for (; d < D; d++) dot += q[d] * half_get(k, dtype, row + d);
        scores[i] = (dot + vec_sum_of(dots[0] + dots[1])) * scale;
    }
}

/* out (D) = weights (keys) v, four rows at a time. */
static ALWAYS_INLINE void row_mix(DType dtype, float *out, const float *weights, const void *v, int64_t keys,
                                  int64_t D) {
    memset(out, 0, (size_t)D * sizeof *out);
    int64_t k = 0, whole = D / VEC * VEC;
    for (; k + 4 <= keys; k += 4) {
        const float *w = weights + k;
        int64_t row = k * D;
        for (int64_t d = 0; d < whole; d += VEC) {
            VecF low = w[0] * vec_get(v, dtype, row + d) + w[1] * vec_get(v, dtype, row + D + d);
            VecF high = w[2] * vec_get(v, dtype, row + 2 * D + d) + w[3] * vec_get(v, dtype, row + 3 * D + d);
            vec_store(out + d, vec_load(out + d) + (low + high));
        }
        for (int64_t d = whole; d < D; d++)
            for (int i = 0; i < 4; i++) out[d] += w[i] * half_get(v, dtype, row + i * D + d);
    }
    for (; k < keys; k++)
        for (int64_t d = 0; d < D; d++) out[d] += weights[k] * half_get(v, dtype, k * D + d);
}

/* One thread's memory. */
typedef struct Space {
    float *scores;      /* (keys), rounded up to whole vectors */
    float *query, *out; /* (D) */
} Space;

static Space space_take(Bump *bump, int64_t keys, int64_t D) {
    return (Space){
        .scores = bump_take(bump, (size_t)round_to(keys, VEC) * sizeof(float)),
        .query = bump_take(bump, (size_t)D * sizeof(float)),
        .out = bump_take(bump, (size_t)D * sizeof(float)),
    };
}

/* One query of a job against the first `keys` rows of the caches. */
static void query_run(const HeadJob *job, int64_t t, const Space *space, int64_t keys) {
    float *scores = space->scores;
    int64_t D = job->D, at = job->out.at + t * job->out.stride;
    const float *q = run_in(job->q.in, job->q.at + t * job->q.stride, D, space->query);
    BY_TYPE(job->k.in.dtype, row_scores, scores, q, run_at(job->k.in, job->k.at), keys, D, job->scale);
    float most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < keys; i++) most = scores[i] > most ? scores[i] : most;
    for (int64_t i = 0; i < keys; i += VEC) vec_store(scores + i, vec_exp(vec_load(scores + i) - most));
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < keys; i++) sum += scores[i];
    float *out = run_out(job->out.in, at, space->out);
    BY_TYPE(job->v.in.dtype, row_mix, out, scores, run_at(job->v.in, job->v.at), keys, D);
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
