/* What one rank computes in a trial, step by step, and how far the same trial in a layout is from it.
 *
 * Values are compared where they are: each rank compares the elements that it updates. So the first step at
 * which something differs names the ranks on which it happened. */
#ifndef WEFT_VERIFY_RECORD_H
#define WEFT_VERIFY_RECORD_H

#include "verify/trial.h"

enum { RECORD_STEPS = 4 };

typedef struct Record {
    TrialSpec spec;
    int64_t numel; /* parameters of the model */
    double loss[RECORD_STEPS], norm[RECORD_STEPS];
    double scale[RECORD_STEPS]; /* the gradients are this many times as large */
    int parts;                  /* gradients, weights, then the optimizer's states after the update */
    float *values;              /* [parts][RECORD_STEPS][numel] */
    uint64_t bits;              /* a hash of all this */
} Record;

/* Relative differences: of a parameter's gradient and its optimizer's states, that of the vector; of its
 * weights, the largest one of an element, less what rounding errors of gradients explain, relative to the
 * largest element. */
typedef enum { DIFF_LOSS, DIFF_NORM, DIFF_GRADIENT, DIFF_STATE, DIFF_WEIGHT, DIFF_KINDS } DiffKind;
#define DIFF_NONE                                                                                            \
    {                                                                                                        \
        .param = { -1, -1, -1, -1, -1 }                                                                      \
    }

typedef struct Diff {
    double of[DIFF_KINDS];
    int param[DIFF_KINDS]; /* number of the parameter with this difference; -1: none */
    bool exceeded;
    DiffKind first; /* the first that exceeds its limit */
} Diff;

/* Where a record is compared with another one while it runs. */
typedef struct RecordCheck {
    const Record *expected;
    Diff diff;
    int step; /* the first that exceeds a limit, from 1; later ones are not compared */
} RecordCheck;

/* Runs a trial on one rank. With `flip`, a bit of its weights changes after the second step, as if by a
 * damaged memory; for tests. `check` may be NULL. */
MUST_USE Status trial_record(Record *ret_record, const TrialSpec *spec, const KernelTable *table,
                             Device *device, bool flip, RecordCheck *check);
void trial_record_done(Record *record);
/* Replaces the record by that of `root`. */
MUST_USE Status trial_record_share(Record *record, Group *group, int root);

/* The limit of a difference in this trial; 0: it is not compared. */
double diff_limit(const TrialSpec *spec, DiffKind kind);
/* NaN, which is the largest difference, remains so. */
bool diff_is_more(double found, double most);
const char *diff_name(DiffKind kind); /* "loss", "gradient norm", "gradient", "optimizer state", "weight" */
/* `other` as well: the larger differences. */
void diff_add(Diff *diff, const Diff *other);

/* Compares a trial with a record at a step: loss, norm and gradients before the update (a TrialLook, whose
 * context is a RecordDiff), the optimizer's states and weights after it. */
typedef struct RecordDiff {
    const Record *record;
    Diff *diff;
} RecordDiff;
MUST_USE Status record_compare_gradients(void *context, const Trial *trial, int step,
                                         const StepResult *result);
MUST_USE Status record_compare_update(const Record *record, const Trial *trial, int step, Diff *diff);

/* Flips a bit of the rank's first weight. */
MUST_USE Status trial_flip(Trial *trial);
/* A hash of the loss and of the weights that this rank updates. */
MUST_USE Status trial_bits(const Trial *trial, const StepResult *result, uint64_t *bits);

/* Writes the bits of the weights that this rank has to their places among all of the model's. */
MUST_USE Status trial_weight_bits(const Trial *trial, int64_t *bits);

/* Every rank's copy of a part of a parameter. */
typedef struct PieceHash {
    int64_t first, count; /* global index of its first element, and elements that are not padding */
    uint32_t param, crc;
} PieceHash;

/* Those of this rank; *ret_count is the same on all ranks, and unused ones have no elements. */
MUST_USE Status trial_pieces(const Trial *trial, PieceHash **ret_pieces, size_t *ret_count);

#endif
