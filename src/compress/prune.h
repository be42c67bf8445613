/* Pruning: which weights of a model count least, and the model without them.
 *
 * What can be pruned are the matrices of the layers: q, k, v and the output of attention, up and down of the
 * feed-forward part. Embeddings, norms, biases and heads stay as they are. Stores are whole, in fp32 and in
 * the host's memory. */
#ifndef WEFT_COMPRESS_PRUNE_H
#define WEFT_COMPRESS_PRUNE_H

#include "model/model.h"

/* How many weights of the layers' matrices there are, and how many of them are 0. */
typedef struct PruneCount {
    int64_t zeros, total;
} PruneCount;

MUST_USE Status prune_count(const Store *params, PruneCount *ret_count);

/* Sets the smallest magnitudes to 0, so that the part `amount` of all these weights is 0: the smallest of all
 * together or, with per_matrix, of each matrix (q, k and v are one each). Of equal ones the first go. What is
 * 0 already counts as the smallest; more of it than `amount` asks for is refused. */
MUST_USE Status prune_weights(Store *params, double amount, bool per_matrix);

/* Rows of a feed-forward part of `rows` that stay when the part `amount` goes: rounded up to a multiple, so
 * that kernels and tensor ranks find sizes that suit them. */
int64_t prune_rows_kept(int64_t rows, double amount, int64_t multiple);
/* What a row, with its bias, and the column that reads it are worth: the product of their norms. It bounds
 * what the neuron can add to the output, and does not change when one is scaled up and the other down. score
 * (F) from layer `index`. */
MUST_USE Status prune_row_scores(const Store *params, int64_t index, double *score);
/* The same model with `kept` rows in each layer's feed-forward part: those worth most, in their order; of
 * equal ones the later go. *ret_model must outlive *ret_params. */
MUST_USE Status prune_rows(const Store *params, int64_t kept, Device *device, Model **ret_model,
                           Store **ret_params);

/* Heads that stay of `heads` when the part `amount` goes: at least one, and as many as `multiple` divides. */
int64_t prune_heads_kept(int64_t heads, double amount, int64_t multiple);
/* What a head is worth: the norm of its values' rows, with their biases, times that of the columns that read
 * them, which bounds what it can add to the output. score (H) from layer `index`. */
MUST_USE Status prune_head_scores(const Store *params, int64_t index, double *score);
/* The same model with `kept` heads in each layer, chosen as rows are. */
MUST_USE Status prune_heads(const Store *params, int64_t kept, Device *device, Model **ret_model,
                            Store **ret_params);

#endif
