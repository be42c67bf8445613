/* weft prune, in two parts: one checkpoint from another (prune_model.c), and rounds of pruning and training
 * with what came of them (prune_rounds.c, prune_plot.c). */
#ifndef WEFT_CLI_PRUNE_H
#define WEFT_CLI_PRUNE_H

#include "cli/train_options.h"
#include "compress/prune.h"

/* What a checkpoint has come to. */
typedef struct PruneState {
    PruneCount count; /* weights of the layers' matrices */
    int64_t inner, heads, params;
} PruneState;

/* Writes to `out` the checkpoint in `from` with the part `amount` of its weights or, of the `rows` (or heads)
 * that a layer had before any were pruned, its rows gone. Without `out` it only looks. */
MUST_USE Status prune_model(const PruneArgs *args, const char *from, double amount, int64_t rows,
                            const char *out, PruneState *ret_state);
/* The rows of a layer's feed-forward part, or its heads, as the kind says; refuses an amount that takes none.
 */
MUST_USE Status prune_model_rows(const PruneArgs *args, const char *from, int64_t *ret_rows);
/* The part that is gone. */
double prune_sparsity(const PruneArgs *args, const PruneState *state, int64_t rows);

/* All rounds, or those that are still to do; *ret_result as in pruning.json. */
MUST_USE Status prune_rounds(Invocation *call, const PruneArgs *args, json_t **ret_result);
/* loss.svg and time.svg in `dir`, by gnuplot; nothing where there is none. `beside`: another run, or NULL. */
MUST_USE Status prune_plot(const char *dir, const json_t *result, const json_t *beside);

#endif
