/* Questions and answers: the score of predictions, and a model's answers to SQuAD's questions. */
#ifndef WEFT_TRAIN_SQUAD_H
#define WEFT_TRAIN_SQUAD_H

#include "data/squad_answers.h"
#include "train/job.h"

/* The official score of config->squad.predictions; no model is needed. */
MUST_USE Status squad_eval_predictions(const EvalConfig *config, json_t **ret_result);
/* Loss and score of a job's model that has not been started, whose data is SQuAD's. */
MUST_USE Status squad_eval_model(const EvalConfig *config, Job *job, Progress *progress, json_t **ret_result);

/* The loss as in training: over the windows that count. */
typedef struct SquadLoss {
    double start, end; /* sums */
    int64_t count;
} SquadLoss;

/* Has the job's model score the first `count` windows, padded to T. `progress` may be NULL. */
MUST_USE Status squad_run_model(const Job *job, const SquadFeatures *features, size_t count, int64_t T,
                                SquadScores *scores, Progress *progress, SquadLoss *ret_loss);

#endif
