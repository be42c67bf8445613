/* weft eval: the mean loss of a checkpoint on a data set, and the task's own metrics: perplexity, accuracy
 * and F1, correlations, or the SQuAD score. */
#include <math.h>

#include "base/clock.h"
#include "data/reader.h"
#include "data/released.h"
#include "model/head.h"
#include "train/job.h"
#include "train/predictions.h"
#include "train/replicas.h"
#include "train/squad.h"

enum { EVAL_TOP = 5 }; /* tokens listed for a mask */

/* Adds the word- and byte-level figures. Token files do not contain words, so these figures are omitted for
 * them. */
static Status add_words(const Job *job, const EvalConfig *config, double nll, json_t *result) {
    DataFormat format = FORMAT_AUTO;
    TRY(job_format(job, config->settings.data.files, config->settings.data.files_count, &format));
    if (format != FORMAT_TEXT && format != FORMAT_BYTES) return OK;
    const TextOptions *text = &config->settings.data.text;
    ReaderSpec reading = {.paths = config->settings.data.files,
                          .path_count = config->settings.data.files_count,
                          .field = text->text_field ? text->text_field : text->field,
                          .raw = format == FORMAT_BYTES};
    if (config->settings.data.text.documents)
        TRY(documents_parse(config->settings.data.text.documents, &reading.documents));
    WordCounts counts;
    TRY(corpus_count_words(&reading, &counts));
    double words = (double)(counts.words + counts.lines), bytes = (double)counts.bytes;
    int failed = json_object_set_new(result, "words", json_integer((json_int_t)words));
    failed |= json_object_set_new(result, "word_perplexity", json_finite(exp(nll / words)));
    failed |= json_object_set_new(result, "bytes", json_integer((json_int_t)bytes));
    failed |= json_object_set_new(result, "bits_per_byte", json_real(nll / log(2) / bytes));
    return failed ? FAILED("out of memory while writing the result") : OK;
}

/* Perplexity over all tokens of a text, per token and per word: runs the model over sliding windows of the
 * data (see dataset_windows; stride 0: windows do not overlap). Returns loss, perplexity, tokens, nll (sum
 * over tokens), accuracy and, if the data is text, words, word_perplexity, bytes and bits_per_byte. Words are
 * counted with one end-of-line token per line, as is usual for WikiText. Collective. */
static Status perplexity_run(Job *job, const EvalConfig *config, const Dataset *data, Predictions *out,
                             json_t **ret_result) {
    double start = clock_wall();
    int64_t stride = config->stride ? config->stride : job->seq;
    if (stride > job->seq)
        return USAGE("{stride} %lld is longer than the window of %lld tokens; use a smaller value",
                     (long long)stride, (long long)job->seq);
    EvalResult found;
    TRY(job_evaluate_windows(job, data, stride, &found));
    if (out) TRY(predict_tokens(job, data, 0, stride, out));
    double nll = found.sum[LOSS_TOKEN], accuracy = found.accuracy[LOSS_TOKEN], seconds = clock_wall() - start;
    int64_t tokens = found.counts[LOSS_TOKEN];
    int64_t windows = dataset_windows(data, stride);
    CLEANUP(json_decrefp)
    json_t *json =
        json_pack("{s:f, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:{s:{s:f, s:f, s:I}}}", "loss",
                  found.loss, "task", task_names[job->task], "examples", (json_int_t)windows, "tokens",
                  (json_int_t)tokens, "stride", (json_int_t)stride, "nll", nll, "perplexity", exp(found.loss),
                  "accuracy", accuracy, "runtime_s", seconds, "samples_per_s", (double)windows / seconds,
                  "parts", "token", "loss", found.loss, "accuracy", accuracy, "count", (json_int_t)tokens);
    if (!json) return FAILED("out of memory");
    TRY(add_words(job, config, nll, json));
    return MOVE(ret_result, json);
}

/* Rows can be written for every task, a directory of answers only for SQuAD. */
static Status check_out(const Job *job, const char *out) {
    RowFormat format = out ? row_format_of(out) : ROW_FILE_JSON;
    if (format == ROW_FILE_JSON || format == ROW_FILE_CSV || (job->squad && format == ROW_FILE_NONE))
        return OK;
    return USAGE("{out} %s: expected a file that ends in .jsonl or .csv%s", out,
                 job->squad ? ", or a directory" : "");
}

Status eval_run(const EvalConfig *config, json_t **ret_result) {
    const DataSettings *from = &config->settings.data;
    if (from->files_count == 0) return USAGE("no data; pass files with {data}");
    if (config->squad.predictions) return squad_eval_predictions(config, ret_result);
    if (config->squad.na_prob) return USAGE("{na-prob} needs {predictions}");
    if (!config->settings.model.name)
        return USAGE("{model} DIR is required besides the data: weft eval DIR DATA");
    char hint[RELEASED_HINT];
    CLEANUP(load_report_done) LoadReport report = {0};
    CLEANUP(progress_freep) Progress *progress = NULL;
    CLEANUP(job_freep) Job *job = NULL;
    TRY(progress_new(&progress, config->settings.report.log, "eval", 0, 5, config->settings.report.quiet));
    Settings settings = config->settings;
    settings.data.named = config->squad.out != NULL;
    TRY(job_new(&job, &settings, JOB_EVAL));
    job->device->advice = "a smaller {batch} or {seq}, or {zero} 3 on more ranks";
    if (!job->model_dir)
        return USAGE("{model} %s: not a checkpoint directory; eval needs trained weights%s",
                     config->settings.model.name, released_hint(config->settings.model.name, false, hint));
    TRY(check_out(job, config->squad.out));
    if (job->squad) return squad_eval_model(config, job, progress, ret_result);
    if (config->squad.write_n_best) return USAGE("{nbest} applies only to SQuAD data");
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(predictions_done) Predictions rows = {.labeled = true, .top = EVAL_TOP};
    Predictions *out = config->squad.out ? &rows : NULL;
    job->windows = !config->max_batches;
    TRY(job_data(job, from->files, from->files_count, (DataPart){0}, 0.15, 0, &data));
    TRY(job_start(job, &report));
    TRY(load_report_check(&report, job->model_dir, &job->model->config, false));
    TRY(replicas_check(job->runner));
    job_report(job, &report, progress);
    if (out) TRY(job_name_tokens(job));
    if (out) TRY(predictions_init(out, job, config->squad.out, NULL));
    if (dataset_windows(data, 1) && !config->max_batches) {
        TRY(perplexity_run(job, config, data, out, ret_result));
        return predictions_commit(&rows);
    }
    if (config->stride)
        return USAGE("{stride} applies only to language models on a whole text, without {max-batches}");
    EvalResult result;
    double start = clock_wall();
    TRY(job_evaluate(job, data, config->max_batches * config->settings.run.micro_batch, &result));
    double seconds = clock_wall() - start;
    int64_t predicted = result.counts[LOSS_TOKEN];
    bool lm = config_is_decoder(&job->model->config);
    CLEANUP(json_decrefp)
    json_t *json = json_pack("{s:f, s:s, s:I, s:I, s:f, s:f}", "loss", result.loss, "task",
                             task_names[job->task], "examples", (json_int_t)result.examples, "tokens",
                             (json_int_t)(lm ? predicted : result.tokens), "runtime_s", seconds,
                             "samples_per_s", (double)result.examples / seconds);
    if (!json) return FAILED("out of memory");
    if (predicted) json_object_set_new(json, "perplexity", json_real(exp(result.part[LOSS_TOKEN])));
    if (lm) {
        json_object_set_new(json, "nll", json_real(result.sum[LOSS_TOKEN]));
        json_object_set_new(json, "accuracy", json_real(result.accuracy[LOSS_TOKEN]));
    }
    json_t *parts = json_object();
    for (int k = 0; k < LOSS_COUNT; k++)
        if (result.counts[k])
            json_object_set_new(parts, loss_names[k],
                                json_pack("{s:f, s:o*, s:I}", "loss", result.part[k], "accuracy",
                                          isnan(result.accuracy[k]) ? NULL : json_real(result.accuracy[k]),
                                          "count", (json_int_t)result.counts[k]));
    json_object_set_new(json, "parts", parts);
    TRY(task_scores(job, data, config->max_batches * config->settings.run.micro_batch, false, out, json));
    TRY(predictions_commit(&rows));
    return MOVE(ret_result, json);
}
