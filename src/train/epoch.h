/* Epochs: which step belongs to which epoch, and the figures of each epoch.
 *
 * Step n trains on samples (n - 1) x batch to n x batch - 1 of the data's infinite order, in every layout and
 * however the batch is divided. A step counts for the epoch of the first sample in its batch, so a batch that
 * straddles two epochs completes the earlier one. An epoch ends with the step that trains on its last sample.
 * A batch larger than the data set completes several epochs at once; they are reported as one, under the
 * number of the last. */
#ifndef WEFT_TRAIN_EPOCH_H
#define WEFT_TRAIN_EPOCH_H

#include "base/json.h"

enum { EVERY_EPOCH = -1 }; /* an interval in steps that stands for "at the end of each epoch" */

typedef struct Epochs {
    int64_t samples, batch; /* samples per epoch and per step */
    int64_t steps;          /* of the epoch in progress ... */
    double loss, seconds;   /* ... and sums over them */
    json_t *done;           /* completed epochs, at most the last EPOCHS_LISTED; see epochs_finish */
} Epochs;

enum { EPOCHS_LISTED = 1000 };

void epochs_done(Epochs *epochs);
/* The epoch that a step counts for; epochs and steps are counted from 1. 0 for step 0. */
int64_t epochs_at(const Epochs *epochs, int64_t step);
/* Whether an epoch ends with this step. */
bool epochs_end(const Epochs *epochs, int64_t step);
/* Whether something that happens every `every` steps (0: never, or EVERY_EPOCH) is due after this one. */
bool epochs_due(const Epochs *epochs, int64_t every, int64_t step);

/* Adds a step to the epoch in progress. */
void epochs_add(Epochs *epochs, double loss, double seconds);
/* Ends the epoch that `step` completes: {"epoch", "step", "steps", "seconds", "loss"}, the mean training loss
 * and the time of the steps alone. The caller may add to *ret_epoch, which epochs->done lists. */
MUST_USE Status epochs_finish(Epochs *epochs, int64_t step, json_t **ret_epoch);

/* The state for a checkpoint, and back. */
MUST_USE Status epochs_save(const Epochs *epochs, json_t **ret_json);
void epochs_restore(Epochs *epochs, const json_t *json);

#endif
