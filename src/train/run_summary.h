/* A run's summary.json: written at the end of a run, estimated for a run that has none (train/history.h), or
 * predicted (compare/predict.h). docs/comparing.md describes the keys. */
#ifndef WEFT_TRAIN_RUN_SUMMARY_H
#define WEFT_TRAIN_RUN_SUMMARY_H

#include "base/json.h"

#define RUN_SUMMARY_FILE "summary.json"

/* The numbers that are read from a summary, by key. */
/* clang-format off */
#define RUN_SUMMARY_NUMBERS(X) \
    X(steps) X(steps_measured) X(runtime_s) X(step_ms) X(epoch_s) X(samples_per_s) X(tokens_per_s) \
    X(loss_first) X(loss_last) X(val_loss) X(val_loss_mean) X(val_samples) X(accuracy) X(f1) X(exact) \
    X(utilization) X(bubble) X(mfu) X(sent_bytes) X(noise_scale) X(noise_scale_error) \
    X(statistical_efficiency) X(goodput) X(params_total) X(params_stored) X(params_per_rank)
/* clang-format on */

/* A summary as read: numbers are NAN, texts and parts NULL if absent; parts point into `json`. Start from
 * run_summary_take(NULL), not from zeros. */
typedef struct RunSummary {
    json_t *json; /* all of it, owned; NULL: there is no summary */
#define RUN_SUMMARY_FIELD(key) double key;
    RUN_SUMMARY_NUMBERS(RUN_SUMMARY_FIELD)
#undef RUN_SUMMARY_FIELD
    bool interrupted;                /* the run did not reach its end */
    bool by_metrics;                 /* estimated from metrics.jsonl */
    const char *predicted, *program; /* the cluster it is predicted for; the program, if not weft */
    json_t *weft;                    /* the prediction for weft next to one for another program: a summary */
    const json_t *layout, *phases;   /* objects */
    const json_t *peak_bytes;        /* object: maxima over the ranks, by kind of memory */
    const json_t *ranks;             /* array of objects */
} RunSummary;

/* Takes over a reference to `json`, which may be NULL: no summary. */
RunSummary run_summary_take(json_t *json);
void run_summary_done(RunSummary *summary);
/* Replaces a summary; takes over a reference to `json`. */
void run_summary_replace(RunSummary *summary, json_t *json);
/* A number by its key; NAN if it is absent or not one of RUN_SUMMARY_NUMBERS. */
double run_summary_number(const RunSummary *summary, const char *key);
MUST_USE Status run_summary_write(const char *dir, const json_t *json);

#endif
