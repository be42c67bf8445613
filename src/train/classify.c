/* Runs the classifier over a data set and tallies its predictions against the true labels. Precision, recall
 * and F1 are 0 where their denominator is 0. */
#include "train/classify.h"

#include <math.h>
#include <string.h>

#include "model/head.h"
#include "train/predictions.h"
#include "train/regression.h"

typedef struct Tally {
    int64_t labels;
    int64_t *given, *predicted, *correct; /* (labels) */
    bool multi;                           /* multi-label */
    int64_t *matrix; /* (true, predicted); NULL: multi-label, or more than CLASSIFY_MATRIX labels */
    int64_t examples, hits;
} Tally;

static void tally_done(Tally *tally) {
    free(tally->given);
    free(tally->predicted);
    free(tally->correct);
    free(tally->matrix);
}

static Status tally_init(Tally *tally, int64_t labels, bool multi) {
    tally->labels = labels;
    tally->multi = multi;
    TRY(mem_new((size_t)labels, sizeof *tally->given, &tally->given));
    TRY(mem_new((size_t)labels, sizeof *tally->predicted, &tally->predicted));
    TRY(mem_new((size_t)labels, sizeof *tally->correct, &tally->correct));
    if (multi || labels > CLASSIFY_MATRIX) return OK;
    return mem_new((size_t)(labels * labels), sizeof *tally->matrix, &tally->matrix);
}

static void count(Tally *tally, int32_t given, const float *scores) {
    int64_t best = 0;
    for (int64_t i = 1; i < tally->labels; i++)
        if (scores[i] > scores[best]) best = i;
    tally->given[given]++;
    tally->predicted[best]++;
    tally->correct[given] += best == given;
    tally->hits += best == given;
    tally->examples++;
    if (tally->matrix) tally->matrix[given * tally->labels + best]++;
}

static void count_multi(Tally *tally, const float *targets, const float *scores) {
    bool all = true;
    for (int64_t i = 0; i < tally->labels; i++) {
        bool given = targets[i] > 0.5f, predicted = scores[i] > 0;
        tally->given[i] += given;
        tally->predicted[i] += predicted;
        tally->correct[i] += given && predicted;
        all &= given == predicted;
    }
    tally->hits += all;
    tally->examples++;
}

typedef struct Context {
    const Job *job;
    const Dataset *data;
    Tally *tally;     /* NULL: the data is not labeled */
    Predictions *out; /* NULL: not wanted */
} Context;

static Status fill_rows(void *context, int64_t at, HostBatch *batch) {
    const Context *c = context;
    return dataset_fill(c->data, (uint64_t)at, false, batch);
}

static Status count_rows(void *context, int64_t at, const HostBatch *batch, const float *scores) {
    const Context *c = context;
    Tally *tally = c->tally;
    if (c->out) TRY(classify_put(c->job, c->data, at, batch, scores, c->out));
    for (int64_t b = 0; tally && b < batch->B; b++)
        if (tally->multi)
            count_multi(tally, batch->targets + b * tally->labels, scores + b * tally->labels);
        else
            count(tally, batch->classes[b], scores + b * tally->labels);
    return OK;
}

static Status run_model(const Job *job, const Dataset *data, int64_t limit, Tally *tally, Predictions *out) {
    int64_t examples = dataset_count(data);
    Context c = {job, data, tally, out};
    ScoreWork work = {.head = heads_first(job->model->config.outputs_mask),
                      .seq = job->seq,
                      .width = job->model->config.labels,
                      .context = &c,
                      .fill = fill_rows,
                      .consume = count_rows};
    return job_scores(job, limit > 0 && limit < examples ? limit : examples, &work);
}

static double ratio(int64_t part, int64_t all) {
    return all ? (double)part / (double)all : 0;
}

double classify_mcc(const int64_t *given, const int64_t *predicted, int64_t labels, int64_t hits) {
    double examples = 0, both = 0, given2 = 0, predicted2 = 0;
    for (int64_t i = 0; i < labels; i++) {
        double g = (double)given[i], p = (double)predicted[i];
        examples += g;
        both += g * p;
        given2 += g * g;
        predicted2 += p * p;
    }
    double spread = (examples * examples - given2) * (examples * examples - predicted2);
    return spread > 0 ? ((double)hits * examples - both) / sqrt(spread) : 0;
}

typedef struct F1 {
    double macro, weighted, micro;
} F1;

static json_t *classes_json(const Job *job, const Tally *tally, F1 *ret_f1) {
    json_t *classes = json_array();
    double macro = 0, weighted = 0;
    int64_t present = 0, given = 0, correct = 0, marked = 0;
    for (int64_t i = 0; i < tally->labels; i++) {
        int64_t both = tally->given[i] + tally->predicted[i];
        double f1 = ratio(2 * tally->correct[i], both);
        present += both > 0 || tally->multi;
        given += tally->given[i];
        correct += tally->correct[i];
        marked += both;
        macro += f1;
        weighted += f1 * (double)tally->given[i];
        json_array_append_new(classes, json_pack("{s:o, s:f, s:f, s:f, s:I}", "label", job_label_json(job, i),
                                                 "precision", ratio(tally->correct[i], tally->predicted[i]),
                                                 "recall", ratio(tally->correct[i], tally->given[i]), "f1",
                                                 f1, "count", (json_int_t)tally->given[i]));
    }
    *ret_f1 = (F1){.macro = present ? macro / (double)present : 0,
                   .weighted = given ? weighted / (double)given : 0,
                   .micro = ratio(2 * correct, marked)};
    return classes;
}

static json_t *matrix_json(const Tally *tally) {
    json_t *rows = json_array();
    for (int64_t i = 0; i < tally->labels; i++) {
        json_t *row = json_array();
        for (int64_t k = 0; k < tally->labels; k++)
            json_array_append_new(row, json_integer((json_int_t)tally->matrix[i * tally->labels + k]));
        json_array_append_new(rows, row);
    }
    return rows;
}

static Status add_scores(const Job *job, const Dataset *data, int64_t limit, Predictions *out,
                         json_t *result) {
    CLEANUP(tally_done) Tally tally = {0};
    F1 f1;
    const ModelConfig *config = &job->model->config;
    TRY(tally_init(&tally, config->labels, config_problem(config) == PROBLEM_MULTI_LABEL));
    TRY(run_model(job, data, limit, &tally, out));
    json_t *classes = classes_json(job, &tally, &f1);
    int failed = json_object_set_new(result, "accuracy", json_real(ratio(tally.hits, tally.examples)));
    if (tally.multi) failed |= json_object_set_new(result, "f1_micro", json_real(f1.micro));
    failed |= json_object_set_new(result, "f1_macro", json_real(f1.macro));
    failed |= json_object_set_new(result, "f1_weighted", json_real(f1.weighted));
    if (!tally.multi) {
        double mcc = classify_mcc(tally.given, tally.predicted, tally.labels, tally.hits);
        failed |= json_object_set_new(result, "mcc", json_real(mcc));
    }
    failed |= json_object_set_new(result, "classes", classes);
    if (tally.matrix) failed |= json_object_set_new(result, "confusion", matrix_json(&tally));
    return failed ? FAILED("out of memory while writing the result") : OK;
}

Status classify_scores(const Job *job, const Dataset *data, int64_t limit, bool validating, Predictions *out,
                       json_t *result) {
    ProblemType problem = config_problem(&job->model->config);
    if (!validating && json_object_set_new(result, "problem_type", json_string(problem_name(problem))))
        return FAILED("out of memory while writing the result");
    if (problem != PROBLEM_REGRESSION) return add_scores(job, data, limit, out, result);
    return validating ? OK : regression_add(job, data, limit, out, result);
}

/* ---- predictions ---- */

/* An object of a value for each label. */
static Status put_by_label(const Job *job, const char *key, const float *values, json_t *row) {
    json_t *object = json_object();
    TRY(json_put(row, key, object));
    for (int64_t i = 0; i < job->model->config.labels; i++) {
        CLEANUP(json_decrefp) json_t *label = job_label_json(job, i);
        TRY(json_put(object, json_string_value(label), json_float(values[i])));
    }
    return OK;
}

static Status put_label(const Job *job, const HostBatch *batch, int64_t b, bool labeled, const float *scores,
                        float *probability, json_t *row) {
    int64_t L = job->model->config.labels, best = 0;
    double sum = 0;
    for (int64_t i = 1; i < L; i++)
        if (scores[i] > scores[best]) best = i;
    for (int64_t i = 0; i < L; i++) sum += exp((double)scores[i] - (double)scores[best]);
    for (int64_t i = 0; i < L; i++)
        probability[i] = (float)(exp((double)scores[i] - (double)scores[best]) / sum);
    TRY(json_put(row, "label", job_label_json(job, best)));
    TRY(put_by_label(job, "probabilities", probability, row));
    return labeled ? json_put(row, "target", job_label_json(job, batch->classes[b])) : OK;
}

static Status put_labels(const Job *job, const HostBatch *batch, int64_t b, bool labeled, const float *scores,
                         float *probability, json_t *row) {
    int64_t L = job->model->config.labels;
    json_t *list = json_array();
    TRY(json_put(row, "labels", list));
    for (int64_t i = 0; i < L; i++) {
        probability[i] = (float)(1 / (1 + exp(-(double)scores[i])));
        if (scores[i] > 0 && json_array_append_new(list, job_label_json(job, i)) != 0)
            return FAILED("out of memory while writing predictions");
    }
    TRY(put_by_label(job, "probabilities", probability, row));
    return labeled ? put_by_label(job, "targets", batch->targets + b * L, row) : OK;
}

static Status put_value(const Job *job, const HostBatch *batch, int64_t b, bool labeled, const float *scores,
                        json_t *row) {
    int64_t L = job->model->config.labels;
    const float *targets = batch->targets + b * L;
    if (L > 1) TRY(put_by_label(job, "values", scores, row));
    if (L > 1) return labeled ? put_by_label(job, "targets", targets, row) : OK;
    TRY(json_put(row, "value", json_float(scores[0])));
    return labeled ? json_put(row, "target", json_float(targets[0])) : OK;
}

Status classify_put(const Job *job, const Dataset *data, int64_t at, const HostBatch *batch,
                    const float *scores, Predictions *out) {
    const ModelConfig *config = &job->model->config;
    ProblemType problem = config_problem(config);
    CLEANUP(mem_freep) float *probability = NULL;
    TRY(mem_new((size_t)config->labels, sizeof *probability, &probability));
    TRY(predictions_check(scores, batch->B * config->labels));
    for (int64_t b = 0; b < batch->B; b++) {
        CLEANUP(json_decrefp) json_t *row = NULL;
        const float *own = scores + b * config->labels;
        TRY(predictions_row(out, data, at + b, &row));
        if (!row) continue;
        if (problem == PROBLEM_REGRESSION)
            TRY(put_value(job, batch, b, out->labeled, own, row));
        else
            TRY((problem == PROBLEM_MULTI_LABEL ? put_labels : put_label)(job, batch, b, out->labeled, own,
                                                                          probability, row));
        TRY(predictions_put(out, row));
    }
    return OK;
}

Status classify_predict(const Job *job, const Dataset *data, int64_t limit, Predictions *out) {
    return run_model(job, data, limit, NULL, out);
}
