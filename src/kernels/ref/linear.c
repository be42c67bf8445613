/* Linear layers. M rows, K inputs, N outputs; see kernels.h. */
#include "kernels/ref/ref.h"

/* The value after rounding to the type. */
static double rounded(DType dtype, double value) {
    double storage; /* large enough for any type */
    Tensor one = tensor_1d(&storage, dtype, 1);
    tensor_put(one, 0, value);
    return tensor_get(one, 0);
}

Status linear_forward_ref(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act) {
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    void *workspace;
    TRY(stream_workspace(stream, REF_F32_BYTES(x, w), &workspace));
    float *rest = workspace;
    const float *rows = ref_f32(x, &rest), *weights = ref_f32(w, &rest);
    DType between = act == ACT_NONE ? y.dtype : x.dtype;
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            const float *row = rows + m * K, *weight = weights + n * K;
            double total = b.data ? tensor_get(b, n) : 0;
            for (int64_t k = 0; k < K; k++) total += (double)row[k] * weight[k];
            double before = rounded(between, total); /* so that act_forward(pre) reproduces y */
            if (pre.data) tensor_put(pre, m * N + n, before);
            tensor_put(y, m * N + n, act_value(act, before));
        }
    return OK;
}

void add_column_sums(Tensor sums, Tensor x) {
    if (!sums.data || !x.data) return;
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    for (int64_t c = 0; c < cols; c++) {
        double total = 0;
        for (int64_t r = 0; r < rows; r++) total += tensor_get(x, r * cols + c);
        tensor_f32(sums)[c] = (float)(tensor_f32(sums)[c] + total);
    }
}

/* Reads w, and pre if the input is the output of an activation. */
Status linear_backward_input_ref(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Tensor w, Act act,
                                 Tensor pre, bool accumulate) {
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(w);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)K * sizeof(double) + REF_F32_BYTES(w), &workspace));
    double *total = workspace; /* (K) */
    float *rest = (float *)(total + K);
    const float *weights = ref_f32(w, &rest);
    for (int64_t m = 0; m < M; m++) {
        for (int64_t k = 0; k < K; k++) total[k] = 0;
        for (int64_t n = 0; n < N; n++) {
            double gradient = tensor_get(dy, m * N + n);
            const float *weight = weights + n * K;
            for (int64_t k = 0; k < K; k++) total[k] += gradient * weight[k];
        }
        for (int64_t k = 0; k < K; k++) {
            double derivative = act == ACT_NONE ? 1 : act_derivative(act, tensor_get(pre, m * K + k));
            tensor_put(dx, m * K + k, (accumulate ? tensor_get(dx, m * K + k) : 0) + total[k] * derivative);
        }
    }
    add_column_sums(sums, dx);
    return OK;
}

/* Reads forward's x. */
Status linear_backward_weight_ref(Stream *stream, Tensor dw, Tensor db, Tensor dy, Tensor x,
                                  bool accumulate) {
    if (!dw.data) { /* and no x */
        add_column_sums(db, dy);
        return OK;
    }
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(x);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)K * sizeof(double) + REF_F32_BYTES(x), &workspace));
    double *total = workspace; /* (K) */
    float *rest = (float *)(total + K);
    const float *rows = ref_f32(x, &rest);
    for (int64_t n = 0; n < N; n++) {
        double bias = 0;
        for (int64_t k = 0; k < K; k++) total[k] = 0;
        for (int64_t m = 0; m < M; m++) {
            double gradient = tensor_get(dy, m * N + n);
            const float *row = rows + m * K;
            bias += gradient;
            for (int64_t k = 0; k < K; k++) total[k] += gradient * row[k];
        }
        float *weight = tensor_f32(dw) + n * K;
        for (int64_t k = 0; k < K; k++) weight[k] = (float)((accumulate ? weight[k] : 0) + total[k]);
        if (db.data) tensor_f32(db)[n] = (float)(tensor_f32(db)[n] + bias);
    }
    return OK;
}
