/* Entry points of the weft train, eval and bench commands.
 *
 * Each takes a plain configuration struct and returns its result as JSON. Strings and arrays in a
 * configuration are borrowed and must outlive the call. With several ranks every call is collective. */
#ifndef WEFT_TRAIN_TRAIN_H
#define WEFT_TRAIN_TRAIN_H

#include <signal.h>

#include "base/json.h"
#include "comm/mesh.h"
#include "data/data.h"
#include "model/model.h"

/* How text is read and tokenized. */
typedef struct TextOptions {
    const char *tokenizer;         /* directory, or "bytes"; NULL: the checkpoint's, else bytes */
    const char *field;             /* JSON Lines: key of the text; NULL: "text" */
    const char *text_field;        /* key of the first text; NULL: "text" in records, "q" in pairs */
    const char *pair_field;        /* key of the second text; NULL: absent in records, "a" in pairs */
    const char *label_field;       /* records: one name, or several separated by commas; NULL: "label" */
    const char *documents;         /* document boundaries: "file", "line", "blank"; NULL: file */
    bool no_cross_document;        /* lm: attention does not cross documents */
    bool no_cache;                 /* tokenize into the run directory or a temporary one, not the cache */
    int64_t doc_stride, max_query; /* SQuAD, see data/squad_features.h; 0: the published values */
} TextOptions;

enum { TIMEOUT_LEAST = 60 };

/* What a run would lose if it ended now: nothing was done, steps that are in no checkpoint, nothing. */
typedef enum { WORK_NONE, WORK_UNSAVED, WORK_SAVED } WorkState;

typedef struct TrainConfig {
    /* model */
    const char *model;                                /* preset or checkpoint directory */
    int64_t layers, hidden, heads, inner, seq, vocab; /* 0: the model's value */
    double dropout;                                   /* < 0: the model's value */
    const char *task;                                 /* "auto", "lm", "mlm", "span", "classify", "squad" */
    int64_t labels;                                   /* classify */
    const char *problem_type; /* classify: "auto", "regression", "single-label", "multi-label"; NULL: auto */
    bool no_next_sentence, no_masks; /* mlm: train only one of its two objectives */
    bool whole_words;                /* mlm: whole-word masking */
    /* data; the path "self" is weft's own source and docs */
    const char **data;
    int data_count;
    const char **val;
    int val_count;
    const char *format; /* "auto", "bytes", "u16", "u32", "ids", "tokens", "text", "squad", "pairs",
                         * "cornell", "records" */
    TextOptions text;
    double val_fraction; /* fraction of the data, taken from its end, when no val files are given */
    bool no_shuffle;
    double mask_rate;
    /* optimization */
    int64_t steps;
    double epochs; /* > 0: replaces steps */
    int64_t batch, micro_batch;
    const char *optimizer; /* "adamw", "lion", "sgd", "muon"; NULL: adamw */
    double lr, min_lr, weight_decay, beta1, beta2, eps, clip;
    double momentum;        /* sgd, muon */
    bool nesterov;          /* sgd, muon */
    const char *muon_scale; /* "original", "match-adamw"; NULL: original */
    double adamw_lr;        /* muon: peak learning rate of the parameters that AdamW updates */
    const char **group;     /* parameter groups, see optim_group_parse */
    int group_count;
    const char *quantize_aware; /* "none", "int8", "int4"; NULL: none */
    bool keep_zeros;            /* zero weights of matrices (pruned ones) stay zero */
    int64_t warmup;             /* steps; < 0: by warmup_ratio */
    double warmup_ratio;        /* fraction of the run; 0: 0.05 */
    const char *warmup_file; /* the file that set warmup, if it may be capped to the run's length; or NULL */
    const char *warmup_type; /* "linear", "log"; NULL: linear */
    const char *schedule;    /* "linear", "cosine", "constant", "wsd" */
    int64_t decay_steps;     /* wsd; < 0: a tenth of the run */
    const char *decay_type;  /* wsd: "linear", "1-sqrt", "cosine"; NULL: linear */
    uint64_t seed;
    /* run */
    const char *out; /* run directory; NULL: write nothing */
    bool resume;
    int64_t resume_from; /* with resume: the checkpoint of this step; 0: the newest that is intact */
    int64_t eval_every, save_every; /* steps; 0: only at the end; EVERY_EPOCH (train/epoch.h) */
    int64_t sample_every;           /* likewise, for samples of the model's text; 0: none */
    int64_t patience;               /* stop after this many validations without improvement; 0: never */
    int64_t eval_batches, keep, log_every;
    int64_t save_failures;     /* failed saves in a row that are tolerated */
    const char *on_divergence; /* "stop", "warn", "skip", "rollback"; NULL: stop */
    int64_t rollbacks;         /* at most */
    int64_t eval_samples;      /* per evaluation; 0: eval_batches x batch, or all if that is 0 */
    const char *recompute;     /* "none", "selective", "block" */
    const char *device;        /* "cpu", "cuda" */
    Device *on;                /* an existing device to use, which must outlive the run; NULL: create one */
    const char *kernels;       /* "cpu", "ref", "cuda"; NULL: the device's default */
    int64_t threads;
    bool trace;             /* train: write trace.json to the run directory */
    const char *trace_file; /* bench: write the trace to this file; NULL: no trace */
    int64_t trace_steps;    /* number of steps to trace, starting with the second */
    /* layout */
    Mesh *mesh;              /* the ranks; NULL: a single rank. Must outlive the run */
    int64_t zero;            /* 0 to 3 */
    bool keep_params;        /* zero 3: keep gathered parameters from forward to backward */
    const char *offload;     /* "none", "optimizer", "params"; NULL: none */
    bool sequence;           /* sequence parallelism over the tensor-parallel ranks */
    const char *pp_schedule; /* "gpipe", "1f1b", "interleaved", "zero-bubble"; NULL: 1f1b */
    int64_t pp_chunks;       /* per stage; 0: 2 if interleaved, else 1 */
    const char *precision;   /* "fp32", "tf32", "bf16", "fp16", "fp8"; NULL: fp32 on the CPU, bf16 on a GPU */
    double loss_scale;       /* fp16: initial value; 0: 65536 */
    int64_t loss_scale_steps; /* fp16: steps without overflow before it doubles; 0: 2000 */
    bool steps_only;          /* bench: report step times only, no per-kernel times */
    bool quiet;
    double first_eval_flops; /* limit of the validation before the first step; 0: as long as the others */
    const char *note;        /* a line to show before the model's; NULL: none */
    FILE *log;               /* progress output */
    /* Positive (set by a signal handler, on any rank) makes the run abandon the current step or validation,
     * save a checkpoint of the last complete step and stop; negative, the same after the current step or
     * validation. NULL: never. */
    const volatile sig_atomic_t *stop;
    double timeout; /* limit of waits for other ranks, in seconds; 0: none; < 0: 10 x the slowest step, at
                     * least TIMEOUT_LEAST */
    int64_t max_restarts;        /* cli: restarts of the ranks after a failure */
    double signal_seconds;       /* cli: time between a signal and the end of the job; 0: unknown */
    volatile sig_atomic_t *work; /* set to a WorkState as the run proceeds; NULL: not wanted */
} TrainConfig;

/* Trains. If a run directory is set, writes config.json (config_json: the options by name), metrics.jsonl,
 * checkpoints, trace.json if requested, and summary.json, whose content is also returned in *ret_summary. */
MUST_USE Status train_run(const TrainConfig *config, const json_t *config_json, json_t **ret_summary);

/* Checks a configuration as train_run does before the first step, without a model in memory: model, task,
 * layout, data and length. Text is tokenized, and the cache keeps the result. *ret_samples is the number of
 * training samples per epoch. */
MUST_USE Status train_check(const TrainConfig *config, int64_t *ret_samples);

/* Number of samples per evaluation; 0: the whole validation set. */
int64_t train_eval_samples(const TrainConfig *config);

/* Runs a few steps on synthetic tokens and reports step time, time and throughput per kernel, and the
 * measured peak of the hardware. With several ranks the kernel figures are those of rank 0; CPU, compute and
 * wait times are listed per rank. Uses the fields for the model and task, batch, layout, device, precision
 * and trace. */
MUST_USE Status bench_run(const TrainConfig *config, json_t **ret_result);

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
    const char *model;
    const char *task, *format, *problem_type; /* as in TrainConfig */
    TextOptions text;
    const char **data;
    int data_count;
    int64_t seq, batch, max_batches; /* 0: the model's context length, 4, all */
    int64_t stride;                  /* lm: tokens from one window to the next; 0: the window length */
    const char *device, *kernels, *precision; /* as in TrainConfig */
    int64_t threads;
    int64_t zero; /* the layout, as in TrainConfig */
    bool sequence;
    Mesh *mesh;
    Device *on;
    SquadEval squad;
    bool quiet;
    FILE *log; /* warnings and progress */
} EvalConfig;
MUST_USE Status eval_run(const EvalConfig *config, json_t **ret_result);

#endif
