/* Perplexity and bits per byte of a language model over a whole text. */
#include "train/perplexity.h"

#include <math.h>

#include "base/clock.h"
#include "data/word_count.h"
#include "model/head.h"

/* Adds the word- and byte-level figures. Token files do not contain words, so these figures are omitted for
 * them. */
static Status add_words(const Job *job, const EvalConfig *config, double nll, json_t *result) {
    DataFormat format = FORMAT_AUTO;
    TRY(job_format(job, config->settings.data.files, config->settings.data.files_count, &format));
    if (format != FORMAT_TEXT && format != FORMAT_BYTES) return OK;
    ReaderSpec reading = {.paths = config->settings.data.files,
                          .path_count = config->settings.data.files_count,
                          .field = config->settings.data.text.field,
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

Status perplexity_run(Job *job, const EvalConfig *config, const Dataset *data, json_t **ret_result) {
    double start = clock_wall();
    int64_t stride = config->stride ? config->stride : job->seq;
    if (stride > job->seq)
        return USAGE("{stride} %lld is longer than the window of %lld tokens; use a smaller value",
                     (long long)stride, (long long)job->seq);
    EvalResult found;
    TRY(job_evaluate_windows(job, data, stride, &found));
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
    *ret_result = json_incref(json);
    return OK;
}
