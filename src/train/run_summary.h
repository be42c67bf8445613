/* A run's summary.json: written at the end of a run, estimated for a run that has none (train/history.h), or
 * predicted (compare/predict.h). docs/comparing.md describes the keys. */
#ifndef WEFT_TRAIN_RUN_SUMMARY_H
#define WEFT_TRAIN_RUN_SUMMARY_H

#include "base/json.h"

#define RUN_SUMMARY_FILE "summary.json"

/* clang-format off */
/* The keys of a summary, in the order in which they are written, by kind of field:
 *   COUNT, NUMBER    double, NAN if unknown, which is written as null; a COUNT is written as an integer
 *   ..._IF_KNOWN     the same, but left out if unknown
 *   FLAG             bool; FLAG_IF_SET: left out if false
 *   TEXT, PART       const char * and json_t *, NULL if absent */
#define RUN_SUMMARY_KEYS(COUNT, COUNT_IF_KNOWN, NUMBER, NUMBER_IF_KNOWN, FLAG, FLAG_IF_SET, TEXT, PART) \
    COUNT(steps) COUNT(epoch) TEXT(task) NUMBER(loss_first) NUMBER(loss_last) \
    COUNT(params_total) COUNT_IF_KNOWN(params_adapters) /* a part of the total */ \
    COUNT_IF_KNOWN(params_stored) COUNT_IF_KNOWN(params_per_rank) PART(layout) \
    FLAG(interrupted)     /* the run did not reach its end */ \
    FLAG(stopped_early)   /* because the validation loss did not improve */ \
    PART(epochs)          /* array */ \
    NUMBER(val_loss) COUNT(val_samples) NUMBER(val_loss_mean) \
    NUMBER_IF_KNOWN(accuracy) NUMBER_IF_KNOWN(f1) NUMBER_IF_KNOWN(mcc) NUMBER_IF_KNOWN(exact) \
    COUNT_IF_KNOWN(best_step) NUMBER_IF_KNOWN(best_val_loss) \
    COUNT(steps_measured) COUNT_IF_KNOWN(steps_excluded) /* the first ones, left out of rates */ \
    PART(machine)         /* object: what it ran on */ \
    NUMBER_IF_KNOWN(energy_j) NUMBER_IF_KNOWN(tokens_per_j) /* of hosts and GPUs, after setup */ \
    /* predictions: of a unit, and their number: GPUs, or hosts without GPUs */ \
    NUMBER_IF_KNOWN(price_per_hour) NUMBER_IF_KNOWN(power_watts) COUNT_IF_KNOWN(priced_units) \
    PART(load)            /* object: cores that others took; absent if unknown */ \
    NUMBER(runtime_s) NUMBER_IF_KNOWN(epoch_s) \
    NUMBER(tokens_per_s) NUMBER(samples_per_s) NUMBER(step_ms) \
    NUMBER(utilization) NUMBER(gpu_utilization) NUMBER(mfu) NUMBER(peak_flops) NUMBER(bubble) \
    PART(phases)          /* object */ \
    COUNT(sent_bytes) COUNT_IF_KNOWN(between_nodes_bytes) PART(comm_bytes_by_group) \
    COUNT_IF_KNOWN(other_sent_bytes) COUNT_IF_KNOWN(other_between_nodes_bytes) /* outside steps */ \
    PART(ranks)           /* array of objects */ \
    PART(peak_bytes)      /* object: maxima over the ranks, by kind of memory */ \
    NUMBER(noise_scale) NUMBER(noise_scale_error) NUMBER(statistical_efficiency) NUMBER(goodput) \
    FLAG_IF_SET(by_metrics) /* estimated from metrics.jsonl */ \
    TEXT(predicted)       /* the cluster it is predicted for */ \
    TEXT(program)         /* the predicted program, if not weft */ \
    PART(weft)            /* the prediction for weft next to one for another program: a summary */
/* clang-format on */

/* Start from run_summary_take(NULL), not from zeros. Parts are owned, texts are not. */
typedef struct RunSummary {
    json_t *json; /* what it was read from, with keys that are not listed; NULL: there is no summary */
#define RUN_SUMMARY_NUMBER(key) double key;
#define RUN_SUMMARY_FLAG(key)   bool key;
#define RUN_SUMMARY_TEXT(key)   const char *key;
#define RUN_SUMMARY_PART(key)   json_t *key;
    RUN_SUMMARY_KEYS(RUN_SUMMARY_NUMBER, RUN_SUMMARY_NUMBER, RUN_SUMMARY_NUMBER, RUN_SUMMARY_NUMBER,
                     RUN_SUMMARY_FLAG, RUN_SUMMARY_FLAG, RUN_SUMMARY_TEXT, RUN_SUMMARY_PART)
#undef RUN_SUMMARY_NUMBER
#undef RUN_SUMMARY_FLAG
#undef RUN_SUMMARY_TEXT
#undef RUN_SUMMARY_PART
} RunSummary;

/* Takes over a reference to `json`, which may be NULL: no summary. */
RunSummary run_summary_take(json_t *json);
void run_summary_done(RunSummary *summary);
/* Replaces a summary; takes over a reference to `json`. */
void run_summary_replace(RunSummary *summary, json_t *json);
/* A number by its key; NAN if it is absent or not a number of RUN_SUMMARY_KEYS. */
double run_summary_number(const RunSummary *summary, const char *key);
/* The summary by key. Estimates and predictions have only what is known. */
MUST_USE Status run_summary_json(const RunSummary *summary, json_t **ret_json);
MUST_USE Status run_summary_write(const char *dir, const json_t *json);

#endif
