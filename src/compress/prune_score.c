/* Importance scores, from sums over the rows and columns of a layer's matrices: of squared weights, or of
 * |weight x gradient|.
 *
 * C hidden size, F inner size, A attention width, D head width */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "compress/prune.h"

/* Adds the sum over each row of a parameter to `rows`, and over each column to `columns`; either may be NULL.
 */
static void add_sums(const Store *params, PruneRank rank, int64_t layer, const char *name, double *rows,
                     double *columns) {
    Tensor view = prune_param(params, layer, name);
    if (!view.data) return;
    const float *w = tensor_f32(view), *g = NULL;
    if (rank.score == PRUNE_GRADIENT) g = tensor_f32(prune_param(rank.grads, layer, name));
    bool bias = !strstr(name, ".weight");
    int64_t K = bias ? 1 : tensor_cols(view), R = tensor_count(view) / K;
    for (int64_t r = 0; r < R; r++) {
        double sum = 0;
        for (int64_t k = 0; k < K; k++) {
            int64_t i = r * K + k;
            double value = g ? fabs((double)w[i] * g[i]) : (double)w[i] * w[i];
            sum += value;
            if (columns) columns[k] += value;
        }
        if (rows) rows[r] += sum;
    }
}

/* The score of what has these sums over its rows and over the columns that read it. */
static double score_of(PruneRank rank, double rows, double columns) {
    if (rank.score == PRUNE_GRADIENT) return rows + columns;
    return rank.score == PRUNE_L2 ? sqrt(rows) : sqrt(rows) * sqrt(columns);
}

Status prune_row_scores(const Store *params, PruneRank rank, int64_t layer, double *score) {
    int64_t F = params->model->config.inner, stack = params->model->config.gated ? 2 : 1;
    CLEANUP(mem_freep) double *rows = NULL, *columns = NULL; /* (stack,F) (F) */
    TRY(mem_new((size_t)(stack * F), sizeof *rows, &rows));
    TRY(mem_new((size_t)F, sizeof *columns, &columns));
    add_sums(params, rank, layer, "mlp.up.weight", rows, NULL);
    if (rank.score != PRUNE_L2) add_sums(params, rank, layer, "mlp.up.bias", rows, NULL);
    add_sums(params, rank, layer, "mlp.down.weight", NULL, columns);
    for (int64_t f = 0; f < F; f++)
        score[f] = score_of(rank, rows[f] + (stack > 1 ? rows[F + f] : 0), columns[f]);
    return OK;
}

static double sum_of(const double *values, int64_t from, int64_t count) {
    double sum = 0;
    for (int64_t i = from; i < from + count; i++) sum += values[i];
    return sum;
}

Status prune_head_scores(const Store *params, PruneRank rank, int64_t layer, double *score) {
    const ModelConfig *c = &params->model->config;
    int64_t D = config_head_width(c), A = config_attention(c), K = config_kv_width(c), G = config_kv_heads(c);
    CLEANUP(mem_freep) double *rows = NULL, *columns = NULL; /* (A) of q, (K) of k and of v; (A) of out */
    TRY(mem_new((size_t)(A + 2 * K), sizeof *rows, &rows));
    TRY(mem_new((size_t)A, sizeof *columns, &columns));
    bool biases = rank.score != PRUNE_L2;
    add_sums(params, rank, layer, "attn.qkv.weight", rows, NULL);
    add_sums(params, rank, layer, "attn.q.weight", rows, NULL);
    add_sums(params, rank, layer, "attn.kv.weight", rows + A, NULL);
    if (biases) add_sums(params, rank, layer, "attn.qkv.bias", rows, NULL);
    if (biases) add_sums(params, rank, layer, "attn.q.bias", rows, NULL);
    if (biases) add_sums(params, rank, layer, "attn.kv.bias", rows + A, NULL);
    add_sums(params, rank, layer, "attn.out.weight", NULL, columns);
    for (int64_t g = 0; g < G; g++) {
        double row = sum_of(rows, A + K + g * D, D);
        if (rank.score != PRUNE_PRODUCT) row += sum_of(rows, g * (A / G), A / G) + sum_of(rows, A + g * D, D);
        score[g] = score_of(rank, row, sum_of(columns, g * (A / G), A / G));
    }
    return OK;
}

Status prune_output_scores(const Store *params, PruneRank rank, int64_t layer, const char *name,
                           double *score) {
    int64_t C = params->model->config.hidden;
    CLEANUP(mem_freep) double *rows = NULL;
    TRY(mem_new((size_t)C, sizeof *rows, &rows));
    add_sums(params, rank, layer, name, rows, NULL);
    for (int64_t c = 0; c < C; c++) score[c] = rank.score == PRUNE_GRADIENT ? rows[c] : sqrt(rows[c]);
    return OK;
}
