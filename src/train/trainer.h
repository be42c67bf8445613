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
    WorkerState workers;    /* what is saved of them; count 0: there are none */
    ReplicaState replicas;  /* what is saved of their gradients; count 0: nothing */
    bool *exchanged;        /* per unit: whether it is being exchanged, for `workers` */
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

/* Sets t->workers and t->replicas. */
void trainer_find_workers(Trainer *t);
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

#endif
