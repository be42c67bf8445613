/* weft prune: pruning a checkpoint (prune_model.c), rounds of pruning and training (prune_rounds.c), two
 * kinds compared (prune_both.c), plots of the results (prune_plot.c) and conclusions from them
 * (prune_conclusion.c). */
#ifndef WEFT_CLI_PRUNE_H
#define WEFT_CLI_PRUNE_H

#include "cli/train_options.h"
#include "compress/prune.h"

/* The size of a checkpoint: what pruning changes. */
typedef struct PruneState {
    PruneCount count; /* zeros and total of the layers' matrices */
    int64_t inner, heads, params;
    int64_t rows; /* of all matrices of all layers, without zero rows of out and down */
    int64_t zero_rows;
} PruneState;

/* Prunes the checkpoint in `from` to the fraction `amount` and writes it to `out`. For rows and heads, the
 * fraction refers to `dense`, the model before any pruning. If `out` is NULL, only fills in *ret_state. */
MUST_USE Status prune_model(const PruneArgs *args, const char *from, double amount, const PruneState *dense,
                            const char *out, PruneState *ret_state);
/* Rejects an amount that is too small to remove anything. */
MUST_USE Status prune_check_amount(const PruneArgs *args, const PruneState *dense);
/* The pruned fraction: of weights, of feed-forward rows, of heads or of the rows of all matrices. */
double prune_sparsity(const PruneArgs *args, const PruneState *state, const PruneState *dense);
/* Whether pruned weights remain in the matrices as zeros. */
bool prune_leaves_zeros(const PruneArgs *args);

/* Runs all rounds, or the remaining ones with --resume. `base`: a run with the same options except the kind,
 * whose round 0 is shared, or NULL. *ret_result: the contents of pruning.json. */
MUST_USE Status prune_rounds(Invocation *call, const PruneArgs *args, const char *base, json_t **ret_result);
/* Runs the rounds of --kind and --also. *ret_result: the contents of OUT/pruning.json, with both under
 * "kinds". */
MUST_USE Status prune_both(Invocation *call, const PruneArgs *args, json_t **ret_result);
/* Plots loss.svg and time.svg in `dir` if gnuplot is installed. `beside`: another run's pruning.json, or
 * NULL. */
MUST_USE Status prune_plot(const char *dir, const json_t *result, const json_t *beside);
/* Adds "conclusion" to `to`: figures and sentences computed from the rounds of one or two pruning.json (other
 * may be NULL). */
MUST_USE Status prune_conclude(json_t *to, const json_t *result, const json_t *other);

#endif
