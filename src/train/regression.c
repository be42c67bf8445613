/* Keeps all predictions and targets, output by output, in fp64. */
#include "train/regression.h"

#include <math.h>
#include <stdlib.h>

#include "model/head.h"
#include "train/classify.h"

typedef struct Pairs {
    const Job *job;
    const Dataset *data;
    Predictions *out; /* NULL: not wanted */
    int64_t outputs, count;
    double *predicted, *given; /* (outputs, count) */
} Pairs;

static void pairs_done(Pairs *pairs) {
    free(pairs->predicted);
    free(pairs->given);
}

static Status fill_rows(void *context, int64_t at, HostBatch *batch) {
    const Pairs *pairs = context;
    return dataset_fill(pairs->data, (uint64_t)at, false, batch);
}

static Status keep_rows(void *context, int64_t at, const HostBatch *batch, const float *scores) {
    Pairs *pairs = context;
    if (pairs->out) TRY(classify_put(pairs->job, pairs->data, at, batch, scores, pairs->out));
    for (int64_t b = 0; b < batch->B; b++)
        for (int64_t i = 0; i < pairs->outputs; i++) {
            pairs->predicted[i * pairs->count + at + b] = (double)scores[b * pairs->outputs + i];
            pairs->given[i * pairs->count + at + b] = (double)batch->targets[b * pairs->outputs + i];
        }
    return OK;
}

static bool is_constant(const double *values, int64_t count) {
    for (int64_t i = 1; i < count; i++)
        if (values[i] != values[0]) return false;
    return true;
}

double correlation(const double *x, const double *y, int64_t count) {
    double mean_x = 0, mean_y = 0, xx = 0, yy = 0, xy = 0;
    /* The rounded mean of a constant may differ from it, so its variance would not be 0. */
    if (is_constant(x, count) || is_constant(y, count)) return NAN;
    for (int64_t i = 0; i < count; i++) {
        mean_x += x[i] / (double)count;
        mean_y += y[i] / (double)count;
    }
    for (int64_t i = 0; i < count; i++) {
        xx += (x[i] - mean_x) * (x[i] - mean_x);
        yy += (y[i] - mean_y) * (y[i] - mean_y);
        xy += (x[i] - mean_x) * (y[i] - mean_y);
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx) / sqrt(yy) : NAN;
}

typedef struct Ranked {
    double value;
    int64_t index;
} Ranked;

static int by_value(const void *a, const void *b) {
    double x = ((const Ranked *)a)->value, y = ((const Ranked *)b)->value;
    return (x > y) - (x < y);
}

Status ranks_of(double *values, int64_t count) {
    CLEANUP(mem_freep) Ranked *sorted = NULL;
    TRY(mem_new((size_t)count, sizeof *sorted, &sorted));
    for (int64_t i = 0; i < count; i++) sorted[i] = (Ranked){values[i], i};
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    for (int64_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && sorted[end].value == sorted[first].value;) end++;
        for (int64_t i = first; i < end; i++) values[sorted[i].index] = 0.5 * (double)(first + 1 + end);
    }
    return OK;
}

typedef struct Score {
    double mse, pearson, spearman;
} Score;

/* Changes the values of the output to ranks. */
static Status score_output(const Pairs *pairs, int64_t output, Score *ret_score) {
    double *x = pairs->predicted + output * pairs->count, *y = pairs->given + output * pairs->count;
    Score score = {0};
    for (int64_t i = 0; i < pairs->count; i++) score.mse += (x[i] - y[i]) * (x[i] - y[i]);
    score.mse /= (double)pairs->count;
    score.pearson = correlation(x, y, pairs->count);
    TRY(ranks_of(x, pairs->count));
    TRY(ranks_of(y, pairs->count));
    score.spearman = correlation(x, y, pairs->count);
    *ret_score = score;
    return OK;
}

static json_t *score_json(const Score *score) {
    return json_pack("{s:f, s:o, s:o}", "mse", score->mse, "pearson",
                     isnan(score->pearson) ? json_null() : json_real(score->pearson), "spearman",
                     isnan(score->spearman) ? json_null() : json_real(score->spearman));
}

static Status scores_json(const Job *job, const Pairs *pairs, json_t *result) {
    CLEANUP(json_decrefp) json_t *list = json_array(), *means = NULL;
    Score mean = {0};
    for (int64_t i = 0; i < pairs->outputs; i++) {
        Score score = {0};
        TRY(score_output(pairs, i, &score));
        mean.mse += score.mse / (double)pairs->outputs;
        mean.pearson += score.pearson / (double)pairs->outputs;
        mean.spearman += score.spearman / (double)pairs->outputs;
        json_t *one = score_json(&score);
        if (json_object_set_new(one, "label", job_label_json(job, i)) || json_array_append_new(list, one))
            return FAILED("out of memory while writing the result");
    }
    means = score_json(&mean);
    int failed = json_object_update(result, means);
    if (pairs->outputs > 1) failed |= json_object_set(result, "outputs", list);
    return failed ? FAILED("out of memory while writing the result") : OK;
}

Status regression_add(const Job *job, const Dataset *data, int64_t limit, Predictions *out, json_t *result) {
    int64_t examples = dataset_count(data);
    CLEANUP(pairs_done)
    Pairs pairs = {.job = job,
                   .data = data,
                   .out = out,
                   .outputs = job->model->config.labels,
                   .count = limit > 0 && limit < examples ? limit : examples};
    size_t values = (size_t)(pairs.outputs * pairs.count);
    TRY(mem_new(values, sizeof *pairs.predicted, &pairs.predicted));
    TRY(mem_new(values, sizeof *pairs.given, &pairs.given));
    ScoreWork work = {.head = heads_first(job->model->config.outputs_mask),
                      .seq = job->seq,
                      .width = pairs.outputs,
                      .context = &pairs,
                      .fill = fill_rows,
                      .consume = keep_rows};
    TRY(job_scores(job, pairs.count, &work));
    return scores_json(job, &pairs, result);
}
