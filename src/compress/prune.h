/* Pruning: removing the least important weights, rows or attention heads of a model.
 *
 * Only the layers' matrices are pruned: q, k, v and the output projection of attention, up and down of the
 * FFN. Of mixtures, these are those of the experts, which lose weights but no neurons. Embeddings, norms,
 * routers and output heads never change; biases go only with their neuron or head. Stores are unsharded, fp32
 * and in host memory.
 *
 *   prune.c        weights
 *   prune_score.c  importance of neurons, heads and rows
 *   prune_rows.c   removing neurons and heads, zeroing rows
 *   prune_model.c  a checkpoint, with gradients for scores
 */
#ifndef WEFT_COMPRESS_PRUNE_H
#define WEFT_COMPRESS_PRUNE_H

#include "model/model.h"

/* Number of weights in the layers' matrices, and how many of them are zero. */
typedef struct PruneCount {
    int64_t zeros, total;
} PruneCount;

MUST_USE Status prune_count(const Store *params, PruneCount *ret_count);
/* A layer's parameter by the last part of its name, such as "mlp.up.weight". */
Tensor prune_param(const Store *params, int64_t layer, const char *name);

/* A layer's attention by head. Heads are pruned in groups that share a key-value head: a group has `group`
 * rows of q and of the columns of out, and `width` rows of k and of v. */
typedef struct LayerHeads {
    int64_t group, width;
    float *weight[3], *bias[3]; /* q, k, v; bias: NULL if there is none */
    float *out;                 /* (C,A) */
} LayerHeads;
LayerHeads prune_heads_of(const Store *params, int64_t layer);

/* Magnitude pruning: zeroes the smallest weights until the fraction `amount` is zero, over all matrices
 * together or, with per_matrix, in each one (q, k and v separately). Among equal magnitudes, the first
 * weights are zeroed. Existing zeros count towards `amount`; if there are already more, the call fails. With
 * `grads` (NULL: none), weights are ranked by |weight x gradient| instead. */
MUST_USE Status prune_weights(Store *params, double amount, bool per_matrix, const Store *grads);

/* The importance of a row or head. */
typedef enum {
    PRUNE_L2,       /* norm of its own rows' weights: of up; of q, k and v; of out or down */
    PRUNE_PRODUCT,  /* norm of the rows with biases times norm of the columns that read their outputs (for
                     * heads,  the value rows). It bounds the contribution to the residual stream and is
                     * invariant to  scaling one up and the other down. Rows of out and down have no single
                     * reader: l2. */
    PRUNE_GRADIENT, /* sum of |weight x gradient| over all weights and biases that would be removed: the
                     * first-order estimate of how much the loss changes */
} PruneScore;

typedef struct PruneRank {
    PruneScore score;
    const Store *grads; /* PRUNE_GRADIENT: gradients of a model with the same layers */
} PruneRank;

/* Write the scores of all neurons (F), key-value heads with their group of heads, or rows (C) of the matrix
 * `name` (out or down) of a layer. */
MUST_USE Status prune_row_scores(const Store *params, PruneRank rank, int64_t layer, double *score);
MUST_USE Status prune_head_scores(const Store *params, PruneRank rank, int64_t layer, double *score);
MUST_USE Status prune_output_scores(const Store *params, PruneRank rank, int64_t layer, const char *name,
                                    double *score);

/* Number of FFN neurons (rows) left of `rows` after pruning the fraction `amount`, rounded up to a multiple
 * that suits kernels and tensor parallelism. */
int64_t prune_rows_kept(int64_t rows, double amount, int64_t multiple);
/* Number of heads left of `heads` after pruning the fraction `amount`: a multiple of `multiple`, and at least
 * that. */
int64_t prune_heads_kept(int64_t heads, double amount, int64_t multiple);

/* A copy of the model with the `inner` most important FFN neurons and the `heads` most important heads (whole
 * groups) of each layer, in their original order. Ties keep the earlier ones. The caller owns both results;
 * *ret_model must outlive *ret_params. */
MUST_USE Status prune_shrink(const Store *params, int64_t inner, int64_t heads, PruneRank rank,
                             Device *device, Model **ret_model, Store **ret_params);

/* The rows of out and down write to the residual stream, whose width is fixed, so they cannot be removed.
 * Zeroes the weights of the least important round(amount x C) rows of each; biases stay. Rows that are zero
 * already count. */
MUST_USE Status prune_zero_outputs(Store *params, double amount, PruneRank rank);
/* Number of rows of out and down, over all layers, whose weights are all zero. */
int64_t prune_zero_rows(const Store *params);

#endif
