/* Questions and answers: the score of predictions, and a model's answers to SQuAD's questions. */
#ifndef WEFT_TRAIN_SQUAD_H
#define WEFT_TRAIN_SQUAD_H

#include "train/train.h"

/* The official score of config->squad.predictions; no model is needed. */
MUST_USE Status squad_eval_predictions(const EvalConfig *config, json_t **ret_result);

#endif
