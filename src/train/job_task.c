/* What a task adds to a job, where it adds something. */
#include "train/classify.h"
#include "train/job.h"

static const struct {
    Status (*prepare)(Job *job, ModelConfig *config);
    Status (*scores)(const Job *job, const Dataset *data, int64_t limit, bool validating, json_t *result);
} tasks[TASK_COUNT] = {[TASK_CLASSIFY] = {job_find_labels, classify_scores}};

Status task_prepare(Job *job, ModelConfig *config) {
    return tasks[job->task].prepare ? tasks[job->task].prepare(job, config) : OK;
}

bool task_validation_scores(const Job *job) {
    return tasks[job->task].scores && config_problem(&job->model->config) != PROBLEM_REGRESSION;
}

Status task_scores(const Job *job, const Dataset *data, int64_t limit, bool validating, json_t *result) {
    if (!tasks[job->task].scores) return OK;
    return tasks[job->task].scores(job, data, limit, validating, result);
}
