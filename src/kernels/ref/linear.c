/* Matrix products against weights. M rows, K inputs, N outputs; see kernels.h. */
#include "kernels/ref/ref.h"

Status linear_forward_ref(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act) {
    (void)stream;
    FP32_ONLY("linear_forward", y, pre, x, w, b);
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            const float *row = tensor_f32(x) + m * K, *weight = tensor_f32(w) + n * K;
            double total = b.data ? tensor_f32(b)[n] : 0;
            for (int64_t k = 0; k < K; k++) total += (double)row[k] * weight[k];
            float before = (float)total; /* rounded first, so that act_forward(pre) gives y again */
            if (pre.data) tensor_f32(pre)[m * N + n] = before;
            tensor_f32(y)[m * N + n] = (float)act_value(act, before);
        }
    return OK;
}

/* Needs: w, and pre where the input came out of an activation. */
Status linear_backward_input_ref(Stream *stream, Tensor dx, Tensor dy, Tensor w, Act act, Tensor pre,
                                 bool accumulate) {
    FP32_ONLY("linear_backward_input", dx, dy, w, pre);
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(w);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)K * sizeof(double), &workspace));
    double *total = workspace; /* (K) */
    for (int64_t m = 0; m < M; m++) {
        for (int64_t k = 0; k < K; k++) total[k] = 0;
        for (int64_t n = 0; n < N; n++) {
            double gradient = tensor_f32(dy)[m * N + n];
            const float *weight = tensor_f32(w) + n * K;
            for (int64_t k = 0; k < K; k++) total[k] += gradient * weight[k];
        }
        float *row = tensor_f32(dx) + m * K;
        for (int64_t k = 0; k < K; k++) {
            double slope = act == ACT_NONE ? 1 : act_slope(act, tensor_f32(pre)[m * K + k]);
            row[k] = (float)((accumulate ? row[k] : 0) + total[k] * slope);
        }
    }
    return OK;
}

/* Needs: x. */
Status linear_backward_weight_ref(Stream *stream, Tensor dw, Tensor db, Tensor dy, Tensor x) {
    FP32_ONLY("linear_backward_weight", dw, db, dy, x);
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(x);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)K * sizeof(double), &workspace));
    double *total = workspace; /* (K) */
    for (int64_t n = 0; n < N; n++) {
        double bias = 0;
        for (int64_t k = 0; k < K; k++) total[k] = 0;
        for (int64_t m = 0; m < M; m++) {
            double gradient = tensor_f32(dy)[m * N + n];
            const float *row = tensor_f32(x) + m * K;
            bias += gradient;
            for (int64_t k = 0; k < K; k++) total[k] += gradient * row[k];
        }
        float *weight = tensor_f32(dw) + n * K;
        for (int64_t k = 0; k < K; k++) weight[k] = (float)(weight[k] + total[k]);
        if (db.data) tensor_f32(db)[n] = (float)(tensor_f32(db)[n] + bias);
    }
    return OK;
}
