/* weft prune: pruning a checkpoint (prune_model.c), and rounds of pruning and training with plots of the
 * results (prune_rounds.c, prune_plot.c). */
#ifndef WEFT_CLI_PRUNE_H
#define WEFT_CLI_PRUNE_H

#include "cli/train_options.h"
#include "compress/prune.h"

/* The size of a checkpoint after pruning. */
typedef struct PruneState {
    PruneCount count; /* zeros and total of the layers' matrices */
    int64_t inner, heads, params;
} PruneState;

/* Prunes the checkpoint in `from` to the fraction `amount` and writes it to `out`. For rows and heads the
 * fraction refers to `rows`, their number per layer before any pruning. If `out` is NULL, only fills in
 * *ret_state. */
MUST_USE Status prune_model(const PruneArgs *args, const char *from, double amount, int64_t rows,
                            const char *out, PruneState *ret_state);
/* The number of feed-forward rows or heads per layer, by kind. Rejects an amount that is too small to remove
 * any. */
MUST_USE Status prune_model_rows(const PruneArgs *args, const char *from, int64_t *ret_rows);
/* The pruned fraction. */
double prune_sparsity(const PruneArgs *args, const PruneState *state, int64_t rows);

/* Runs all rounds, or the remaining ones with --resume. *ret_result: the contents of pruning.json. */
MUST_USE Status prune_rounds(Invocation *call, const PruneArgs *args, json_t **ret_result);
/* Plots loss.svg and time.svg in `dir` if gnuplot is installed. `beside`: pruning.json of another run, or
 * NULL. */
MUST_USE Status prune_plot(const char *dir, const json_t *result, const json_t *beside);

#endif
