/* What a run measures of itself: where its time went, how busy ranks were, what they sent and hold, how much
 * of the machine's peak it reached and how noisy its gradients are. Each rank adds up its own; ranks tell
 * each other when a line of metrics is due, and at the end. docs/comparing.md has the keys.
 */
#ifndef WEFT_TRAIN_RECORD_H
#define WEFT_TRAIN_RECORD_H

#include "train/job.h"
#include "train/noise.h"

/* They add up to the run's time. */
typedef enum {
    PHASE_COMPUTE,    /* forward and backward */
    PHASE_COMM,       /* waiting for replicas and tensor ranks */
    PHASE_BUBBLE,     /* waiting for other stages */
    PHASE_OPTIMIZER,  /* the update */
    PHASE_DATA,       /* reading the next batch */
    PHASE_OTHER,      /* of steps, and between them */
    PHASE_EVAL,       /* evaluation */
    PHASE_CHECKPOINT, /* saving */
    PHASE_SETUP,      /* before the first step */
    PHASES
} Phase;
enum { STEP_PHASES = PHASE_OTHER + 1 };

/* What a rank tells of a step, or of the run. */
typedef struct RankRecord {
    double phase_s[PHASES];
    double waited_s[AXIS_COUNT];
    double schedule_s; /* as in RunnerTimes */
    double run_s;      /* since it started */
    double step_s;     /* in steps */
    double busy_s;     /* of that: by the CPU's clock, of all threads; by the GPU's own */
    double gpu;        /* by its driver, 0 to 1; NAN: nothing says */
    int64_t peak[MEM_TAGS + 1], host_peak;
    uint64_t sent[AXIS_COUNT + 1][COMM_KINDS]; /* in steps */
    int64_t stop;                              /* it was asked to */
} RankRecord;

typedef struct Record {
    const Job *job;
    double batch;
    double wall_start, ready_at; /* ready: the first step may begin */
    double peak_flops;           /* of all ranks; NAN: not known */
    Noise noise;
    double micro_norm;    /* of the last step that took it; NAN: none */
    RankRecord all, step; /* this rank's: of the run, of the last step */
    RankRecord *ranks;    /* every rank's, as last told */
    int64_t steps, tokens;
    double pending_save_s; /* saving that no line has told of yet */
    /* When the step began. */
    double wall, cpu, waited_cpu, waited_tickets;
    RunnerTimes times;
    uint64_t sent[AXIS_COUNT + 1][COMM_KINDS];
    /* How busy the GPU was, by its driver: the newest sample, and the sum of all. */
    double gpu_at, gpu_now, gpu_sum;
    int64_t gpu_samples;
} Record;

/* At the run's start; and once all is there for the first step, when the machine's peak is measured. The job
 * must outlive it. `noise`: as it was when the run was stopped, or NULL. */
void record_begin(Record *record);
MUST_USE Status record_ready(Record *record, const Job *job, int64_t batch, const char *precision,
                             const json_t *noise);
void record_done(Record *record);

/* Around a step: `number` counts from 1. */
void record_step_begin(Record *record, int64_t number);
void record_step_end(Record *record, const StepResult *result);
/* Time that went into something else than a step's work on the device. */
void record_phase(Record *record, Phase phase, double seconds);

/* Whether any rank was asked to stop; `tell`: and ranks tell each other of the last step. Collective. */
MUST_USE Status record_meet(Record *record, bool stop, bool tell, bool *ret_stop);
/* What is known of the last step, into a line of metrics; after ranks told each other. */
MUST_USE Status record_line(Record *record, const StepResult *result, json_t *line);
/* What is known of the run, into its summary. Collective. */
MUST_USE Status record_summary(Record *record, json_t *summary);
/* For a checkpoint. */
json_t *record_noise(const Record *record);

#endif
