/* A training run: configuration in, a run directory and a summary out. */
#ifndef WEFT_TRAIN_TRAIN_H
#define WEFT_TRAIN_TRAIN_H

#include "base/json.h"
#include "data/data.h"
#include "model/model.h"

typedef enum { SCHEDULE_LINEAR, SCHEDULE_COSINE, SCHEDULE_CONSTANT } LrSchedule;

typedef struct TrainConfig {
    /* model */
    const char *model;                                /* preset or checkpoint directory */
    int64_t layers, hidden, heads, inner, seq, vocab; /* 0: the model's own */
    double dropout;                                   /* < 0: the model's own */
    const char *task;                                 /* "auto", "lm", "mlm", "span", "classify" */
    int64_t labels;                                   /* classify */
    bool no_next_sentence;
    /* data */
    const char **data;
    int data_count;
    const char **val;
    int val_count;
    const char *format;  /* "auto", "bytes", "u16", "u32", "ids" */
    double val_fraction; /* of the data's end, when no val files are given */
    bool no_shuffle;
    double mask_rate;
    /* optimisation */
    int64_t steps;
    double epochs; /* > 0: instead of steps */
    int64_t batch, micro_batch;
    double lr, min_lr, weight_decay, beta1, beta2, eps, clip;
    int64_t warmup;
    const char *schedule; /* "linear", "cosine", "constant" */
    uint64_t seed;
    /* run */
    const char *out; /* run directory; NULL: none is written */
    bool resume;
    int64_t eval_every, eval_batches, save_every, keep, log_every;
    const char *recompute; /* "none", "selective", "block" */
    const char *device;    /* "cpu" */
    const char *kernels;   /* "cpu", "ref" */
    int64_t threads;
    bool quiet;
} TrainConfig;

void train_config_defaults(TrainConfig *ret_config);
/* Runs it. The summary is DESIGN's `summary.json`; `sample` is for the caller's use after the run. */
MUST_USE Status train_run(const TrainConfig *config, json_t **ret_summary);

/* Loss over a data set without training: {"loss", "tokens", "perplexity", ...}. */
typedef struct EvalConfig {
    const char *model;
    const char *task, *format;
    const char **data;
    int data_count;
    int64_t seq, batch, max_batches; /* 0: the model's own, 4, all */
    const char *device, *kernels;
    int64_t threads;
    bool quiet;
} EvalConfig;
MUST_USE Status eval_run(const EvalConfig *config, json_t **ret_result);

#endif
