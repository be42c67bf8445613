/* Linear layers with what surrounds them in generation: the separate kernels, one after the other. */
#include "kernels/ref/ref.h"

static Status normalize_rows(Stream *stream, Tensor h, float *stats, Tensor x, const LinearFusion *fusion) {
    int64_t M = tensor_rows(x);
    Tensor mean = tensor_1d(stats, DT_F32, M), rstd = tensor_1d(stats + M, DT_F32, M);
    if (!fusion->beta.data)
        return rmsnorm_forward_ref(stream, h, rstd, x, fusion->gamma, fusion->eps, (HeadRange){0});
    return layernorm_forward_ref(stream, h, mean, rstd, x, fusion->gamma, fusion->beta, fusion->eps);
}

Status linear_fused_forward_ref(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor b, Act act,
                                LinearFusion fusion) {
    int64_t M = tensor_rows(x), rows = tensor_rows(w);
    CLEANUP(mem_freep) void *normed = NULL, *stats = NULL, *result = NULL;
    Tensor h = x, v = tensor_2d(NULL, x.dtype, M, rows);
    if (fusion.gamma.data) {
        TRY(mem_new(1, tensor_bytes(x), &normed));
        TRY(mem_new(2 * (size_t)M, sizeof(float), &stats));
        h.data = normed;
        TRY(normalize_rows(stream, h, stats, x, &fusion));
    }
    TRY(mem_new(1, tensor_bytes(v), &result));
    v.data = fusion.gated || fusion.res.data ? result : y.data;
    bool packed = w.dtype == DT_Q8 || w.dtype == DT_Q4;
    TRY((packed ? linear_int8_forward_ref : linear_forward_ref)(stream, v, TENSOR_NONE, h, w, b,
                                                                fusion.gated ? ACT_NONE : act));
    if (fusion.gated) return glu_forward_ref(stream, y, v, act);
    if (fusion.res.data) return dropout_add_forward_ref(stream, y, fusion.res, v, (Dropout){0});
    return OK;
}
