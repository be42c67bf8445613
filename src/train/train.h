/* Entry points of the weft train, eval and bench commands.
 *
 * Each takes its settings and returns its result as JSON. With several ranks every call is collective. */
#ifndef WEFT_TRAIN_TRAIN_H
#define WEFT_TRAIN_TRAIN_H

#include "base/json.h"
#include "train/settings.h"

/* Trains. If a run directory is set, writes config.json (config_json: the options by name), metrics.jsonl,
 * checkpoints, trace.json if requested, and summary.json, whose content is also returned in *ret_summary. */
MUST_USE Status train_run(const Settings *config, const json_t *config_json, json_t **ret_summary);

/* Checks a configuration as train_run does before the first step, without a model in memory: model, task,
 * layout, data and length. Text is tokenized, and the cache keeps the result. *ret_samples is the number of
 * training samples per epoch. */
MUST_USE Status train_check(const Settings *config, int64_t *ret_samples);

/* Number of samples per evaluation; 0: the whole validation set. */
int64_t train_eval_samples(const Settings *config);

/* Runs a few steps on synthetic tokens and reports step time, time and throughput per kernel, and the
 * measured peak of the hardware. With several ranks the kernel figures are those of rank 0; CPU, compute and
 * wait times are listed per rank. Uses the fields for the model and task, batch, layout, device, precision
 * and trace. */
MUST_USE Status bench_run(const Settings *config, json_t **ret_result);

/* Options for SQuAD evaluation. */
typedef struct SquadEval {
    const char *predictions, *na_prob; /* files to score instead of a model; NULL: score the model */
    double na_thresh;                  /* na_prob above it turns a prediction into "no answer" */
    const char *out;                   /* directory for the model's answers; NULL: not written */
    bool write_n_best;                 /* also write the n-best candidates */
    int64_t n_best, max_answer;        /* see data/squad_answers.h */
    double null_threshold;
} SquadEval;

/* Evaluates a checkpoint on a data set: {"loss", "tokens", "perplexity", ...}. SQuAD data adds the official
 * score ("exact", "f1", "total", "HasAns_exact", ...); scoring a predictions file returns only that. */
typedef struct EvalConfig {
    Settings settings;   /* run.micro_batch: sequences per batch */
    int64_t max_batches; /* 0: all */
    int64_t stride;      /* lm: tokens from one window to the next; 0: the window length */
    SquadEval squad;
} EvalConfig;
MUST_USE Status eval_run(const EvalConfig *config, json_t **ret_result);

typedef Status (*RowPut)(const char *text, size_t size);
typedef enum { POOL_MEAN, POOL_FIRST, POOL_LAST } Pooling;
extern const char *const pooling_names[]; /* ends with NULL */

/* Predictions for rows without labels, or embeddings of their texts (train/predictions.h). */
typedef struct PredictConfig {
    Settings settings; /* run.micro_batch: sequences per batch */
    const char *out;   /* .jsonl, .csv or, for embeddings, .npy; NULL: JSON lines for `put` */
    RowPut put;
    int64_t top;     /* tokens listed for a mask, or after a text */
    SquadEval squad; /* n_best, max_answer and null_threshold */
    bool always;     /* span: never answer that there is no answer */
    Pooling pool;    /* embeddings: mean over a text's tokens, or a single one of them */
    bool normalize;  /* to length 1 */
} PredictConfig;
/* Both return {"task", "rows", "runtime_s", "rows_per_s", "out"}, of embeddings without "task" but with
 * "width".
 */
MUST_USE Status model_predict(const PredictConfig *config, json_t **ret_result);
MUST_USE Status model_embed(const PredictConfig *config, json_t **ret_result);

#endif
