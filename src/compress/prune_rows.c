/* Removing FFN neurons and attention heads, and zeroing rows that write to the residual stream. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compress/prune.h"

int64_t prune_rows_kept(int64_t rows, double amount, int64_t multiple) {
    int64_t kept = rows - llround(amount * (double)rows);
    kept = (kept + multiple - 1) / multiple * multiple;
    return kept < multiple ? (multiple < rows ? multiple : rows) : kept > rows ? rows : kept;
}

int64_t prune_heads_kept(int64_t heads, double amount, int64_t multiple) {
    int64_t kept = heads - llround(amount * (double)heads);
    kept = (kept + multiple - 1) / multiple * multiple;
    return kept < multiple ? multiple : kept;
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

/* The most important `kept` of `count` become the first entries of ret_rows (count), in original order. */
static void choose(const double *score, int64_t count, int64_t kept, Scored *ret_rows) {
    for (int64_t i = 0; i < count; i++) ret_rows[i] = (Scored){score[i], i};
    qsort(ret_rows, (size_t)count, sizeof *ret_rows, by_importance);
    qsort(ret_rows, (size_t)kept, sizeof *ret_rows, by_row);
}

/* Copies the chosen rows of each of `stack` matrices with F rows of `width` values; absent: nothing. */
static void copy_up(Tensor from, Tensor to, int64_t stack, int64_t width, const Scored *rows) {
    if (!from.data) return;
    int64_t F = tensor_count(from) / (stack * width), kept = tensor_count(to) / (stack * width);
    for (int64_t part = 0; part < stack; part++)
        for (int64_t k = 0; k < kept; k++)
            memcpy(tensor_f32(to) + (part * kept + k) * width,
                   tensor_f32(from) + (part * F + rows[k].row) * width, (size_t)width * sizeof(float));
}

static void copy_rows(const Store *from, Store *to, int64_t layer, const Scored *rows) {
    const ModelConfig *c = &from->model->config;
    int64_t F = c->inner, kept = to->model->config.inner, C = c->hidden, stack = c->gated ? 2 : 1;
    copy_up(prune_param(from, layer, "mlp.up.weight"), prune_param(to, layer, "mlp.up.weight"), stack, C,
            rows);
    copy_up(prune_param(from, layer, "mlp.up.bias"), prune_param(to, layer, "mlp.up.bias"), stack, 1, rows);
    const float *down = tensor_f32(prune_param(from, layer, "mlp.down.weight"));
    float *new_down = tensor_f32(prune_param(to, layer, "mlp.down.weight"));
    for (int64_t r = 0; r < C; r++)
        for (int64_t k = 0; k < kept; k++) new_down[r * kept + k] = down[r * F + rows[k].row];
}

static void copy_heads(const Store *from, Store *to, int64_t layer, const Scored *groups) {
    const ModelConfig *c = &from->model->config, *n = &to->model->config;
    LayerHeads old = prune_heads_of(from, layer), new = prune_heads_of(to, layer);
    int64_t C = c->hidden, A = config_attention(c), B = config_attention(n);
    for (int64_t k = 0; k < config_kv_heads(n); k++) {
        int64_t chosen = groups[k].row;
        for (int part = 0; part < 3; part++) {
            int64_t rows = part ? old.width : old.group;
            memcpy(new.weight[part] + k *rows *C, old.weight[part] + chosen * rows * C,
                   (size_t)(rows * C) * sizeof(float));
            if (old.bias[part])
                memcpy(new.bias[part] + k *rows, old.bias[part] + chosen * rows,
                       (size_t)rows * sizeof(float));
        }
        for (int64_t row = 0; row < C; row++)
            memcpy(new.out + row *B + k *old.group, old.out + row * A + chosen * old.group,
                   (size_t)old.group * sizeof(float));
    }
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

/* Chooses and copies the neurons and heads of all layers. */
static Status copy_layers(const Store *params, PruneRank rank, Store *to) {
    const ModelConfig *old = &params->model->config, *new = &to->model->config;
    int64_t most = old->inner > old->heads ? old->inner : old->heads;
    CLEANUP(mem_freep) Scored *rows = NULL;
    CLEANUP(mem_freep) double *score = NULL;
    TRY(mem_new((size_t)most, sizeof *rows, &rows));
    TRY(mem_new((size_t)most, sizeof *score, &score));
    for (int64_t layer = 0; layer < old->layers; layer++) {
        if (!config_sparse(old, layer)) {
            TRY(prune_row_scores(params, rank, layer, score));
            choose(score, old->inner, new->inner, rows);
            copy_rows(params, to, layer, rows);
        }
        TRY(prune_head_scores(params, rank, layer, score));
        choose(score, config_kv_heads(old), config_kv_heads(new), rows);
        copy_heads(params, to, layer, rows);
    }
    return OK;
}

Status prune_shrink(const Store *params, int64_t inner, int64_t heads, PruneRank rank, Device *device,
                    Model **ret_model, Store **ret_params) {
    CLEANUP(model_freep) Model *model = NULL;
    CLEANUP(store_freep) Store *store = NULL;
    ModelConfig config = params->model->config;
    config.head_width = config_head_width(&config);
    if (config.kv_heads) config.kv_heads = heads / (config.heads / config.kv_heads);
    config.heads = heads;
    if (!config.free_head_width && config_attention(&config) == config.hidden) config.head_width = 0;
    config.inner = inner;
    TRY(model_new(&model, &config));
    TRY(store_new(&store, model, device, MEM_PARAMS));
    copy_same(params, store);
    TRY(copy_layers(params, rank, store));
    *ret_model = model;
    *ret_params = store;
    model = NULL;
    store = NULL;
    return OK;
}

/* ---- rows of out and down ---- */

static const char *const outputs[] = {"attn.out.weight", "mlp.down.weight"};
enum { OUTPUTS = 2 };

Status prune_zero_outputs(Store *params, double amount, PruneRank rank) {
    int64_t C = params->model->config.hidden, kept = C - llround(amount * (double)C);
    CLEANUP(mem_freep) Scored *rows = NULL;
    CLEANUP(mem_freep) double *score = NULL;
    TRY(mem_new((size_t)C, sizeof *rows, &rows));
    TRY(mem_new((size_t)C, sizeof *score, &score));
    for (int64_t layer = 0; layer < params->model->config.layers; layer++)
        for (int i = 0; i < OUTPUTS; i++) {
            Tensor w = prune_param(params, layer, outputs[i]);
            int64_t K = tensor_cols(w);
            TRY(prune_output_scores(params, rank, layer, outputs[i], score));
            choose(score, C, kept, rows);
            for (int64_t k = kept; k < C; k++)
                memset(tensor_f32(w) + rows[k].row * K, 0, (size_t)K * sizeof(float));
        }
    return OK;
}

static bool all_zero(const float *row, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (row[i] != 0) return false;
    return true;
}

int64_t prune_zero_rows(const Store *params) {
    int64_t zeros = 0;
    for (int64_t layer = 0; layer < params->model->config.layers; layer++)
        for (int i = 0; i < OUTPUTS; i++) {
            Tensor w = prune_param(params, layer, outputs[i]);
            for (int64_t c = 0; w.data && c < params->model->config.hidden; c++)
                zeros += all_zero(tensor_f32(w) + c * tensor_cols(w), tensor_cols(w));
        }
    return zeros;
}
