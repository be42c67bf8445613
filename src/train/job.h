/* A job: what a train, eval or bench configuration comes to once model, task and data are settled. */
#ifndef WEFT_TRAIN_JOB_H
#define WEFT_TRAIN_JOB_H

#include "base/progress.h"
#include "checkpoint/checkpoint.h"
#include "data/labels.h"
#include "train/runner.h"
#include "train/train.h"

typedef struct Job {
    char *model_dir; /* the checkpoint directory the model comes from; NULL: a preset */
    Task task;
    DataFormat format; /* as asked for */
    TextOptions text;
    Tokenizer *tokenizer; /* NULL: none is needed, or the bytes */
    char *tokenizer_name; /* what messages call it */
    char *tokenizer_dir;  /* whose files a checkpoint shall carry; NULL: the model's own */
    TokenizerId tokens;   /* what the data's tokens are, once known */
    bool tokens_known;
    bool bytes;      /* the vocabulary is the bytes */
    bool asks_squad; /* by the task: files that do not say what they are, are SQuAD's */
    bool squad;      /* the data is */
    bool windows;    /* lm: the data is for windows over all of it, so that a short text will do */
    const char *out; /* run directory, for text that is not to be cached */
    char *prepared;  /* the text's shards, as last opened... */
    const char *const *prepared_from; /* ...made of these files, as they were then */
    int prepared_count;
    char *scratch_dir; /* where it goes without one; goes with the job */
    FILE *log;
    bool quiet;
    const volatile sig_atomic_t *stop;
    int64_t seq;
    SpecialTokens special;
    bool next_sentence, no_masks;
    bool asks_classify; /* rows of tables are texts with labels */
    LabelSet labels;    /* their names; none: they are numbers */
    uint8_t *continues; /* (vocab) whole-word masking: tokens that go on with a word; else NULL */
    Model *model;
    Device *device, *own_device; /* own: made by the job */
    RunnerSpec plan;
    Runner *runner; /* from job_start on */
} Job;

/* What job_new needs of a configuration. */
typedef struct JobSpec {
    const char *model, *task, *format, *device, *kernels, *recompute;
    int64_t layers, hidden, heads, inner, seq, vocab, labels, threads, micro_batch;
    double dropout;
    bool no_next_sentence, no_masks, whole_words;
    const char *const *data; /* to settle an `auto` format, and the vocabulary */
    int data_count;
    TextOptions text;
    const char *out;
    FILE *log; /* where preparing text shows */
    bool quiet;
    const volatile sig_atomic_t *stop;
    bool train;
    Device *on; /* the device, which may be on paper; NULL: the job makes it */
    OptimSpec optim;
    uint64_t seed;
    /* The layout; zeroes are one rank in fp32. */
    Mesh *mesh;
    int64_t batch, zero, pp_chunks;
    bool keep_params, sequence;
    const char *offload; /* NULL: none */
    const char *pp_schedule, *precision;
    double loss_scale;
    int64_t loss_scale_steps;
    const char *quantize_aware;
} JobSpec;

/* What a training configuration asks for. */
JobSpec job_spec_of(const TrainConfig *config);
/* Settles model, task and device; takes no memory to speak of, so that data can be looked at first. */
MUST_USE Status job_new(Job **ret_job, const JobSpec *spec);
/* Makes the runner, with the weights of the checkpoint or fresh ones. `ret_report` tells names that did
 * not meet; it is empty for a preset. */
MUST_USE Status job_start(Job *job, LoadReport *ret_report);
void job_free(Job *job);
DEFINE_FREEP(Job, job)

/* Refuses a layout that the model or the batch does not divide into, and says what would do; fills in the
 * layout's part of the plan. */
MUST_USE Status job_settle_layout(const JobSpec *spec, const ModelConfig *config, int64_t seq,
                                  RunnerSpec *plan);
/* Part of job_new: which tokenizer there is, and whether the vocabulary is the bytes. */
MUST_USE Status job_settle_data(Job *job, const JobSpec *spec);
/* Loads the tokenizer for text, where it is not there yet: the one asked for, the checkpoint's, or the bytes.
 */
MUST_USE Status job_need_tokenizer(Job *job);
/* Part of job_new, for classification: the labels by the checkpoint, or by the data; sets config->labels. */
MUST_USE Status job_find_labels(Job *job, const JobSpec *spec, ModelConfig *config);
/* Part of job_new, for whole-word masking: which tokens go on with a word. */
MUST_USE Status job_find_words(Job *job, int64_t vocab);
/* What files come to, as job_data reads them. */
MUST_USE Status job_format(const Job *job, const char *const *paths, int count, DataFormat *ret_format);
/* The data sets of a job. keep_first, keep_last as in DataSpec. Text is prepared first. */
MUST_USE Status job_data(Job *job, const char *const *paths, int count, double keep_first, double keep_last,
                         double mask_rate, uint64_t seed, Dataset **ret_data);

/* The shards for validation that lie in the directories among the paths; none when there are none. */
MUST_USE Status job_val_token_files(const char *const *paths, int count, TokenFileList *list);

/* Mean loss over the first `limit` examples (0: all of the data), the same in every layout. */
typedef struct EvalResult {
    double loss;
    double sum[LOSS_COUNT];
    double part[LOSS_COUNT], accuracy[LOSS_COUNT]; /* accuracy: the share of labels with the largest score */
    int64_t counts[LOSS_COUNT];
    int64_t examples;
} EvalResult;
MUST_USE Status job_evaluate(const Job *job, const Dataset *data, int64_t limit, EvalResult *ret_result);
/* The same over all windows of a text, `stride` tokens apart; see dataset_windows. */
MUST_USE Status job_evaluate_windows(const Job *job, const Dataset *data, int64_t stride,
                                     EvalResult *ret_result);

/* Scores of a head, for work that needs more of them than their loss. */
typedef struct ScoreWork {
    OutputHead head;
    int64_t seq;   /* positions of a batch */
    int64_t width; /* scores of an example */
    void *context;
    Status (*fill)(void *context, int64_t at, HostBatch *batch);
    /* All ranks are given all scores, in order, with the batch that they are of. */
    Status (*take)(void *context, int64_t at, const HostBatch *batch, const float *scores);
} ScoreWork;
/* Has the model score examples 0 .. count-1, shared out over the replicas. For one tensor rank and one stage.
 */
MUST_USE Status job_scores(const Job *job, int64_t count, const ScoreWork *work);

/* Fills a batch with made-up tokens, so that every head that the model has for its task has work. */
void job_make_up(const Job *job, HostBatch *batch);

/* A number that tells one data set from another: a hash of examples spread over it. */
MUST_USE Status job_fingerprint(const Job *job, const Dataset *data, uint64_t *ret_print);
/* Says which names did not meet. */
void job_report(const Job *job, const LoadReport *report, Progress *progress);

const char *loss_name(LossId loss); /* "token", "next_sentence" ... */
const char *task_name(Task task);

/* Operations of one training step per token, by the usual count: 6 per parameter in a product and
 * the attention's. */
double job_flops_per_token(const Job *job);

#endif
