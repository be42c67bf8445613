/* Magnitudes are compared as float bit patterns without the sign bit, which sort like the values. The k-th
 * smallest among hundreds of millions is found in two counting passes, first over the upper 16 bits, then
 * over the lower 16 bits of the selected bucket. A third pass zeroes everything below it and as many ties as
 * needed. */
#include "compress/prune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum { BUCKETS = 1 << 16, MATRICES = 6 /* per layer; q, k, v count separately */ };

typedef struct Matrix {
    float *data;
    int64_t count;
} Matrix;

typedef struct MatrixList {
    Matrix *at;
    size_t count, capacity;
} MatrixList;

static void matrix_list_done(MatrixList *list) {
    free(list->at);
}

static Tensor layer_param(const Store *params, int64_t layer, const char *name) {
    char full[PARAM_NAME];
    const ParamDesc *desc;
    Tensor view = TENSOR_NONE;
    snprintf(full, sizeof full, "layer.%lld.%s", (long long)layer, name);
    return store_find(params, full, &desc, &view) ? view : TENSOR_NONE;
}

static Status list_matrices(const Store *params, MatrixList *list) {
    static const char *const names[] = {"attn.qkv.weight", "attn.out.weight", "mlp.up.weight",
                                        "mlp.down.weight"};
    TRY(mem_grow(&list->at, &list->capacity, (size_t)(MATRICES * params->model->config.layers),
                 sizeof *list->at));
    for (int64_t layer = 0; layer < params->model->config.layers; layer++) {
        for (int k = 0; k < 4; k++) {
            Tensor view = layer_param(params, layer, names[k]);
            int64_t parts = k == 0 ? 3 : 1, count = tensor_count(view) / parts;
            for (int64_t part = 0; part < parts; part++)
                list->at[list->count++] = (Matrix){tensor_f32(view) + part * count, count};
        }
    }
    return OK;
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
        for (int64_t i = 0; i < matrix[m].count; i++) counts[magnitude(matrix[m].data[i]) >> 16]++;
    uint32_t upper = find_rank(counts, &rank);
    memset(counts, 0, BUCKETS * sizeof *counts);
    for (size_t m = 0; m < count; m++)
        for (int64_t i = 0; i < matrix[m].count; i++) {
            uint32_t bits = magnitude(matrix[m].data[i]);
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
            uint32_t bits = magnitude(matrix[m].data[i]);
            bool prune = bits < threshold || (bits == threshold && equals > 0);
            if (bits == threshold) equals--;
            if (prune) matrix[m].data[i] = 0;
        }
}

Status prune_weights(Store *params, double amount, bool per_matrix) {
    CLEANUP(matrix_list_done) MatrixList list = {0};
    CLEANUP(mem_freep) int64_t *counts = NULL;
    TRY(list_matrices(params, &list));
    TRY(mem_new(BUCKETS, sizeof *counts, &counts));
    PruneCount now = count_all(list.at, list.count);
    if (llround(amount * (double)now.total) < now.zeros)
        return USAGE(
            "--amount %g: the fraction %.4g of the layers' weights is already zero; use a larger value",
            amount, (double)now.zeros / (double)now.total);
    size_t step = per_matrix ? 1 : list.count;
    for (size_t i = 0; i < list.count; i += step) {
        int64_t total = count_all(&list.at[i], step).total;
        zero_smallest(&list.at[i], step, llround(amount * (double)total), counts);
    }
    return OK;
}

/* ---- FFN neurons (rows) ---- */

int64_t prune_rows_kept(int64_t rows, double amount, int64_t multiple) {
    int64_t kept = rows - llround(amount * (double)rows);
    kept = (kept + multiple - 1) / multiple * multiple;
    return kept < multiple ? (multiple < rows ? multiple : rows) : kept > rows ? rows : kept;
}

Status prune_row_scores(const Store *params, int64_t index, double *score) {
    int64_t F = params->model->config.inner, C = params->model->config.hidden;
    const float *up = tensor_f32(layer_param(params, index, "mlp.up.weight"));     /* (F,C) */
    const float *bias = tensor_f32(layer_param(params, index, "mlp.up.bias"));     /* (F) */
    const float *down = tensor_f32(layer_param(params, index, "mlp.down.weight")); /* (C,F) */
    CLEANUP(mem_freep) double *column = NULL;
    TRY(mem_new((size_t)F, sizeof *column, &column));
    for (int64_t c = 0; c < C; c++)
        for (int64_t f = 0; f < F; f++) column[f] += (double)down[c * F + f] * down[c * F + f];
    for (int64_t f = 0; f < F; f++) {
        double row = (double)bias[f] * bias[f];
        for (int64_t c = 0; c < C; c++) row += (double)up[f * C + c] * up[f * C + c];
        score[f] = sqrt(row) * sqrt(column[f]);
    }
    return OK;
}

typedef struct Scored {
    double score;
    int64_t row;
} Scored;

static int by_importance(const void *one, const void *two) {
    const Scored *a = one, *b = two;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

static int by_row(const void *one, const void *two) {
    const Scored *a = one, *b = two;
    return (a->row > b->row) - (a->row < b->row);
}

typedef Status (*Scores)(const Store *params, int64_t layer, double *score);

/* Selects the rows or heads of a layer to keep: the first `kept` entries of ret_rows (count), in original
 * order. */
static Status choose(const Store *params, int64_t layer, Scores scores, int64_t count, int64_t kept,
                     Scored *ret_rows) {
    CLEANUP(mem_freep) double *score = NULL;
    TRY(mem_new((size_t)count, sizeof *score, &score));
    TRY(scores(params, layer, score));
    for (int64_t i = 0; i < count; i++) ret_rows[i] = (Scored){score[i], i};
    qsort(ret_rows, (size_t)count, sizeof *ret_rows, by_importance);
    qsort(ret_rows, (size_t)kept, sizeof *ret_rows, by_row);
    return OK;
}

static void copy_rows(const Store *from, Store *to, int64_t layer, const Scored *rows) {
    int64_t F = from->model->config.inner, kept = to->model->config.inner, C = to->model->config.hidden;
    const float *up = tensor_f32(layer_param(from, layer, "mlp.up.weight"));
    const float *bias = tensor_f32(layer_param(from, layer, "mlp.up.bias"));
    const float *down = tensor_f32(layer_param(from, layer, "mlp.down.weight"));
    float *new_up = tensor_f32(layer_param(to, layer, "mlp.up.weight"));
    float *new_bias = tensor_f32(layer_param(to, layer, "mlp.up.bias"));
    float *new_down = tensor_f32(layer_param(to, layer, "mlp.down.weight"));
    for (int64_t k = 0; k < kept; k++) {
        memcpy(new_up + k * C, up + rows[k].row * C, (size_t)C * sizeof *up);
        new_bias[k] = bias[rows[k].row];
    }
    for (int64_t c = 0; c < C; c++)
        for (int64_t k = 0; k < kept; k++) new_down[c * kept + k] = down[c * F + rows[k].row];
}

/* Copies the parameters whose size does not change. */
static void copy_same(const Store *from, Store *to) {
    for (int i = 0; i < to->model->count; i++) {
        const ParamList *list = &to->model->block[i].params;
        for (size_t j = 0; j < list->count; j++) {
            Tensor old = from->view[i][j], new = to->view[i][j];
            if (tensor_count(old) == tensor_count(new))
                memcpy(new.data, old.data, (size_t)tensor_count(new) * sizeof(float));
        }
    }
}

typedef void (*Copy)(const Store *from, Store *to, int64_t layer, const Scored *rows);

/* A model of `config` with the `kept` most important of each layer's `count` rows or heads. */
static Status shrink(const Store *params, const ModelConfig *config, int64_t count, int64_t kept,
                     Scores scores, Copy copy, Device *device, Model **ret_model, Store **ret_params) {
    CLEANUP(model_freep) Model *model = NULL;
    CLEANUP(store_freep) Store *store = NULL;
    CLEANUP(mem_freep) Scored *rows = NULL;
    TRY(mem_new((size_t)count, sizeof *rows, &rows));
    TRY(model_new(&model, config));
    TRY(store_new(&store, model, device, MEM_PARAMS));
    copy_same(params, store);
    for (int64_t layer = 0; layer < config->layers; layer++) {
        TRY(choose(params, layer, scores, count, kept, rows));
        copy(params, store, layer, rows);
    }
    *ret_model = model;
    *ret_params = store;
    model = NULL;
    store = NULL;
    return OK;
}

Status prune_rows(const Store *params, int64_t kept, Device *device, Model **ret_model, Store **ret_params) {
    ModelConfig config = params->model->config;
    int64_t rows = config.inner;
    config.inner = kept;
    return shrink(params, &config, rows, kept, prune_row_scores, copy_rows, device, ret_model, ret_params);
}

/* ---- heads ---- */

int64_t prune_heads_kept(int64_t heads, double amount, int64_t multiple) {
    int64_t kept = heads - llround(amount * (double)heads);
    kept = (kept + multiple - 1) / multiple * multiple;
    return kept < multiple ? multiple : kept;
}

Status prune_head_scores(const Store *params, int64_t index, double *score) {
    const ModelConfig *c = &params->model->config;
    int64_t C = c->hidden, D = config_head_width(c), A = config_attention(c);
    const float *v = tensor_f32(layer_param(params, index, "attn.qkv.weight")) + 2 * A * C;
    const float *bias = tensor_f32(layer_param(params, index, "attn.qkv.bias")) + 2 * A;
    const float *out = tensor_f32(layer_param(params, index, "attn.out.weight")); /* (C,A) */
    for (int64_t h = 0; h < c->heads; h++) {
        double value = 0, output = 0;
        for (int64_t a = h * D; a < (h + 1) * D; a++) {
            value += (double)bias[a] * bias[a];
            for (int64_t k = 0; k < C; k++) value += (double)v[a * C + k] * v[a * C + k];
            for (int64_t k = 0; k < C; k++) output += (double)out[k * A + a] * out[k * A + a];
        }
        score[h] = sqrt(value) * sqrt(output);
    }
    return OK;
}

static void copy_heads(const Store *from, Store *to, int64_t layer, const Scored *heads) {
    const ModelConfig *c = &from->model->config, *n = &to->model->config;
    int64_t C = c->hidden, D = config_head_width(c), A = config_attention(c), B = config_attention(n);
    const float *qkv = tensor_f32(layer_param(from, layer, "attn.qkv.weight"));
    const float *bias = tensor_f32(layer_param(from, layer, "attn.qkv.bias"));
    const float *out = tensor_f32(layer_param(from, layer, "attn.out.weight"));
    float *new_qkv = tensor_f32(layer_param(to, layer, "attn.qkv.weight"));
    float *new_bias = tensor_f32(layer_param(to, layer, "attn.qkv.bias"));
    float *new_out = tensor_f32(layer_param(to, layer, "attn.out.weight"));
    for (int64_t k = 0; k < n->heads; k++) {
        int64_t old = heads[k].row * D, new = k *D;
        for (int64_t part = 0; part < 3; part++) {
            memcpy(new_qkv + (part * B + new) * C, qkv + (part * A + old) * C, (size_t)(D * C) * sizeof *qkv);
            memcpy(new_bias + part * B + new, bias + part * A + old, (size_t)D * sizeof *bias);
        }
        for (int64_t row = 0; row < C; row++)
            memcpy(new_out + row * B + new, out + row * A + old, (size_t)D * sizeof *out);
    }
}

Status prune_heads(const Store *params, int64_t kept, Device *device, Model **ret_model, Store **ret_params) {
    ModelConfig config = params->model->config;
    int64_t heads = config.heads;
    config.head_width = config_head_width(&config);
    config.heads = kept;
    if (config_attention(&config) == config.hidden) config.head_width = 0;
    return shrink(params, &config, heads, kept, prune_head_scores, copy_heads, device, ret_model, ret_params);
}
