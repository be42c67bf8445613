/* Attention of new positions against caches of keys and values. Several new positions at once (a prompt)
 * go through the tiles of attention_forward.c; one or a few are bound by reading the caches, so each
 * query runs along the rows of its head once for the scores and once for the values.
 *
 * Legend: B sequences, T new positions, S positions a cache holds, H heads, D = C/H */
#include <math.h>

#include "kernels/cpu/approx.h"
#include "kernels/cpu/attention.h"
#include "kernels/ref/ref.h"

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

/* scores (keys) = scale * (k . q) for rows of k. */
static void row_scores(float *scores, const float *q, const float *k, int64_t keys, int64_t D, float scale) {
    for (int64_t i = 0; i < keys; i++) {
        const float *row = k + i * D;
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t d = 0; d < D; d++) dot += q[d] * row[d];
        scores[i] = dot * scale;
    }
}

/* out (D) = weights (keys) v, four rows at a time. */
static void row_mix(float *out, const float *weights, const float *v, int64_t keys, int64_t D) {
    memset(out, 0, (size_t)D * sizeof *out);
    int64_t k = 0;
    for (; k + 4 <= keys; k += 4) {
        const float *row = v + k * D, *w = weights + k;
#pragma omp simd
        for (int64_t d = 0; d < D; d++)
            out[d] += w[0] * row[d] + w[1] * row[D + d] + (w[2] * row[2 * D + d] + w[3] * row[3 * D + d]);
    }
    for (; k < keys; k++)
        for (int64_t d = 0; d < D; d++) out[d] += weights[k] * v[k * D + d];
}

/* `scores` holds as many as keys, rounded up to whole vectors. */
static void query_run(float *out, float *scores, const float *q, const float *k, const float *v, int64_t keys,
                      int64_t D, float scale) {
    row_scores(scores, q, k, keys, D, scale);
    float most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < keys; i++) most = scores[i] > most ? scores[i] : most;
    for (int64_t i = 0; i < keys; i += VEC) vec_store(scores + i, vec_exp(vec_load(scores + i) - most));
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < keys; i++) sum += scores[i];
    row_mix(out, scores, v, keys, D);
    float inverse = 1.0f / sum;
#pragma omp simd
    for (int64_t d = 0; d < D; d++) out[d] *= inverse;
}

/* One head of one sequence: its new rows go to the caches, then its queries run. */
static void head_decode(const HeadJob *job, float *keys, float *values, void *memory) {
    size_t row = (size_t)job->D * sizeof(float);
    for (int64_t t = 0; t < job->T; t++) {
        memcpy(keys + (job->past + t) * job->D, job->k + t * job->k_stride, row);
        memcpy(values + (job->past + t) * job->D, job->v + t * job->k_stride, row);
    }
    if (job->T >= TILES_FROM) {
        HeadJob cached = *job;
        cached.k = keys;
        cached.v = values;
        cached.k_stride = job->D;
        attention_head(&cached, (Range){0, job->T}, memory);
        return;
    }
    for (int64_t t = 0; t < job->T; t++)
        query_run(job->out + t * job->out_stride, memory, job->q + t * job->q_stride, keys, values,
                  job->past + t + 1, job->D, job->scale);
}

static Status attention_decode_cpu(Stream *stream, Tensor out, Tensor kcache, Tensor vcache, Tensor qkv,
                                   Tensor past, Tensor fresh, float scale) {
    FP32_ELSE(attention_decode_ref(stream, out, kcache, vcache, qkv, past, fresh, scale), out, kcache, vcache,
              qkv);
    HeadShape s = head_shape(qkv);
    int64_t S = kcache.dim[2], longest = 0;
    TRY(check_room(s, S, past, fresh));
    for (int64_t b = 0; b < s.B; b++) {
        int64_t keys = tensor_i32(past)[b] + tensor_i32(fresh)[b];
        longest = keys > longest ? keys : longest;
    }
    int threads = threads_for(stream, s.B * s.H * longest * s.D);
    size_t each = s.T >= TILES_FROM ? attention_head_space(longest, s.D)
                                    : (size_t)round_to(longest, BUMP_ALIGN) * sizeof(float);
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
            .q_stride = 3 * s.H * s.D,
            .k_stride = 3 * s.H * s.D,
            .out = tensor_f32(out) + (b * s.T * s.H + h) * s.D,
            .out_stride = s.H * s.D,
        };
        head_decode(&job, tensor_f32(kcache) + at * S * s.D, tensor_f32(vcache) + at * S * s.D,
                    (unsigned char *)memory + (size_t)omp_get_thread_num() * each);
    }
    return OK;
}

void VARIANT(attention_decode_override)(KernelTable *table) {
    table->attention_decode = attention_decode_cpu;
}
