/* Pruning of checkpoints: a single one (prune_model.c), rounds of pruning and training (prune_rounds.c), two
 * kinds compared (prune_both.c) and conclusions from the results (prune_conclusion.c). */
#ifndef WEFT_COMPRESS_PRUNE_ROUNDS_H
#define WEFT_COMPRESS_PRUNE_ROUNDS_H

#include "compress/prune.h"
#include "train/train.h"

typedef struct PruneSpec {
    const char *kind;   /* "weights", "rows", "heads", "all-rows" */
    const char *ramp;   /* "remaining", "even" */
    const char *score;  /* "l2", "product", "gradient"; NULL: the kind's own */
    const char *also;   /* another kind to prune by, for comparison, or NULL */
    const char *beside; /* directory of another pruning run to compare with, or NULL */
    double amount;
    bool global, per_matrix, resume;
    int64_t rounds, steps_per_round, row_multiple;
    /* set by the caller */
    Settings train; /* model and out are those of the pruning; the rest applies to each round's training */
    int64_t tp;     /* heads are pruned in multiples of it */
    Group *world;   /* prune_rounds, prune_both: the ranks that train */
    const json_t *settings; /* likewise: the options of each round's training by name */
    const json_t *study;    /* what a recipe's study published, for pruning.json; NULL: nothing */
} PruneSpec;

/* The size of a checkpoint: what pruning changes. */
typedef struct PruneState {
    PruneCount count; /* zeros and total of the layers' matrices */
    int64_t inner, heads, params;
    int64_t group; /* heads that share a key-value head */
    int64_t rows;  /* of all matrices of all layers, without zero rows of out and down */
    int64_t zero_rows;
} PruneState;

/* Prunes the checkpoint in `from` to the fraction `amount` and writes it to `out`. For rows and heads, the
 * fraction refers to `dense`, the model before any pruning. If `out` is NULL, only fills in *ret_state. */
MUST_USE Status prune_model(const PruneSpec *spec, const char *from, double amount, const PruneState *dense,
                            const char *out, PruneState *ret_state);
/* Rejects an amount that is too small to remove anything. */
MUST_USE Status prune_check_amount(const PruneSpec *spec, const PruneState *dense);
/* The pruned fraction: of weights, of feed-forward rows, of heads or of the rows of all matrices. */
double prune_sparsity(const PruneSpec *spec, const PruneState *state, const PruneState *dense);
/* Whether pruned weights remain in the matrices as zeros. */
bool prune_leaves_zeros(const PruneSpec *spec);

/* Prunes once, without training: writes the checkpoint and pruning.json, whose contents are *ret_result. */
MUST_USE Status prune_once(const PruneSpec *spec, json_t **ret_result);
/* Runs all rounds, or the remaining ones of a resumed run. `base`: a run with the same options except the
 * kind, whose round 0 is shared, or NULL. *ret_result: the contents of pruning.json. *ret_stopped: a round
 * was interrupted. */
MUST_USE Status prune_rounds(const PruneSpec *spec, const char *base, json_t **ret_result, bool *ret_stopped);
/* Runs the rounds of both kinds, spec->kind and spec->also. *ret_result: the contents of OUT/pruning.json,
 * with both under "kinds". */
MUST_USE Status prune_both(const PruneSpec *spec, json_t **ret_result, bool *ret_stopped);
/* Adds "conclusion" to `to`: figures and sentences computed from the rounds of one or two pruning.json (other
 * may be NULL), and the study. */
MUST_USE Status prune_conclude(const PruneSpec *spec, json_t *to, const json_t *result, const json_t *other);

#endif
