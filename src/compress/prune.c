/* Magnitudes are compared as float bit patterns without the sign bit, which sort like the values. The k-th
 * smallest among hundreds of millions is found in two counting passes, first over the upper 16 bits, then
 * over the lower 16 bits of the selected bucket. A third pass zeroes everything below it and as many ties as
 * needed. */
#include "compress/prune.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum { BUCKETS = 1 << 16 };

typedef struct Matrix {
    float *data;
    const float *score; /* compared by magnitude; `data` itself unless ranked by gradient */
    int64_t count;
} Matrix;

typedef struct MatrixList {
    Matrix *at;
    size_t count, capacity;
} MatrixList;

static void matrix_list_done(MatrixList *list) {
    free(list->at);
}

Tensor prune_param(const Store *params, int64_t layer, const char *name) {
    char full[PARAM_NAME];
    const ParamDesc *desc;
    Tensor view = TENSOR_NONE;
    snprintf(full, sizeof full, "layer.%lld.%s", (long long)layer, name);
    return store_find(params, full, &desc, &view) ? view : TENSOR_NONE;
}

/* A stack of matrices, such as q, k and v or those of experts, counts as several. */
static Status list_matrices(const Store *params, MatrixList *list) {
    static const char *const names[] = {"attn.qkv.weight",      "attn.q.weight",          "attn.kv.weight",
                                        "attn.out.weight",      "mlp.up.weight",          "mlp.down.weight",
                                        "moe.shared.up.weight", "moe.shared.down.weight", "moe.up.weight",
                                        "moe.down.weight"};
    for (int64_t layer = 0; layer < params->model->config.layers; layer++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            Tensor view = prune_param(params, layer, names[k]);
            if (!view.data) continue;
            int64_t parts = view.ndim == 3 ? view.dim[0] : 1, count = tensor_count(view) / parts;
            TRY(mem_grow(&list->at, &list->capacity, list->count + (size_t)parts, sizeof *list->at));
            for (int64_t part = 0; part < parts; part++) {
                float *data = tensor_f32(view) + part * count;
                list->at[list->count++] = (Matrix){data, data, count};
            }
        }
    return OK;
}

LayerHeads prune_heads_of(const Store *params, int64_t layer) {
    const ModelConfig *c = &params->model->config;
    int64_t A = config_attention(c), K = config_kv_width(c), C = c->hidden;
    LayerHeads heads = {.group = c->heads / config_kv_heads(c) * config_head_width(c),
                        .width = config_head_width(c)};
    static const char *const names[2][3] = {{"attn.qkv.weight", "attn.q.weight", "attn.kv.weight"},
                                            {"attn.qkv.bias", "attn.q.bias", "attn.kv.bias"}};
    for (int bias = 0; bias < 2; bias++) {
        int64_t row = bias ? 1 : C;
        Tensor all = prune_param(params, layer, names[bias][0]);
        Tensor q = prune_param(params, layer, names[bias][1]),
               kv = prune_param(params, layer, names[bias][2]);
        if (!all.data && !q.data) continue;
        float **to = bias ? heads.bias : heads.weight;
        to[0] = all.data ? tensor_f32(all) : tensor_f32(q);
        to[1] = all.data ? to[0] + A * row : tensor_f32(kv);
        to[2] = to[1] + K * row;
    }
    heads.out = tensor_f32(prune_param(params, layer, "attn.out.weight"));
    return heads;
}

static int64_t count_zeros(const Matrix *matrix) {
    int64_t zeros = 0;
    for (int64_t i = 0; i < matrix->count; i++) zeros += matrix->data[i] == 0;
    return zeros;
}

static PruneCount count_all(const Matrix *matrix, size_t count) {
    PruneCount sum = {0};
    for (size_t i = 0; i < count; i++) {
        sum.zeros += count_zeros(&matrix[i]);
        sum.total += matrix[i].count;
    }
    return sum;
}

Status prune_count(const Store *params, PruneCount *ret_count) {
    CLEANUP(matrix_list_done) MatrixList list = {0};
    TRY(list_matrices(params, &list));
    *ret_count = count_all(list.at, list.count);
    return OK;
}

/* ---- weights ---- */

static uint32_t magnitude(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x7fffffff;
}

/* The bucket that contains element *rank (from 0); *rank becomes the index within the bucket. */
static uint32_t find_rank(const int64_t *counts, int64_t *rank) {
    uint32_t at = 0;
    while (*rank >= counts[at]) *rank -= counts[at++];
    return at;
}

/* The magnitude of rank `rank` (from 0, less than the number of weights); *ret_equals: how many equal ones
 * precede it. */
static uint32_t select_magnitude(const Matrix *matrix, size_t count, int64_t rank, int64_t *counts,
                                 int64_t *ret_equals) {
    memset(counts, 0, BUCKETS * sizeof *counts);
    for (size_t m = 0; m < count; m++)
        for (int64_t i = 0; i < matrix[m].count; i++) counts[magnitude(matrix[m].score[i]) >> 16]++;
    uint32_t upper = find_rank(counts, &rank);
    memset(counts, 0, BUCKETS * sizeof *counts);
    for (size_t m = 0; m < count; m++)
        for (int64_t i = 0; i < matrix[m].count; i++) {
            uint32_t bits = magnitude(matrix[m].score[i]);
            if (bits >> 16 == upper) counts[bits & (BUCKETS - 1)]++;
        }
    uint32_t lower = find_rank(counts, &rank);
    *ret_equals = rank;
    return upper << 16 | lower;
}

static void zero_smallest(const Matrix *matrix, size_t count, int64_t number, int64_t *counts) {
    if (number == 0) return;
    int64_t equals = 0;
    uint32_t threshold = select_magnitude(matrix, count, number - 1, counts, &equals);
    equals++; /* include the selected one */
    for (size_t m = 0; m < count; m++)
        for (int64_t i = 0; i < matrix[m].count; i++) {
            uint32_t bits = magnitude(matrix[m].score[i]);
            bool prune = bits < threshold || (bits == threshold && equals > 0);
            if (bits == threshold) equals--;
            if (prune) matrix[m].data[i] = 0;
        }
}

/* |w x g| of all weights in one array (freed by the caller), to which the matrices' `score` then points. A
 * weight that is not yet zero never scores 0, so that existing zeros come first. */
static Status score_gradients(const Store *grads, const MatrixList *list, float **ret_scores) {
    CLEANUP(matrix_list_done) MatrixList gradients = {0};
    CLEANUP(mem_freep) float *scores = NULL;
    TRY(list_matrices(grads, &gradients));
    TRY(mem_new((size_t)count_all(list->at, list->count).total, sizeof *scores, &scores));
    float *to = scores;
    for (size_t m = 0; m < list->count; m++) {
        Matrix *matrix = &list->at[m];
        matrix->score = to;
        for (int64_t i = 0; i < matrix->count; i++) {
            float w = matrix->data[i], score = fabsf(w * gradients.at[m].data[i]);
            *to++ = w != 0 && score == 0 ? FLT_TRUE_MIN : score;
        }
    }
    return MOVE(ret_scores, scores);
}

Status prune_weights(Store *params, double amount, bool per_matrix, const Store *grads) {
    CLEANUP(matrix_list_done) MatrixList list = {0};
    CLEANUP(mem_freep) int64_t *counts = NULL;
    CLEANUP(mem_freep) float *scores = NULL;
    TRY(list_matrices(params, &list));
    TRY(mem_new(BUCKETS, sizeof *counts, &counts));
    PruneCount now = count_all(list.at, list.count);
    if (llround(amount * (double)now.total) < now.zeros)
        return USAGE(
            "{amount} %g: the fraction %.4g of the layers' weights is already zero; use a larger value",
            amount, (double)now.zeros / (double)now.total);
    if (grads) TRY(score_gradients(grads, &list, &scores));
    size_t step = per_matrix ? 1 : list.count;
    for (size_t i = 0; i < list.count; i += step) {
        int64_t total = count_all(&list.at[i], step).total;
        zero_smallest(&list.at[i], step, llround(amount * (double)total), counts);
    }
    return OK;
}
