/* Explains what a changed schedule does to the learning rate of a resumed run. */
#ifndef WEFT_TRAIN_LR_CHANGE_H
#define WEFT_TRAIN_LR_CHANGE_H

#include "base/json.h"
#include "optim/lr.h"

/* A schedule as a checkpoint stores it. */
MUST_USE Status lr_save(const LrSchedule *schedule, json_t **ret_json);
/* Compares the schedule with the one stored in the checkpoint of `step`. *ret_text, which the caller frees,
 * says what the learning rate was, what it will be and which options changed; NULL if none did, or if the
 * checkpoint stores no schedule. */
MUST_USE Status lr_change_text(const LrSchedule *now, const json_t *saved, int64_t step, char **ret_text);

#endif
