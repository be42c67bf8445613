/* A job: the settings of a train, eval or bench command resolved into a model, a task, a data format, a
 * device and a runner.
 *
 *   job.c          model, task and device; loading weights
 *   job_data.c     format and tokenizer of the data; opening data sets
 *   job_layout.c   checks that the layout fits the model and the batch
 *   job_eval.c     losses and logits over a data set, without training
 *   job_task.c     what some tasks add: labels, metrics
 */
#ifndef WEFT_TRAIN_JOB_H
#define WEFT_TRAIN_JOB_H

#include "base/progress.h"
#include "checkpoint/checkpoint.h"
#include "data/labels.h"
#include "train/seq_warmup.h"
#include "train/train.h"

typedef struct Predictions Predictions; /* train/predictions.h */

typedef struct Job {
    Settings settings;     /* with `run` complete */
    ModelDir source;       /* the model's directory, if it is not a preset ... */
    const char *model_dir; /* ... and its path; else NULL */
    RootDisk *disk;        /* only rank 0 has directories of models and runs; NULL: all ranks do */
    Mirror model_mirror, tokenizer_mirror; /* with `disk`: of their directories */
    Task task;                             /* while the data is resolved, that of the files' formats */
    DataFormat format;                     /* as requested; may be auto */
    Tokenizer *tokenizer;                  /* NULL: not needed, not loaded yet, or bytes */
    char *tokenizer_name;                  /* its name in messages */
    char *tokenizer_dir; /* its files are copied into checkpoints; NULL: those of model_dir */
    TokenizerId tokens;  /* identity of the tokenizer behind the data, if tokens_known */
    bool tokens_known;
    ChatTemplate *chat;         /* conversations; NULL: not needed, not loaded yet, or none */
    bool bytes;                 /* tokens are bytes */
    DataFormat tables, unknown; /* how tables of text and files of unknown format are read, unless AUTO */
    bool squad;                 /* the data is SQuAD, or rows with questions */
    bool chats;                 /* it is conversations */
    bool windows;   /* lm: evaluate sliding windows over the whole text, which may be shorter than seq */
    char *prepared; /* directory of the token files opened last ... */
    const char *const *prepared_from; /* ... and the text files they were made from (borrowed) */
    int prepared_count;
    char *scratch_dir; /* temporary directory for token files; removed with the job */
    bool first;        /* rank 0, which prints warnings */
    int64_t seq;
    SeqWarmup seq_warmup;
    bool fixed_seq; /* users cannot choose seq; set before job_data */
    SpecialTokens special;
    int64_t end_token; /* ends a document of the data; -1: none */
    bool next_sentence, no_masks;
    LabelSet labels;    /* label names; empty: labels are plain numbers */
    uint8_t *continues; /* (vocab) whole-word masking: 1 for tokens that continue a word; else NULL */
    Model *model;
    Device *device, *own_device; /* own_device: created by the job; else NULL */
    OptimGroup *group;           /* parameter groups, of settings.run.optim */
    Runner *runner;              /* NULL before job_start */
} Job;

/* Default micro-batch size: a replica's whole share of the batch, or with a pipeline a share small enough
 * that each stage sees several micro-batches. */
int64_t job_micro_batch(int64_t batch, int64_t dp, int64_t pp);
/* Replaces the optimizer's settings by its defaults. */
MUST_USE Status job_default_optim(Settings *settings);
typedef enum { JOB_EVAL, JOB_TRAIN } JobUse;
/* Resolves model, task, data format and device, and completes settings.run. Allocates no model memory, so
 * data can be checked first. Pointers in the settings are borrowed and must outlive the job. */
MUST_USE Status job_new(Job **ret_job, const Settings *settings, JobUse use);
/* Creates the runner and loads the checkpoint's weights, or initializes new ones. *ret_report lists tensors
 * missing from the checkpoint or unknown to the model; it is empty for a preset. */
MUST_USE Status job_start(Job *job, LoadReport *ret_report);
void job_free(Job *job);
DEFINE_FREEP(Job, job)

/* What a checkpoint has of a runner: its stores and who saves them. With workers, the weights are the
 * synchronized ones. */
CheckpointState runner_checkpoint(const Runner *runner);

/* Part of job_new: completes the layout in job->settings.run. Refuses a layout that does not divide the model
 * or the batch; the error lists values that work. */
MUST_USE Status job_resolve_layout(Job *job, const ModelConfig *config);
/* Applies the settings' sizes to a preset. */
MUST_USE Status job_change_preset(const ModelSettings *model, ModelConfig *config);
/* Part of job_resolve_data: finds what the task makes of files whose format is not given. */
MUST_USE Status job_find_formats(Job *job);
/* Part of job_new: finds the data's tokenizer and whether tokens are bytes. */
MUST_USE Status job_resolve_data(Job *job);
/* Loads the tokenizer for text unless it is already loaded: the requested one, else the checkpoint's, else
 * bytes. */
MUST_USE Status job_need_tokenizer(Job *job);
/* Loads the checkpoint's own tokenizer, if it has one, for the names of tokens. */
MUST_USE Status job_name_tokens(Job *job);
/* Part of job_new: completes the configuration from the data, if the task does that. */
MUST_USE Status task_prepare(Job *job, ModelConfig *config);
/* The same for classification: takes the problem type and the labels from the settings, the
 * checkpoint or the data; sets config->problem and config->labels. */
MUST_USE Status job_find_labels(Job *job, ModelConfig *config);
/* Part of job_new, for whole-word masking: fills job->continues. */
MUST_USE Status job_find_words(Job *job, int64_t vocab);
/* Part of job_new: adds the adapters and freezes what is not trained. */
MUST_USE Status job_adapt(const TrainingSettings *training, Model *model);
/* The common format of the files, as job_data reads them. */
MUST_USE Status job_format(const Job *job, const char *const *paths, int count, DataFormat *ret_format);
/* Opens a data set; text is tokenized into token files first. `paths` must
 * outlive the job. */
MUST_USE Status job_data(Job *job, const char *const *paths, int count, DataPart part, double mask_rate,
                         uint64_t seed, Dataset **ret_data);
/* The part of `data` to train on; `split`: its end is for validation. */
DataPart job_training_part(const DataSettings *data, bool split);

/* Adds the validation token files of the directories among `paths` to `list`. */
MUST_USE Status job_val_token_files(const char *const *paths, int count, TokenFileList *list);

/* Losses over a data set, summed over all replicas. */
typedef struct EvalResult {
    double loss;
    double sum[LOSS_COUNT];
    double part[LOSS_COUNT];
    double accuracy[LOSS_COUNT]; /* top-1, over all labels; NAN for losses with targets */
    int64_t counts[LOSS_COUNT];
    int64_t examples;
    int64_t tokens; /* without padding */
} EvalResult;
/* Evaluates the first `limit` examples (0: all). Same result on all ranks and in every layout. Collective. */
MUST_USE Status job_evaluate(const Job *job, const Dataset *data, int64_t limit, EvalResult *ret_result);
/* The same over all windows of a text, starting `stride` tokens apart; see dataset_windows. */
MUST_USE Status job_evaluate_windows(const Job *job, const Dataset *data, int64_t stride,
                                     EvalResult *ret_result);

/* Callbacks of job_scores, which computes a head's logits, or of HEAD_NONE the hidden states. */
typedef struct ScoreWork {
    HeadId head;
    int64_t seq;   /* sequence length of a batch */
    int64_t width; /* values per example */
    void *context;
    const char *title; /* for progress; NULL: "evaluating" */
    /* Only some rows: writes those of a filled batch, b * T + t in ascending order, to `rows` and returns
     * their number. Their values follow one another in the batch's. */
    int64_t (*pick)(void *context, const HostBatch *batch, int32_t *rows);
    /* Logits over the vocabulary: makes `each` values of those of a row. Called on one rank of the replica.
     */
    int64_t each;
    void (*reduce)(void *context, const HostBatch *batch, int32_t row, const float *logits, float *out);
    /* Makes the values of the batch's examples (B,width) of `raw` values for each. */
    int64_t raw;
    void (*condense)(void *context, const HostBatch *batch, const float *values, float *out);
    /* Fills `batch` with examples at .. at + batch->B - 1. */
    Status (*fill)(void *context, int64_t at, HostBatch *batch);
    /* Called on all ranks with all logits (B, width), in order, and the batch they belong to. */
    Status (*consume)(void *context, int64_t at, const HostBatch *batch, const float *scores);
} ScoreWork;
/* Computes the values of examples 0 .. count-1, split across the replicas. Collective. */
MUST_USE Status job_scores(const Job *job, int64_t count, const ScoreWork *work);

/* Fills a batch with synthetic tokens and labels for every head of the job's task. */
void job_fill_synthetic(const Job *job, HostBatch *batch);

/* Adds the metrics of the job's task that need the model's outputs, over the first `limit` examples (0: all).
 * `validating`: only those that a run reports. `out`: also writes the predictions; may be NULL. Collective.
 */
MUST_USE Status task_scores(const Job *job, const Dataset *data, int64_t limit, bool validating,
                            Predictions *out, json_t *result);
/* Writes the predictions for unlabeled rows. Collective. */
MUST_USE Status task_predict(const Job *job, const Dataset *data, Predictions *out);
/* Whether the validations of a run have such metrics. */
bool task_validation_scores(const Job *job);

/* A fingerprint of a data set: its size and a hash of up to 16 examples spread over it. */
MUST_USE Status job_fingerprint(const Job *job, const Dataset *data, uint64_t *ret_fingerprint);
/* Prints the tensors that were missing from the checkpoint or unknown to the model. */
void job_report(const Job *job, const LoadReport *report, Progress *progress);

/* The name of a label as JSON, or its number if it has none. */
json_t *job_label_json(const Job *job, int64_t label);

/* FLOPs of a training step per token, by the usual count: 6 per matmul parameter, plus attention; fewer with
 * frozen parameters. And those of forward alone. */
double job_flops_per_token(const Job *job);
double job_forward_flops_per_token(const Job *job);

#endif
