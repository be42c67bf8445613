/* Linear layers with what surrounds them in generation: the separate kernels, one after the other, or with
 * packed weights a product with these in fp32. */
#include "kernels/int8.h"
#include "kernels/ref/ref.h"

static Status normalize_rows(Stream *stream, Tensor h, float *stats, Tensor x, const LinearFusion *fusion) {
    int64_t M = tensor_rows(x);
    Tensor mean = tensor_1d(stats, DT_F32, M), rstd = tensor_1d(stats + M, DT_F32, M);
    if (!fusion->beta.data)
        return rmsnorm_forward_ref(stream, h, rstd, x, fusion->gamma, fusion->eps, (HeadRange){0});
    return layernorm_forward_ref(stream, h, mean, rstd, x, fusion->gamma, fusion->beta, fusion->eps);
}

/* scaled = h times the factors of w. */
static void balance(Tensor scaled, Tensor h, const Int8View *view) {
    int64_t K = tensor_cols(h);
    for (int64_t i = 0; i < tensor_count(h); i++)
        tensor_put(scaled, i, tensor_get(h, i) * (view->factor ? view->factor[i % K] : 1));
}

/* y = act(h w^T + b), with h balanced. `values` has room for a row of w and all of h. */
static void multiply_packed(Tensor y, Tensor h, Tensor w, const Int8View *view, Tensor b, Act act,
                            float *values) {
    int64_t M = tensor_rows(h), K = tensor_cols(h), N = tensor_rows(w);
    float *row = values + M * K;
    for (int64_t i = 0; i < M * K; i++) values[i] = (float)tensor_get(h, i);
    for (int64_t n = 0; n < N; n++) {
        for (int64_t k = 0; k < K; k++) row[k] = (float)int8_value(view, n, k);
        for (int64_t m = 0; m < M; m++) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++) sum += (double)values[m * K + k] * row[k];
            tensor_put(y, m * N + n, sum * view->scale[n] + (b.data ? tensor_get(b, n) : 0));
            if (act) tensor_put(y, m * N + n, act_value(act, tensor_get(y, m * N + n)));
        }
    }
}

Status linear_fused_forward_ref(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor b, Act act,
                                LinearFusion fusion) {
    int64_t M = tensor_rows(x), rows = tensor_rows(w);
    CLEANUP(mem_freep) void *normed = NULL, *stats = NULL, *result = NULL, *values = NULL;
    Tensor h = x, v = tensor_2d(NULL, x.dtype, M, rows);
    bool packed = w.dtype == DT_Q8 || w.dtype == DT_Q4;
    TRY(mem_new(1, tensor_bytes(x), &normed));
    if (fusion.gamma.data) {
        TRY(mem_new(2 * (size_t)M, sizeof(float), &stats));
        h.data = normed;
        TRY(normalize_rows(stream, h, stats, x, &fusion));
    }
    TRY(mem_new(1, tensor_bytes(v), &result));
    v.data = fusion.gated || fusion.res.data ? result : y.data;
    if (fusion.gated) {
        TRY(linear_fused_forward_ref(stream, v, h, w, b, ACT_NONE, (LinearFusion){0}));
        return glu_forward_ref(stream, y, v, act);
    }
    if (packed) {
        Int8View view = int8_view(w);
        Tensor scaled = h;
        scaled.data = normed;
        TRY(mem_new((size_t)(M + 1) * (size_t)tensor_cols(x), sizeof(float), &values));
        balance(scaled, h, &view);
        multiply_packed(v, scaled, w, &view, b, act, values);
    } else {
        TRY(linear_forward_ref(stream, v, TENSOR_NONE, h, w, b, act));
    }
    return fusion.res.data ? dropout_add_forward_ref(stream, y, fusion.res, v, (Dropout){0}) : OK;
}
