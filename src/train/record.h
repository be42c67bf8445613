/* A run's own measurements: time by phase, utilization, communication volume, peak memory, MFU and gradient
 * noise. Each rank accumulates its own figures; they are exchanged when a line of metrics is due and at the
 * end of the run. docs/comparing.md describes the JSON keys.
 */
#ifndef WEFT_TRAIN_RECORD_H
#define WEFT_TRAIN_RECORD_H

#include "base/energy.h"
#include "base/host.h"
#include "base/load.h"
#include "train/job.h"
#include "train/noise.h"
#include "train/run_summary.h"

/* Phases of a rank's time; together they make up the run time. */
typedef enum {
    PHASE_COMPUTE,    /* forward and backward */
    PHASE_COMM,       /* waiting for replicas and tensor-parallel ranks */
    PHASE_BUBBLE,     /* waiting for other stages */
    PHASE_OPTIMIZER,  /* the parameter update */
    PHASE_DATA,       /* reading the next batch */
    PHASE_OTHER,      /* the rest, inside and between steps */
    PHASE_EVAL,       /* validation */
    PHASE_CHECKPOINT, /* saving checkpoints */
    PHASE_SETUP,      /* until the first step starts */
    PHASES
} Phase;
enum { STEP_PHASES = PHASE_OTHER + 1 };

/* The spans over which the host's load is measured. */
typedef enum { LOAD_STEPS, LOAD_RUN, LOAD_SPANS } LoadSpan; /* since the first steps, since the start */

/* One rank's figures for a step or for the whole run. Exchanged as raw bytes between ranks. */
typedef struct RankRecord {
    double phase_s[PHASES];
    double waited_s[AXIS_COUNT];
    double schedule_s; /* see RunnerTimes */
    double run_s;      /* since the start of the run */
    double step_s;     /* inside steps */
    double busy_s;     /* busy time inside steps: CPU time of all threads, or GPU time by its events */
    double gpu;        /* GPU utilization reported by the driver, 0 to 1; NAN: unavailable */
    double work_s;     /* inside steps since the last exchange of figures, without waiting for others */
    double first_step_s, first_busy_s; /* step_s and busy_s of the first steps */
    LoadTime load[LOAD_SPANS];
    double cores;                       /* of the host */
    double host_energy_j, gpu_energy_j; /* since setup; NAN: not reported */
    int gpus;                           /* of the host */
    int64_t peak[MEM_TAGS + 1], host_peak;
    CommBytes sent[TRAFFICS][COMM_KINDS]; /* inside steps */
} RankRecord;

typedef struct Record {
    const Job *job;
    double batch;
    double wall_start, ready_at; /* ready_at: end of setup */
    double peak_flops;           /* all ranks together; NAN: unknown */
    Noise noise;
    RankRecord all, step; /* this rank's: whole run, last step */
    RankRecord *ranks;    /* (mesh size) every rank's, as of the last exchange */
    int64_t steps, tokens;
    int64_t first_tokens; /* of the first steps */
    Energy energy;
    double energy_at, gpu_energy; /* when it was last read; the GPU's count at the end of setup */
    LoadTime load_from[LOAD_SPANS];
    double pending_save_s; /* checkpoint time not yet in a metrics line */
    /* Counters at the start of the step. */
    double wall, cpu;
    MeshWaits waits;
    double work_s; /* see RankRecord */
    RunnerTimes times;
    CommBytes sent[TRAFFICS][COMM_KINDS];
    /* Samples of the driver's GPU utilization: time and value of the newest, sum and number of all. */
    double gpu_at, gpu_now, gpu_sum;
    int64_t gpu_samples;
} Record;

/* Call at the start of the run. */
void record_begin(Record *record);
/* Call when setup is done, just before the first step; measures the hardware peak. The job must outlive the
 * record. `noise`: the record_noise state of a resumed run, or NULL. Collective. */
MUST_USE Status record_ready(Record *record, const Job *job, int64_t batch, const char *precision,
                             const json_t *noise);
void record_done(Record *record);

/* Call around each step; `number` starts at 1. */
void record_step_begin(Record *record, int64_t number);
void record_step_end(Record *record, const StepResult *result);
/* Adds time spent outside the runner: loading data, evaluation, checkpoints. */
void record_phase(Record *record, Phase phase, double seconds);

/* Adds time that a step waits until the last checkpoint's values are copied; it is not part of the step's. */
void record_copy(Record *record, double seconds);

/* Gathers all ranks' figures of the last step. Collective. */
MUST_USE Status record_gather(Record *record);
/* Adds the last step's figures to a line of metrics; call after record_gather. */
MUST_USE Status record_line(Record *record, const StepResult *result, json_t *line);
/* Fills in the whole run's figures. Collective. */
MUST_USE Status record_summary(Record *record, RunSummary *summary);
/* The gradient noise state to store in a checkpoint; NULL if out of memory. */
json_t *record_noise(const Record *record);
void record_restore_noise(Record *record, const json_t *noise);

#endif
