/* SQuAD evaluation: scoring a predictions file, or a model's own answers. */
#ifndef WEFT_TRAIN_SQUAD_H
#define WEFT_TRAIN_SQUAD_H

#include "data/squad_answers.h"
#include "train/job.h"

/* The official score of the file config->squad.predictions; uses no model. */
MUST_USE Status squad_eval_predictions(const EvalConfig *config, json_t **ret_result);
/* Loss and official score of a job's model on SQuAD data. The job must not be started yet. Collective. */
MUST_USE Status squad_eval_model(const EvalConfig *config, Job *job, Progress *progress, json_t **ret_result);

/* The same for a predictions file that is being written: answers to questions without answers, from SQuAD
 * files or the rows of tables. Collective. */
MUST_USE Status squad_predict(const PredictConfig *config, Job *job, Progress *progress, Predictions *out);

/* Sets "answer", "start" and "end", in characters of the context; all are null if there is no answer. */
MUST_USE Status squad_put_choice(json_t *json, SquadText context, const SquadChoice *choice);

/* Exact match and F1, as fractions, of a started job's model on the questions of SQuAD files whose windows
 * are all among the first `limit` (0: all), with the default options of 'weft eval'. Collective. */
MUST_USE Status squad_score_job(const Job *job, const char *const *paths, int count, int64_t limit,
                                double *ret_exact, double *ret_f1);

/* The training loss: summed over the windows that contain their answer or mark it as absent. */
typedef struct SquadLoss {
    double start, end; /* sums */
    int64_t count;
} SquadLoss;

/* Runs the job's model on the first `count` windows, padded to T, and collects their scores. Collective. */
MUST_USE Status squad_run_model(const Job *job, const SquadFeatures *features, size_t count, int64_t T,
                                SquadScores *scores, SquadLoss *ret_loss);

#endif
