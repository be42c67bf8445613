/* What a resumed run may not change: the model, the data, and settings that decide about its samples; and
 * what a changed schedule does to its learning rate. */
#ifndef WEFT_TRAIN_RESUME_CHECK_H
#define WEFT_TRAIN_RESUME_CHECK_H

#include "base/json.h"
#include "model/config.h"
#include "optim/lr.h"
#include "train/settings.h"

/* Compares the model's size with that of the run's checkpoint, before its tensors are compared. */
MUST_USE Status resume_check_model(const Settings *settings, const ModelConfig *now, const ModelConfig *was);
/* Compares what trainer_describe collects with what the checkpoint `dir` of the run `run` has recorded. */
MUST_USE Status resume_check_settings(const char *run, const char *dir, json_t *now, const json_t *was);

/* A schedule as a checkpoint stores it. */
MUST_USE Status lr_save(const LrSchedule *schedule, json_t **ret_json);
/* Compares the schedule with the one stored in the checkpoint of `step`. *ret_text, which the caller frees,
 * says what the learning rate was, what it will be and which options changed; NULL if none did, or if the
 * checkpoint stores no schedule. */
MUST_USE Status lr_change_text(const LrSchedule *now, const json_t *saved, int64_t step, char **ret_text);

#endif
