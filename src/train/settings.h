/* The settings of a job: one structure from the command line to the runner. The option tables in cli/ fill
 * it; each layer below takes the part that concerns it. Zero means the default, unless stated otherwise.
 * Strings and arrays are borrowed and must outlive the call. */
#ifndef WEFT_TRAIN_SETTINGS_H
#define WEFT_TRAIN_SETTINGS_H

#include <signal.h>

#include "data/data.h"
#include "train/runner.h"

typedef struct ModelSettings {
    const char *name;                                 /* preset or checkpoint directory */
    int64_t layers, hidden, heads, inner, seq, vocab; /* 0: the model's value */
    int64_t experts, top_k, expert_inner;             /* of a mixture, likewise */
    const char **adapters;                            /* directories to merge into the model */
    int adapters_count;
    const char *rope_scaling; /* "yarn:4", see rope_extend; NULL: the model's */
    bool untie;               /* a preset gets an output matrix of its own */
    double dropout;           /* < 0: the model's value; used in training only */
    const char *task;         /* "auto", "lm", "mlm", "span", "classify", "squad" */
    int64_t labels;           /* classify */
    const char *problem_type; /* classify: "auto", "regression", "single-label", "multi-label"; NULL: auto */
    bool headless;            /* the hidden states are wanted, so no head is made */
    bool no_next_sentence, no_masks; /* mlm: train only one of its two objectives */
    bool whole_words;                /* mlm: whole-word masking */
} ModelSettings;

/* How text is read and tokenized. */
typedef struct TextOptions {
    const char *tokenizer;         /* directory, or "bytes"; NULL: the checkpoint's, else bytes */
    const char *field;             /* JSON Lines: key of the text; NULL: "text" */
    const char *text_field;        /* key of the first text; NULL: "text" in records, "q" in pairs */
    const char *pair_field;        /* key of the second text; NULL: absent in records, "a" in pairs */
    const char *label_field;       /* records: one name, or several separated by commas; NULL: "label" */
    const char *id_field;          /* of rows to predict: key of their ids; NULL: "id", if it is there */
    const char *documents;         /* document boundaries: "file", "line", "blank", "wikitext"; NULL: file */
    bool no_cross_document;        /* lm: attention does not cross documents */
    bool no_cache;                 /* tokenize into the run directory or a temporary one, not the cache */
    const char *chat_template;     /* a file; NULL: that of the tokenizer */
    unsigned loss_on;              /* chat: a LossOn */
    bool no_packing;               /* chat: one conversation to a sequence */
    int64_t doc_stride, max_query; /* SQuAD, see data/squad_features.h; 0: the published values */
} TextOptions;

/* The path "self" is weft's own source and docs. */
typedef struct DataSettings {
    const char **files;
    int files_count;
    const char **val;
    int val_count;
    const char *format; /* "auto", "bytes", "u16", "u32", "ids", "tokens", "text", "squad", "pairs",
                         * "cornell", "records", "chat" */
    TextOptions text;
    bool unlabeled;      /* rows to predict, see DataSpec */
    bool named;          /* rows keep their ids, see DataSpec */
    double fraction;     /* use only this fraction of the files, from their start; 0: all */
    int64_t stride;      /* lm: tokens between the starts of training windows; 0: the sequence length */
    double val_fraction; /* fraction of the data, taken from its end, when no val files are given */
    bool no_shuffle;
    double mask_rate;
} DataSettings;

/* Adapters, which alone are trained; see checkpoint/adapter.h. */
typedef struct LoraSettings {
    int64_t rank; /* 0: none */
    double alpha; /* 0: twice the rank */
    double dropout;
    bool rslora;
    const char **targets; /* patterns, see lora_targets_find */
    int targets_count;
} LoraSettings;

/* Length, batch and learning rate. The optimizer's own settings are RunnerSpec.optim. */
typedef struct TrainingSettings {
    int64_t steps;
    double epochs; /* > 0: replaces steps */
    int64_t batch;
    const char *optimizer; /* "adamw", "lion", "sgd", "muon"; NULL: adamw */
    double lr, min_lr;
    double adamw_lr;    /* muon: peak learning rate of the parameters that AdamW updates */
    const char **group; /* parameter groups, see optim_group_parse */
    int group_count;
    const char **freeze; /* patterns of frozen parameters, see model_freeze */
    int freeze_count;
    LoraSettings lora;
    int64_t warmup;          /* steps; < 0: by warmup_ratio */
    double warmup_ratio;     /* fraction of the run; 0: 0.05 */
    const char *warmup_file; /* the file that set warmup, if it may be capped to the run's length; or NULL */
    const char *warmup_type; /* "linear", "log"; NULL: linear */
    int64_t seq_warmup, seq_warmup_from; /* see SeqWarmup; 0: none; an eighth */
    const char *schedule;                /* "linear", "cosine", "constant", "wsd" */
    bool from_zero;                      /* see LrSchedule */
    int64_t decay_steps;                 /* wsd; < 0: a tenth of the run */
    const char *decay_type;              /* wsd: "linear", "1-sqrt", "cosine"; NULL: linear */
} TrainingSettings;

typedef struct DeviceSettings {
    const char *name;      /* "cpu", "cuda" */
    Device *on;            /* an existing device to use, which must outlive the job; NULL: create one */
    const char *kernels;   /* "cpu", "ref", "cuda"; NULL: the device's default */
    const char *precision; /* "fp32", "tf32", "bf16", "fp16", "fp8"; NULL: fp32 on the CPU, bf16 on a GPU */
    int64_t threads;
} DeviceSettings;

/* Intervals are in steps; 0: only at the end; EVERY_EPOCH (train/epoch.h). */
typedef struct ValidationSettings {
    int64_t every;
    int64_t batches;
    int64_t samples;      /* per evaluation; 0: batches x the batch size, or all if that is 0 */
    int64_t patience;     /* stop after this many validations without improvement; 0: never */
    int64_t sample_every; /* samples of the model's text; 0: none */
    double first_flops;   /* limit of the validation before the first step; 0: as long as the others */
} ValidationSettings;

typedef struct CheckpointSettings {
    const char *out; /* run directory; NULL: write nothing */
    bool resume;
    int64_t resume_from;   /* with resume: the checkpoint of this step; 0: the newest that is intact */
    int64_t save_every;    /* an interval, as above */
    int64_t keep;          /* newest checkpoints */
    bool no_async_save;    /* training waits until a checkpoint is saved */
    int64_t save_failures; /* failed saves in a row that are tolerated */
    bool gather;           /* only rank 0 has run and model directories */
    Group *files;          /* with `gather` and several ranks: all ranks, over host memory; else NULL */
} CheckpointSettings;

enum { TIMEOUT_LEAST = 60 };

/* What a run would lose if it ended now: nothing was done, steps that are in no checkpoint, nothing. */
typedef enum { WORK_NONE, WORK_UNSAVED, WORK_SAVED } WorkState;

/* What to do about divergence, hanging ranks, failures and signals. */
typedef struct FaultSettings {
    const char *on_divergence; /* "stop", "warn", "skip", "rollback"; NULL: stop */
    int64_t rollbacks;         /* at most */
    double timeout; /* limit of waits for other ranks, in seconds; 0: none; < 0: 10 x the slowest step, at
                     * least TIMEOUT_LEAST */
    int64_t max_restarts;        /* cli: restarts of the ranks after a failure */
    double signal_seconds;       /* cli: time between a signal and the end of the job; 0: unknown */
    volatile sig_atomic_t *work; /* set to a WorkState as the run proceeds; NULL: not wanted */
} FaultSettings;

typedef struct ReportSettings {
    int64_t log_every;
    bool trace;             /* train: write trace.json to the run directory */
    const char *trace_file; /* bench: write the trace to this file; NULL: no trace */
    int64_t trace_steps;    /* number of steps to trace, starting with the second */
    bool steps_only;        /* bench: report step times only, no per-kernel times */
    bool quiet;
    const char *note; /* a line to show before the model's; NULL: none */
    FILE *log;        /* progress output */
} ReportSettings;

typedef struct Settings {
    ModelSettings model;
    DataSettings data;
    TrainingSettings training;
    RunnerSpec run; /* optimizer, layout, precision and memory; job_new fills in what follows from others */
    DeviceSettings device;
    ValidationSettings validation;
    CheckpointSettings ckpt;
    FaultSettings fault;
    ReportSettings report;
} Settings;

#endif
