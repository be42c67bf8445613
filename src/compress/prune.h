/* Pruning: removing the least important weights, FFN neurons or attention heads of a model.
 *
 * Only the layers' matrices are pruned: q, k, v and the output projection of attention, up and down of the
 * FFN. Embeddings, norms and output heads never change; biases go only with their neuron or head. Stores are
 * unsharded, fp32 and in host memory. */
#ifndef WEFT_COMPRESS_PRUNE_H
#define WEFT_COMPRESS_PRUNE_H

#include "model/model.h"

/* Number of weights in the layers' matrices, and how many of them are zero. */
typedef struct PruneCount {
    int64_t zeros, total;
} PruneCount;

MUST_USE Status prune_count(const Store *params, PruneCount *ret_count);

/* Magnitude pruning: zeroes the smallest weights until the fraction `amount` is zero, over all matrices
 * together or, with per_matrix, in each one (q, k and v separately). Among equal magnitudes, the first
 * weights are zeroed. Existing zeros count towards `amount`; if there are already more, the call fails. */
MUST_USE Status prune_weights(Store *params, double amount, bool per_matrix);

/* Number of FFN neurons (rows) left of `rows` after pruning the fraction `amount`, rounded up to a multiple
 * that suits kernels and tensor parallelism. */
int64_t prune_rows_kept(int64_t rows, double amount, int64_t multiple);
/* Importance of each FFN neuron of layer `index`: the norm of its row in `up` (with bias) times the norm of
 * its column in `down`. It bounds the neuron's contribution to the output and is invariant to scaling one up
 * and the other down. Writes score (F). */
MUST_USE Status prune_row_scores(const Store *params, int64_t index, double *score);
/* A copy of the model with the `kept` most important FFN neurons of each layer, in their original order. Ties
 * keep the earlier ones. The caller owns both results; *ret_model must outlive *ret_params. */
MUST_USE Status prune_rows(const Store *params, int64_t kept, Device *device, Model **ret_model,
                           Store **ret_params);

/* Number of heads left of `heads` after pruning the fraction `amount`: a multiple of `multiple`, and at least
 * that. */
int64_t prune_heads_kept(int64_t heads, double amount, int64_t multiple);
/* Importance of each head of layer `index`: the norm of its value rows (with biases) times the norm of the
 * output projection's columns that read them, which bounds its contribution to the output. Writes score (H).
 */
MUST_USE Status prune_head_scores(const Store *params, int64_t index, double *score);
/* A copy of the model with the `kept` most important heads of each layer; otherwise like prune_rows. */
MUST_USE Status prune_heads(const Store *params, int64_t kept, Device *device, Model **ret_model,
                            Store **ret_params);

#endif
