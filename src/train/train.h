/* A training run: configuration in, a run directory and a summary out. */
#ifndef WEFT_TRAIN_TRAIN_H
#define WEFT_TRAIN_TRAIN_H

#include <signal.h>

#include "base/json.h"
#include "comm/mesh.h"
#include "data/data.h"
#include "model/model.h"

/* How text becomes tokens. */
typedef struct TextOptions {
    const char *tokenizer;         /* directory, or "bytes"; NULL: the checkpoint's own, else bytes */
    const char *field;             /* of JSON lines; NULL: "text" */
    const char *text_field;        /* of records and pairs; NULL: "text", "q" */
    const char *pair_field;        /* the second text; NULL: none, "a" */
    const char *label_field;       /* NULL: "label" */
    const char *documents;         /* "file", "line", "blank"; NULL: file */
    bool no_cache;                 /* prepared text is kept with the run, or not at all */
    int64_t doc_stride, max_query; /* SQuAD: as in data/squad_features.h; 0: as published */
} TextOptions;

typedef struct TrainConfig {
    /* model */
    const char *model;                                /* preset or checkpoint directory */
    int64_t layers, hidden, heads, inner, seq, vocab; /* 0: the model's own */
    double dropout;                                   /* < 0: the model's own */
    const char *task;                                 /* "auto", "lm", "mlm", "span", "classify", "squad" */
    int64_t labels;                                   /* classify */
    bool no_next_sentence, no_masks;                  /* mlm: leave one of its two parts out */
    bool whole_words;                                 /* mlm: mask words, not tokens */
    /* data; paths may be "self": weft's own source and docs */
    const char **data;
    int data_count;
    const char **val;
    int val_count;
    const char *format; /* "auto", "bytes", "u16", "u32", "ids", "shards", "text", "squad" */
    TextOptions text;
    double val_fraction; /* of the data's end, when no val files are given */
    bool no_shuffle;
    double mask_rate;
    /* optimisation */
    int64_t steps;
    double epochs; /* > 0: instead of steps */
    int64_t batch, micro_batch;
    double lr, min_lr, weight_decay, beta1, beta2, eps, clip;
    const char *quantize_aware; /* "none", "int8", "int4"; NULL: none */
    bool keep_zeros;            /* of matrices: pruned weights stay so */
    int64_t warmup;             /* < 0: a twentieth of the steps */
    const char *warmup_type;    /* "linear", "log"; NULL: linear */
    const char *schedule;       /* "linear", "cosine", "constant" */
    uint64_t seed;
    /* run */
    const char *out; /* run directory; NULL: none is written */
    bool resume;
    int64_t eval_every, eval_batches, save_every, keep, log_every;
    int64_t eval_samples;  /* of an evaluation; 0: eval_batches x batch, or all where that is 0 */
    const char *recompute; /* "none", "selective", "block" */
    const char *device;    /* "cpu", "cuda" */
    Device *on;            /* that device, which must outlive the run; NULL: the run makes it */
    const char *kernels;   /* "cpu", "ref", "cuda"; NULL: the device's own */
    int64_t threads;
    bool trace;             /* train: trace.json in the run directory... */
    const char *trace_file; /* ...bench: this file; NULL: none */
    int64_t trace_steps;    /* how many steps, after the first */
    /* layout */
    Mesh *mesh;               /* the ranks; NULL: this one alone. It must outlive the run */
    int64_t zero;             /* 0 to 3 */
    bool keep_params;         /* zero 3: parameters stay whole from forward to backward */
    const char *offload;      /* "none", "optimizer", "params"; NULL: none */
    bool sequence;            /* sequence parallelism over the tensor ranks */
    const char *pp_schedule;  /* "gpipe", "1f1b", "interleaved", "zero-bubble"; NULL: 1f1b */
    int64_t pp_chunks;        /* of a stage, interleaved; 0: 2 there, else 1 */
    const char *precision;    /* "fp32", "tf32", "bf16", "fp16", "fp8"; NULL: fp32, on a GPU bf16 */
    double loss_scale;        /* fp16: the first; 0: 65536 */
    int64_t loss_scale_steps; /* fp16: steps without overflow before it doubles; 0: 2000 */
    bool steps_only;          /* bench: step times alone, without those by kernel */
    bool quiet;
    FILE *log; /* where progress shows */
    /* Set by a signal handler: the run saves a checkpoint after the step it is in, and ends. */
    const volatile sig_atomic_t *stop; /* NULL: none */
} TrainConfig;

/* Runs it. With a run directory it writes there config.json (config_json: the options by name),
 * metrics.jsonl, checkpoints, trace.json where asked for, and summary.json, which is also the result. */
MUST_USE Status train_run(const TrainConfig *config, const json_t *config_json, json_t **ret_summary);

/* Samples of an evaluation; 0: all there are. */
int64_t train_eval_samples(const TrainConfig *config);

/* A few steps on made-up tokens: step time, time and rate by kernel, the machine's measured peak. With
 * several ranks those of the first one, and for each rank its CPU time, computing and waiting.
 * Takes the model, its overrides, task, batch, micro-batch, steps, recompute, threads, kernels. */
MUST_USE Status bench_run(const TrainConfig *config, json_t **ret_result);

/* What evaluation on SQuAD asks for beyond a loss. */
typedef struct SquadEval {
    const char *predictions, *na_prob; /* files to score instead of a model; NULL: none */
    double na_thresh;                  /* above it, na_prob's number takes an answer back */
    const char *out;                   /* where a model's answers are written; NULL: nowhere */
    bool write_n_best;                 /* ... all that were looked at, too */
    int64_t n_best, max_answer;        /* as in data/squad_answers.h */
    double null_threshold;
} SquadEval;

/* Loss over a data set without training: {"loss", "tokens", "perplexity", ...}. For SQuAD its score too:
 * {"exact", "f1", "total", "HasAns_exact", ...}, and that alone for predictions. */
typedef struct EvalConfig {
    const char *model;
    const char *task, *format;
    TextOptions text;
    const char **data;
    int data_count;
    int64_t seq, batch, max_batches;          /* 0: the model's own, 4, all */
    int64_t stride;                           /* lm: tokens from one window to the next; 0: a window */
    const char *device, *kernels, *precision; /* as in TrainConfig */
    int64_t threads;
    int64_t zero; /* the layout, as in TrainConfig */
    bool sequence;
    Mesh *mesh;
    Device *on;
    SquadEval squad;
    bool quiet;
    FILE *log; /* where warnings show */
} EvalConfig;
MUST_USE Status eval_run(const EvalConfig *config, json_t **ret_result);

#endif
