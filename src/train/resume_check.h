/* What a resumed run may not change: the model, the data, and settings that decide about its samples. */
#ifndef WEFT_TRAIN_RESUME_CHECK_H
#define WEFT_TRAIN_RESUME_CHECK_H

#include "base/json.h"
#include "model/config.h"
#include "train/settings.h"

/* Compares the model's size with that of the run's checkpoint, before its tensors are compared. */
MUST_USE Status resume_check_model(const Settings *settings, const ModelConfig *now, const ModelConfig *was);
/* Compares what trainer_describe collects with what the checkpoint `dir` of the run `run` has recorded. */
MUST_USE Status resume_check_settings(const char *run, const char *dir, json_t *now, const json_t *was);

#endif
