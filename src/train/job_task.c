/* What a task adds to a job, where it adds something. */
#include "train/classify.h"
#include "train/job.h"
#include "train/predictions.h"

static Status predict_all_tokens(const Job *job, const Dataset *data, int64_t limit, Predictions *out) {
    return predict_tokens(job, data, limit, 0, out);
}

static const struct {
    Status (*prepare)(Job *job, ModelConfig *config);
    /* Metrics of labeled data and, if it is wanted, their predictions. */
    Status (*scores)(const Job *job, const Dataset *data, int64_t limit, bool validating, Predictions *out,
                     json_t *result);
    Status (*predict)(const Job *job, const Dataset *data, int64_t limit, Predictions *out);
} tasks[TASK_COUNT] = {[TASK_LM] = {.predict = predict_all_tokens},
                       [TASK_MLM] = {.predict = predict_all_tokens},
                       [TASK_SPAN] = {.predict = predict_spans},
                       [TASK_CLASSIFY] = {job_find_labels, classify_scores, classify_predict}};

Status task_prepare(Job *job, ModelConfig *config) {
    return tasks[job->task].prepare ? tasks[job->task].prepare(job, config) : OK;
}

bool task_validation_scores(const Job *job) {
    return tasks[job->task].scores && config_problem(&job->model->config) != PROBLEM_REGRESSION;
}

Status task_scores(const Job *job, const Dataset *data, int64_t limit, bool validating, Predictions *out,
                   json_t *result) {
    if (tasks[job->task].scores) return tasks[job->task].scores(job, data, limit, validating, out, result);
    return out ? tasks[job->task].predict(job, data, limit, out) : OK;
}

Status task_predict(const Job *job, const Dataset *data, Predictions *out) {
    return tasks[job->task].predict(job, data, 0, out);
}
