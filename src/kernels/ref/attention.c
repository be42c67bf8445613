/* Attention, one query at a time, so that only one row of scores is in memory.
 *
 * A query sees the keys at positions below lens[b] and, if causal, those of its document and its window up to
 * its own position. Positions increase with rows, so these are consecutive rows of keys. A query that sees no
 * key has output 0, lse -infinity and no gradient. The gradients of a key head are summed over the query
 * heads that share it. Dropout applies to the softmax weights. */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"

/* Index of the first element of q (D) of a head at row t of qkv, and of k or v of a query head in kv. */
static int64_t query_at(const QkvShape *s, int64_t b, int64_t t, int64_t h) {
    return ((b * s->T + t) * s->N + h) * s->D;
}
static int64_t key_at(const QkvShape *s, int part, int64_t b, int64_t k, int64_t h) {
    return ((b * s->keys + k) * s->M + qkv_head(s, part, h)) * s->D;
}

/* The rows [from, to) of keys that a query sees. */
typedef struct Seen {
    int64_t from, to;
} Seen;

static Seen keys_seen(const QkvShape *s, Tensor lens, const Attention *spec, int64_t b, int64_t t) {
    int64_t at = position_of(&spec->queries, t), from = 0, to = INT64_MAX;
    if (spec->causal) from = first_key(starts_of(spec, b, s->B), spec->window, at), to = at + 1;
    if (lens.data && tensor_i32(lens)[b] < to) to = tensor_i32(lens)[b];
    from = rows_before(&spec->keys, s->keys, from), to = rows_before(&spec->keys, s->keys, to);
    return (Seen){from, to > from ? to : from};
}

/* The dropout factor of the weight of a row of keys for a row of queries. */
static double factor_of(const Attention *spec, int64_t b, int64_t h, int64_t t, int64_t k) {
    if (spec->dropout.p == 0) return 1;
    return dropout_weight(&spec->dropout, b, h, position_of(&spec->queries, t), position_of(&spec->keys, k));
}

static double dot(const float *x, const float *y, int64_t D) {
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t d = 0; d < D; d++) total += (double)x[d] * y[d];
    return total;
}

/* Replaces scores by softmax weights and returns their log-sum-exp. */
static double softmax(double *score, int64_t count) {
    double largest = -INFINITY, total = 0;
    for (int64_t k = 0; k < count; k++) largest = fmax(largest, score[k]);
    for (int64_t k = 0; k < count; k++) total += exp(score[k] - largest);
    for (int64_t k = 0; k < count; k++) score[k] = exp(score[k] - largest) / total;
    return count ? largest + log(total) : -INFINITY;
}

Status attention_forward_ref(Stream *stream, Tensor out, Tensor lse, Tensor qkv, Tensor lens,
                             Attention spec) {
    QkvShape s = qkv_shape(qkv, &spec);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)(s.keys + s.D) * sizeof(double) + REF_F32_BYTES(qkv, spec.kv),
                         &workspace));
    double *weight = workspace, *sums = weight + s.keys; /* (keys), (D) */
    float *rest = (float *)(sums + s.D);
    const float *queries = ref_f32(qkv, &rest), *keys = spec.kv.data ? ref_f32(spec.kv, &rest) : queries;
    for (int64_t row = 0; row < s.B * s.H * s.T; row++) {
        int64_t b = row / (s.H * s.T), h = row / s.T % s.H, t = row % s.T;
        Seen seen = keys_seen(&s, lens, &spec, b, t);
        const float *q = queries + query_at(&s, b, t, h);
        for (int64_t k = seen.from; k < seen.to; k++)
            weight[k] = spec.scale * dot(q, keys + key_at(&s, PART_K, b, k, h), s.D);
        tensor_f32(lse)[row] = (float)softmax(weight + seen.from, seen.to - seen.from);
        for (int64_t d = 0; d < s.D; d++) sums[d] = 0;
        for (int64_t k = seen.from; k < seen.to; k++) {
            double kept = weight[k] * factor_of(&spec, b, h, t, k);
            const float *v = keys + key_at(&s, PART_V, b, k, h);
            for (int64_t d = 0; d < s.D; d++) sums[d] += kept * v[d];
        }
        int64_t to = ((b * s.T + t) * s.H + h) * s.D;
        for (int64_t d = 0; d < s.D; d++) tensor_put(out, to + d, sums[d]);
    }
    return OK;
}

/* The inputs of backward, in fp32. */
typedef struct Inputs {
    const float *queries, *keys, *out, *dout, *lse;
} Inputs;

/* Computes dq (T,D) of one query head of one sequence and adds its part of dk and dv (keys,D), in double.
 * With the weights P, the dropout factors Z and the gradient g of a query's output o: dv_k += P_k Z_k g;
 * dP_k = Z_k (g . v_k);  ds_k = P_k (dP_k - g . o), since sum P_k dP_k = g . o; dq += scale ds_k k_k;
 * dk_k += scale ds_k q. */
static void output_backward(double *restrict dq, double *restrict dk, double *restrict dv, const Inputs *in,
                            QkvShape s, Tensor lens, const Attention *spec, int64_t b, int64_t h) {
    for (int64_t i = 0; i < s.T * s.D; i++) dq[i] = 0;
    for (int64_t t = 0; t < s.T; t++) {
        int64_t at = ((b * s.T + t) * s.H + h) * s.D;
        const float *q = in->queries + query_at(&s, b, t, h), *grad = in->dout + at;
        double delta = dot(grad, in->out + at, s.D);
        double log_sum = in->lse[(b * s.H + h) * s.T + t];
        Seen seen = keys_seen(&s, lens, spec, b, t);
        for (int64_t j = seen.from; j < seen.to; j++) {
            const float *k = in->keys + key_at(&s, PART_K, b, j, h);
            const float *v = in->keys + key_at(&s, PART_V, b, j, h);
            double weight = exp(spec->scale * dot(q, k, s.D) - log_sum);
            double factor = factor_of(spec, b, h, t, j);
            double ds = spec->scale * weight * (factor * dot(grad, v, s.D) - delta);
            for (int64_t d = 0; d < s.D; d++) {
                dv[j * s.D + d] += weight * factor * grad[d];
                dq[t * s.D + d] += ds * k[d];
                dk[j * s.D + d] += ds * q[d];
            }
        }
    }
}

/* Stores D gradients from element `at` on, or adds them. */
static void put_gradient(Tensor to, int64_t at, const double *from, int64_t D, bool add) {
    for (int64_t d = 0; d < D; d++) tensor_put(to, at + d, from[d] + (add ? tensor_get(to, at + d) : 0));
}

/* Reads forward's qkv, kv, out and lse. */
Status attention_backward_ref(Stream *stream, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                              Tensor lens, Attention spec) {
    QkvShape s = qkv_shape(qkv, &spec);
    bool add = spec.kv.data;
    Tensor dkv = add ? spec.dkv : dqkv;
    void *workspace;
    TRY(stream_workspace(
        stream, (size_t)((s.T + 2 * s.keys) * s.D) * sizeof(double) + REF_F32_BYTES(qkv, spec.kv, out, dout),
        &workspace));
    double *dq = workspace, *dk = dq + s.T * s.D, *dv = dk + s.keys * s.D; /* (T,D), (keys,D), (keys,D) */
    float *rest = (float *)(dv + s.keys * s.D);
    Inputs in = {ref_f32(qkv, &rest), ref_f32(spec.kv, &rest), ref_f32(out, &rest), ref_f32(dout, &rest),
                 tensor_f32(lse)};
    if (!add) in.keys = in.queries;
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t h = 0; h < s.H; h++) {
            for (int64_t i = 0; h % s.group == 0 && i < s.keys * s.D; i++) dk[i] = dv[i] = 0;
            output_backward(dq, dk, dv, &in, s, lens, &spec, b, h);
            for (int64_t t = 0; t < s.T; t++)
                put_gradient(dqkv, query_at(&s, b, t, h), dq + t * s.D, s.D, add);
            for (int64_t k = 0; h % s.group == s.group - 1 && k < s.keys; k++) {
                put_gradient(dkv, key_at(&s, PART_K, b, k, h), dk + k * s.D, s.D, add);
                put_gradient(dkv, key_at(&s, PART_V, b, k, h), dv + k * s.D, s.D, add);
            }
        }
    add_column_sums(spec.sums, qkv_rows(dqkv));
    return OK;
}

/* Rows whose lse is -infinity are not read. */
static double combined(double weight, Tensor from, int64_t at) {
    return weight > 0 || isnan(weight) ? weight * tensor_get(from, at) : 0;
}

Status attention_combine_ref(Stream *stream, Tensor out, Tensor lse, Tensor part, Tensor part_lse) {
    (void)stream;
    int64_t T = out.dim[1], H = out.dim[2], D = out.dim[3];
    for (int64_t row = 0; row < tensor_count(lse); row++) {
        double a = tensor_f32(lse)[row], b = tensor_f32(part_lse)[row], largest = fmax(a, b);
        double total = largest == -INFINITY ? largest : largest + log(exp(a - largest) + exp(b - largest));
        double own = a == -INFINITY ? 0 : exp(a - total), other = b == -INFINITY ? 0 : exp(b - total);
        int64_t at = ((row / (H * T) * T + row % T) * H + row / T % H) * D;
        for (int64_t d = 0; d < D; d++)
            tensor_put(out, at + d, combined(own, out, at + d) + combined(other, part, at + d));
        tensor_f32(lse)[row] = (float)total;
    }
    return OK;
}

/* Stores D elements of qkv as row `row` of a cache, quantized if the cache is int8. */
static void cache_put(Tensor cache, int64_t row, Tensor qkv, int64_t from, int64_t D) {
    int64_t at = row * cache.dim[3];
    if (cache.dtype != DT_I8) {
        for (int64_t d = 0; d < D; d++) tensor_put(cache, at + d, tensor_get(qkv, from + d));
        return;
    }
    float largest = 0;
    bool finite = true;
    for (int64_t d = 0; d < D; d++) {
        float size = fabsf((float)tensor_get(qkv, from + d));
        finite &= (bool)isfinite(size);
        if (size > largest) largest = size;
    }
    float scale = finite ? largest / 127.0f : NAN, inverse = finite && largest > 0 ? 127.0f / largest : 0;
    if (isinf(inverse)) inverse = 0; /* the reciprocal overflowed: treat the row as zero */
    int8_t *to = (int8_t *)cache.data + at;
    for (int64_t d = 0; d < D; d++)
        to[d] = finite ? (int8_t)rintf((float)tensor_get(qkv, from + d) * inverse) : 0;
    memcpy(to + D, &scale, sizeof scale);
}

static double cache_get(Tensor cache, int64_t row, int64_t d, int64_t D) {
    int64_t at = row * cache.dim[3];
    if (cache.dtype != DT_I8) return tensor_get(cache, at + d);
    const int8_t *from = (const int8_t *)cache.data + at;
    float scale;
    memcpy(&scale, from + D, sizeof scale);
    return (double)from[d] * scale;
}

/* Replaces the query in row (D) by softmax(row . keys * scale) values, over `seen` rows (D) of one head, and
 * returns the log-sum-exp. */
static double decode_row(double *row, double *weight, const double *keys, const double *values, int64_t seen,
                         int64_t D, double scale) {
    for (int64_t k = 0; k < seen; k++) {
        double total = 0;
        for (int64_t d = 0; d < D; d++) total += row[d] * keys[k * D + d];
        weight[k] = scale * total;
    }
    double log_sum = softmax(weight, seen);
    for (int64_t d = 0; d < D; d++) row[d] = 0;
    for (int64_t k = 0; k < seen; k++)
        for (int64_t d = 0; d < D; d++) row[d] += weight[k] * values[k * D + d];
    return log_sum;
}

static Status check_cache_capacity(QkvShape s, int64_t S, Tensor past, Tensor fresh, const Attention *spec) {
    for (int64_t b = 0; b < s.B; b++) {
        int64_t before = tensor_i32(past)[b], now = tensor_i32(fresh)[b];
        if (before < 0 || now < 0 || now > s.T || cache_rows_before(&spec->part, before + now) > S)
            return FAILED("internal: attention_decode: sequence %lld has %lld past and %lld new positions, "
                          "but the cache has room for %lld",
                          (long long)b, (long long)before, (long long)now, (long long)S);
    }
    return OK;
}

Status attention_decode_ref(Stream *stream, Tensor out, Tensor kcache, Tensor vcache, Tensor qkv, Tensor past,
                            Tensor fresh, Attention spec) {
    QkvShape s = qkv_shape(qkv, &spec);
    int64_t S = kcache.dim[2];
    TRY(check_cache_capacity(s, S, past, fresh, &spec));
    void *workspace;
    TRY(stream_workspace(stream, (size_t)(S * (1 + 2 * s.D) + s.D) * sizeof(double), &workspace));
    double *weight = workspace, *keys = weight + S, *values = keys + S * s.D; /* (S), (S,D), (S,D) */
    double *query = values + S * s.D;                                         /* (D), then its output */
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t h = 0; h < s.H; h++) {
            int64_t row = (b * s.G + h / s.group) * S; /* first row of this head in the caches */
            int64_t first = tensor_i32(past)[b], count = tensor_i32(fresh)[b];
            for (int64_t t = 0; h % s.group == 0 && t < count; t++) {
                int64_t at = cache_rows_before(&spec.part, first + t);
                if (cache_rows_before(&spec.part, first + t + 1) == at) continue;
                cache_put(kcache, row + at, qkv, key_at(&s, PART_K, b, t, h), s.D);
                cache_put(vcache, row + at, qkv, key_at(&s, PART_V, b, t, h), s.D);
            }
            int64_t rows = cache_rows_before(&spec.part, first + count);
            for (int64_t i = 0; h % s.group == 0 && i < rows * s.D; i++) {
                keys[i] = cache_get(kcache, row + i / s.D, i % s.D, s.D);
                values[i] = cache_get(vcache, row + i / s.D, i % s.D, s.D);
            }
            for (int64_t t = 0; t < count; t++) {
                int64_t from = cache_rows_before(&spec.part, first_key(NULL, spec.window, first + t));
                int64_t to = cache_rows_before(&spec.part, first + t + 1), at = query_at(&s, b, t, h);
                for (int64_t d = 0; d < s.D; d++) query[d] = tensor_get(qkv, at + d);
                double log_sum = decode_row(query, weight, keys + from * s.D, values + from * s.D, to - from,
                                            s.D, spec.scale);
                if (spec.lse.data) tensor_f32(spec.lse)[(b * s.H + h) * s.T + t] = (float)log_sum;
                at = ((b * s.T + t) * s.H + h) * s.D;
                for (int64_t d = 0; d < s.D; d++) tensor_put(out, at + d, query[d]);
            }
        }
    return OK;
}
