/* The state of a training run, shared by the loop (train.c), its steps (train_step.c) and its checkpoints
 * (train_checkpoint.c). */
#ifndef WEFT_TRAIN_TRAINER_H
#define WEFT_TRAIN_TRAINER_H

#include "base/progress.h"
#include "checkpoint/background.h"
#include "optim/lr.h"
#include "train/epoch.h"
#include "train/guard.h"
#include "train/pace.h"
#include "train/record.h"
#include "train/rundir.h"
#include "train/tracer.h"
#include "train/train.h"
#include "train/validation.h"

typedef struct Trainer {
    const Settings *config;
    Job *job;
    Dataset *data, *val;
    LrSchedule lr;
    HostBatch **micro;
    int micro_count;
    RunDir *dir;
    Progress *progress;
    Tracer *tracer; /* NULL: tracing is off */
    Record record;
    json_t *earlier;              /* summary up to the resumed checkpoint, on rank 0; else NULL */
    json_t *noise;                /* gradient noise state from the resumed checkpoint, or NULL */
    json_t *settings;             /* settings that must match between a checkpoint and the run resuming it */
    int64_t step, saved, tokens;  /* `saved`: the step of the newest checkpoint */
    double loss_first, loss_last; /* NAN: unknown */
    Epochs epochs;
    Validation val_state;
    GuardPolicy policy;
    Guard guard;
    Pace pace;              /* of workers; empty without them */
    double round_s;         /* of the current round of workers so far */
    int64_t rounds;         /* completed ones */
    int64_t compared;       /* the last round in which workers were compared */
    double usual_s;         /* time of a round; 0: unknown */
    int64_t spike_step;     /* of the last warning about a spike */
    int64_t failed_saves;   /* in a row */
    Background *background; /* saves while training continues; NULL: saves in the foreground */
    bool save_retried;      /* its pending save has failed once */
    Validation before_save; /* val_state before it */
    bool *exchanged;        /* per unit: whether workers are exchanging it, as saved; NULL: without workers */
    bool resumable;         /* the run has a checkpoint to resume from */
    bool stopped;           /* by a signal ... */
    bool abandoned;         /* ... in the middle of a step or evaluation */
    EvalResult eval;        /* latest evaluation by this process; examples == 0: none yet */
    char val_note[320];     /* its scores, as shown */
} Trainer;

void trainer_set_work(const Trainer *t, WorkState state);
/* Tells the watchdog what this rank is doing. */
void trainer_doing(const Trainer *t, const char *what);
bool trainer_is_first(const Trainer *t); /* whether this is rank 0 */
/* Records a span from start_ns to now; returns its length in seconds. */
double trainer_span(const Trainer *t, const TraceName *name, int64_t start_ns);

/* Trains one step. Signals reach ranks at different times; all ranks abandon this step, or all finish it.
 * *ret_stop: a signal asked for the end. Collective. */
MUST_USE Status trainer_step(Trainer *t, bool *ret_stop);
/* After a validation or a save that may have found NaN or Inf: rolls back, or explains the failure. */
MUST_USE Status trainer_recover(Trainer *t, Status status);

/* Collects the settings that a resumed run may not change. */
MUST_USE Status trainer_describe(Trainer *t);
/* Refuses a disk without space for a checkpoint, and warns if it has none for a second. Collective. */
MUST_USE Status trainer_check_space(const Trainer *t);
/* Decides whether checkpoints are saved in the background, which needs host memory for a copy. Collective. */
MUST_USE Status trainer_prepare_saves(Trainer *t);
/* Saves a checkpoint, after completing a pending one: in the foreground with `last`, else in the background
 * if possible. A save that fails is retried, then reported, and training continues until save_failures is
 * exceeded; with `last` it must succeed. Collective. */
MUST_USE Status trainer_save(Trainer *t, bool last);
/* Call before the weights change: waits until they are copied for a pending save. */
MUST_USE Status trainer_copied(Trainer *t);
/* Continues a pending save. `busy`: some rank is still writing. Collective. */
MUST_USE Status trainer_continue_save(Trainer *t, bool busy);
/* Completes a pending save; with `last`, a failure is only reported. Collective. */
MUST_USE Status trainer_complete_save(Trainer *t, bool last);
/* On the first rank: clears what interrupted saves left behind and removes old checkpoints. */
MUST_USE Status trainer_tidy(const Trainer *t);
/* Loads the newest checkpoint of the run directory, if any; refuses to overwrite it unless resuming. */
MUST_USE Status trainer_resume(Trainer *t);
/* Continues from the newest checkpoint with the batches up to that of `step` left out; `text` says what is
 * wrong with this step. Fails if there is no checkpoint, or after too many rollbacks. */
MUST_USE Status trainer_roll_back(Trainer *t, int64_t step, const char *text);
/* The error of a run that ends because step `step` diverged. Completes a pending save. Collective. */
MUST_USE Status trainer_diverged(Trainer *t, int64_t step, const char *text);

/* ---- parts in files of their own ---- */

/* Start lines of a run: the model, its data, its optimizer and what these lead to. */
void trainer_announce(const Trainer *t, const LoadReport *report);

/* What a run ran on, for its summary: CPU, memory, GPUs and libraries of this host, the names of all hosts,
 * weft's version and the time of day; NULL if out of memory. The hosts of a run are assumed to be alike. */
json_t *machine_json(const Job *job);

/* A short sample of text from the model in training. Refuses models and layouts that cannot generate here:
 * BERT, tensor parallelism, data without a known tokenizer. */
MUST_USE Status sample_check(Job *job);
/* Continues the first tokens of `data`. The text is the same in every layout up to rounding, and depends on
 * the weights, the seed and the step only. *ret_prompt and *ret_text are valid UTF-8 and owned by the caller.
 * Collective; changes nothing that training uses. */
MUST_USE Status sample_make(const Job *job, const Dataset *data, int64_t step, char **ret_prompt,
                            char **ret_text);

/* Finds where NaN or Inf first appeared, once training has diverged: searches the weights in the order of
 * forward, then the gradients in the order of backward, and names the first that is not finite: "weight
 * layer.0.attn.qkv.weight contains NaN". The text is empty if all are finite. Collective; all ranks get the
 * same text. */
enum { NONFINITE_TEXT = 64 + PARAM_NAME };
MUST_USE Status nonfinite_find(Runner *runner, char text[NONFINITE_TEXT], bool *ret_in_weights);

/* What a resumed run may not change: the model, the data, and settings that decide about its samples.
 * Compares the model's size with that of the run's checkpoint, before its tensors are compared. */
MUST_USE Status resume_check_model(const Settings *settings, const ModelConfig *now, const ModelConfig *was);
/* Compares what trainer_describe collects with what the checkpoint `dir` of the run `run` has recorded. */
MUST_USE Status resume_check_settings(const char *run, const char *dir, json_t *now, const json_t *was);
/* A schedule as a checkpoint stores it. */
MUST_USE Status lr_save(const LrSchedule *schedule, json_t **ret_json);
/* Compares the schedule with the one stored in the checkpoint of `step`. *ret_text, which the caller frees,
 * says what the learning rate was, what it will be and which options changed; NULL if none did, or if the
 * checkpoint stores no schedule. */
MUST_USE Status lr_change_text(const LrSchedule *now, const json_t *saved, int64_t step, char **ret_text);

#endif
