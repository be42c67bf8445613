/* Results of a set of runs: read from their directories, stored in results.json and results.csv. One run is
 * the baseline with which the others are compared. */
#ifndef WEFT_REPORT_RESULTS_H
#define WEFT_REPORT_RESULTS_H

#include "train/run_summary.h"

typedef enum { RUN_WAITING, RUN_RUNNING, RUN_FINISHED, RUN_INTERRUPTED, RUN_FAILED } RunState;

/* A value by step, in ascending order of steps. */
typedef struct Curve {
    double *step, *value;
    size_t count, step_capacity, value_capacity;
} Curve;

MUST_USE Status curve_add(Curve *curve, double step, double value);
void curve_done(Curve *curve);

/* One epoch of a run; NAN: unknown. */
enum { EPOCH_SECONDS, EPOCH_LOSS, EPOCH_VAL_LOSS, EPOCH_ACCURACY, EPOCH_F1, EPOCH_EXACT, EPOCH_COLUMNS };
typedef struct RunEpoch {
    double number, step;          /* its last step */
    double values[EPOCH_COLUMNS]; /* time and mean loss of its training steps, its last validation */
} RunEpoch;

typedef struct Results Results;

typedef struct Run Run;

struct Run {
    const Results *of; /* the results that contain this run; must not move in memory */
    char *name, *dir;
    RunState state;
    bool known;            /* started before, according to results.json or its own config.json */
    char *error;           /* why it failed, or problems with its files; NULL: none */
    json_t *options;       /* the options in which it differs from the other runs; NULL: unknown */
    json_t *settings;      /* all of its options; NULL: unknown */
    RunSummary summary;    /* as the run wrote it, or derived from its metrics; without json: neither */
    json_t *published;     /* what a study reported for this run, see report/study.h; NULL: nothing */
    RunSummary prediction; /* predicted summary of a run that was executed; without json: none */
    double samples;        /* training samples per epoch; 0: unknown */
    Curve loss, val_loss;
    Curve step_ms, busy;                    /* of the logged steps */
    Curve tokens, elapsed;                  /* since the start; seconds */
    Curve peak_load, entropy, balance_loss; /* of mixtures, see ExpertStats */
    json_t *sample;                         /* its last line with "prompt" and "sample"; NULL: none */
    char *diverged;                         /* what its last line says went wrong; NULL: nothing */
    double earlier_s; /* while reading: seconds of the processes before the current one */
    RunEpoch *epochs; /* in order */
    size_t epoch_count, epoch_capacity;
    Run *repeats; /* further executions of the same run, whose names and repeats are unset */
    size_t repeat_count, repeat_capacity;
};

struct Results {
    char *title, *about, *scale; /* about and scale may be NULL */
    double price;                /* of a GPU, or of a host without GPUs, per hour; 0: unknown */
    double power;                /* of the same, for predictions, in watts; 0: that of their clusters */
    char *command;               /* the command lines that repeat them; NULL: unknown */
    json_t *study;               /* the study that the runs repeat, see report/study.h; NULL: none */
    bool resized; /* the runs have another size than the study's: published figures are shown only in findings
                   */
    Run *runs;
    size_t count, capacity;
    json_t *others; /* entries of results.json for other runs, preserved when writing; NULL: none */
};

void results_done(Results *results);

/* results_foreach(results, run) { ... } */
static inline const Run *results_next(const Results *results, const Run *run) {
    size_t at = run ? (size_t)(run - results->runs) + 1 : 0;
    return at < results->count ? &results->runs[at] : NULL;
}
#define results_foreach(results, run)                                                                        \
    for (const Run *run = results_next(results, NULL); run; run = results_next(results, run))

/* How many runs something is true of. */
size_t results_count(const Results *results, bool (*is)(const Run *run));

/* Appends a run in state RUN_WAITING. *ret_run is valid until the next call. */
MUST_USE Status results_add(Results *results, const char *name, const char *dir, Run **ret_run);

/* Appends a repeat in state RUN_WAITING, in a directory next to the run's: NAME.2, NAME.3 ... */
MUST_USE Status run_add_repeat(Run *run);
/* Resets a run to RUN_WAITING before it starts or resumes. The files of a prediction are deleted. */
MUST_USE Status run_renew(Run *run);
/* Reads the directories of the run and of its repeats: summary, metrics, and the settings if still unknown.
 * Sets the state to waiting, running, finished or interrupted, or to failed if its last line of metrics says
 * that it diverged, unless the run has failed before. Damaged files and
 * implausible values are described in `error`. */
MUST_USE Status run_look(Run *run);
/* Reads trace.json; *ret_trace is NULL if there is none. run_look already reports a damaged file. */
MUST_USE Status run_trace(const Run *run, json_t **ret_trace);
const char *run_state_name(RunState state);
/* Whether it failed because it ran out of memory. */
bool run_lacks_memory(const Run *run);
/* Whether it was killed by SIGKILL, for example by the kernel's out-of-memory killer. */
bool run_killed(const Run *run);
/* "out of memory", "killed", or else the name of the state. */
const char *run_outcome(const Run *run);
/* The cluster for which the run was simulated; NULL if it was really run. */
const char *run_predicted(const Run *run);

/* Writes results.json, results.csv and, if a run has completed an epoch, epochs.csv into a directory. */
MUST_USE Status results_write(const Results *results, const char *dir);
/* Writes the table that results.csv contains. */
void results_csv(FILE *out, const Results *results);
/* Restores the state and error of the runs from results.json, by name. Fails if the settings of a run have
 * changed since. A missing file is not an error; if the file is unreadable, *ret_damage says why, otherwise
 * it is NULL. The caller frees it. */
MUST_USE Status results_recall(Results *results, const char *dir, char **ret_damage);
/* Adopts the contents of the run's directory for a run that is missing from results.json. Fails if the
 * directory's config.json is missing or has different settings. */
MUST_USE Status run_recognize(Run *run);
/* Reads results.json and the directories of all runs that it names. */
MUST_USE Status results_read(Results *results, const char *dir);
MUST_USE Status results_json(const Results *results, json_t **ret_json);

/* ---- figures: the values that are compared ---- */

typedef enum {
    FIGURE_FORMAT_SECONDS,
    FIGURE_FORMAT_RATE,
    FIGURE_FORMAT_LOSS,
    FIGURE_FORMAT_SHARE,
    FIGURE_FORMAT_BYTES,
    FIGURE_FORMAT_NUMBER,
    FIGURE_FORMAT_COUNT,
    FIGURE_FORMAT_WHOLE,
    FIGURE_FORMAT_MS,
    FIGURE_FORMAT_COST,
    FIGURE_FORMAT_JOULES
} FigureFormat;

typedef struct Figure {
    const char *key;     /* in results.json */
    const char *heading; /* of the column */
    FigureFormat unit;
    int better; /* 1: higher is better, -1: lower is better, 0: neither */
    bool timed; /* depends on how fast the run was, and so varies between repeats */
    bool named; /* a column only if the study's list of columns names it or, without one, a study reported it
                 */
} Figure;

/* In the order of the columns. */
typedef enum {
    FIGURE_RUNTIME,
    FIGURE_SAMPLES,
    FIGURE_TOKENS,
    FIGURE_LOSS,
    FIGURE_VAL_LOSS,
    FIGURE_VAL_MEAN,
    FIGURE_ACCURACY,
    FIGURE_F1,
    FIGURE_EXACT,
    FIGURE_BUSY,
    FIGURE_PEAK,
    FIGURE_BUBBLE,
    FIGURE_SENT,
    FIGURE_SENT_RANK,
    FIGURE_BETWEEN,
    FIGURE_MFU,
    FIGURE_NOISE,
    FIGURE_EFFICIENCY,
    FIGURE_GOODPUT,
    FIGURE_STEPS,
    FIGURE_STEP,
    FIGURE_EPOCH,
    FIGURE_PARAMS,
    FIGURE_TENSOR,
    FIGURE_PARAMS_RANK,
    FIGURE_WORK,
    FIGURE_COST_TOKENS,
    FIGURE_COST,
    FIGURE_ENERGY,
    FIGURE_TOKENS_JOULE,
    FIGURES
} FigureId;
extern const Figure figures[FIGURES];

#define MAX_LOSS 1e12 /* larger values mean a damaged file */
/* Writes which values of a summary are ignored because they are not numbers or implausible; empty: none. */
void summary_faults(const RunSummary *summary, char *note, size_t size);

/* The baseline: the first run that finished and had its cores to itself (run_contended in report/spread.h),
 * else the first that finished, else the first that started and has not failed, else the first. */
const Run *results_base(const Results *results);
/* The baseline among the runs of the same kind (same_kind in report/comparable.h). */
const Run *run_base(const Results *results, const Run *run);
double run_figure(const Run *run, size_t figure); /* NAN: unknown; times and rates: mean over the repeats */
double run_single_figure(const Run *run, size_t figure); /* without its repeats */
bool figure_is_timed(size_t figure);
/* Whether a figure describes the trained model, so that it compares only runs of the same task. */
bool figure_is_quality(size_t figure);
/* Whether the run has any figure. The figures of an unfinished run are partial and are not compared. */
bool run_shows(const Run *run);
/* The difference from the run's baseline in percent; NAN if it is the baseline or the values are not
 * comparable, for example because one of the runs has not finished or, for times, had CPU contention. Figures
 * that are neither better nor worse have no difference. */
double run_difference(const Results *results, const Run *run, size_t figure);
/* Whether any run has this figure, or a study reported it. */
bool results_have(const Results *results, size_t figure);
/* The columns of a table of epochs, in order: the same keys and units as figures. */
typedef struct EpochColumn {
    const char *key, *heading;
    FigureFormat unit;
} EpochColumn;
extern const EpochColumn epoch_columns[EPOCH_COLUMNS];
double epoch_value(const RunEpoch *epoch, size_t column);
/* Whether any epoch of any run has a value in the column. */
bool results_have_epochs(const Results *results, size_t column);
/* Formats a value into a buffer of FORMAT_SIZE bytes and returns it; "-" if not finite. */
const char *figure_text(char *buffer, FigureFormat unit, double value);
/* A time in three digits: "2.39 s", "812 ms", "4.1 µs", "0". */
const char *time_text(char *buffer, double seconds);
/* A difference: "▲ 12.5%", from 1000% a factor: "× 14.2"; without UTF-8 "+12.5%" and "x 14.2". Empty if not
 * finite. */
const char *percent_text(char *buffer, double percent, bool utf8);
/* A run's figure; the noise scale with its standard error. `utf8`: with a plus-minus sign. */
const char *run_figure_text(char *buffer, const Run *run, size_t figure, bool utf8);

/* Where a value comes from. Published figures are those of a study; predictions are for a cluster, and for
 * the program that its file describes; WEFT is the prediction for weft next to one for another program. */
typedef enum { SOURCE_PUBLISHED, SOURCE_PREDICTED, SOURCE_WEFT, SOURCE_MEASURED, SOURCES } FigureSource;
const char *source_name(FigureSource source);
double run_source_figure(const Run *run, FigureSource source, size_t figure); /* NAN: unknown */
/* Whether the run has any figure from this source. */
bool run_has_source(const Run *run, FigureSource source);
/* The difference from the published figure in percent; NAN if either is unknown. */
double run_from_published(const Run *run, FigureSource source, size_t figure);
/* Whether published figures are shown next to those of the runs. */
bool results_published(const Results *results);
/* The program whose figures are predicted, if it is not weft; else NULL. */
const char *run_program(const Run *run);
/* "152 ± 21", or without a finite error "152". */
const char *noise_text(char *buffer, double scale, double error, bool utf8);

#endif
