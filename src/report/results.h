/* What runs came to, side by side: read from their directories, kept in results.json and results.csv. One of
 * them is the baseline, which the others are held against. */
#ifndef WEFT_REPORT_RESULTS_H
#define WEFT_REPORT_RESULTS_H

#include "base/json.h"

typedef enum { RUN_WAITING, RUN_RUNNING, RUN_FINISHED, RUN_INTERRUPTED, RUN_FAILED } RunState;

/* A number by step; of a cut or damaged file what can be read. */
typedef struct Curve {
    double *step, *value;
    size_t count, step_capacity, value_capacity;
} Curve;

MUST_USE Status curve_add(Curve *curve, double step, double value);
void curve_done(Curve *curve);

typedef struct Results Results;

typedef struct Run {
    const Results *of; /* among which is the baseline; they stay where they are */
    char *name, *dir;
    RunState state;
    bool known;       /* begun before, by results.json or its own config.json */
    char *error;      /* failed: the sentence that says why; otherwise what is amiss, or NULL */
    json_t *options;  /* by which it differs from the others, or NULL */
    json_t *settings; /* all of its options, or NULL */
    json_t *summary;  /* as the run wrote it or, before that, by its metrics; or NULL */
    Curve loss, val_loss;
} Run;

struct Results {
    char *title, *about, *scale; /* about, scale: NULL where there is none */
    Run *runs;
    size_t count, capacity;
    json_t *others; /* what results.json says of runs that are not among these, kept there; or NULL */
};

void results_done(Results *results);
/* Appends a run that waits. *ret_run is valid until the next. */
MUST_USE Status results_add(Results *results, const char *name, const char *dir, Run **ret_run);

/* Before a run starts or goes on: its state waits to be seen. A prediction goes. */
MUST_USE Status run_renew(Run *run);
/* Reads what lies in the run's directory by now: summary, metrics, settings where there are none yet. Sets
 * running, finished or interrupted, unless it failed. Damaged files, and numbers that cannot be, are told in
 * `error`. */
MUST_USE Status run_look(Run *run);
/* Its trace.json; NULL where there is none. What is wrong with it is told by run_look. */
MUST_USE Status run_trace(const Run *run, json_t **ret_trace);
const char *run_state_name(RunState state);
/* Whether it failed for want of memory. */
bool run_lacks_memory(const Run *run);
/* Whether it was ended by force, which the system does when memory runs out, but others may do as well. */
bool run_killed(const Run *run);
/* The state's name, or what it failed for where that is one of the above. */
const char *run_outcome(const Run *run);
/* The machine that a run was simulated on; NULL: it really ran. */
const char *run_predicted(const Run *run);

/* results.json and results.csv in a directory. */
MUST_USE Status results_write(const Results *results, const char *dir);
/* What results.json says of runs by these names: state and error. A run whose settings have changed since is
 * refused. Fine where there is no file; *ret_damage says why one cannot be read, NULL: it was. To free. */
MUST_USE Status results_recall(Results *results, const char *dir, char **ret_damage);
/* Takes what lies in the directory of a run that results.json does not know for the run, by its config.json;
 * refused where that had other settings. */
MUST_USE Status run_recognize(Run *run);
/* All of results.json and of the runs it names, to show again. */
MUST_USE Status results_read(Results *results, const char *dir);
MUST_USE Status results_json(const Results *results, json_t **ret_json);

/* ---- the figures that are compared ---- */

typedef enum {
    FIGURE_FORMAT_SECONDS,
    FIGURE_FORMAT_RATE,
    FIGURE_FORMAT_LOSS,
    FIGURE_FORMAT_SHARE,
    FIGURE_FORMAT_BYTES,
    FIGURE_FORMAT_NUMBER
} FigureFormat;

typedef struct Figure {
    const char *key;     /* in results.json */
    const char *heading; /* of its column */
    FigureFormat unit;
    int better; /* 1: more is better, -1: less is, 0: neither */
} Figure;

/* In the order of the columns. */
typedef enum {
    FIGURE_RUNTIME,
    FIGURE_SAMPLES,
    FIGURE_TOKENS,
    FIGURE_LOSS,
    FIGURE_VAL_LOSS,
    FIGURE_BUSY,
    FIGURE_PEAK,
    FIGURE_BUBBLE,
    FIGURE_SENT,
    FIGURE_MFU,
    FIGURE_EFFICIENCY,
    FIGURE_GOODPUT,
    FIGURES
} FigureId;
extern const Figure figures[FIGURES];

/* The run that the others are held against: the first that finished; before that, the first that has begun
 * and not failed. */
const Run *results_base(const Results *results);
double run_figure(const Run *run, size_t figure); /* NAN: not known */
/* Whether it has any figure. Those of a run that is not finished are of a part of it, and are not compared.
 */
bool run_shows(const Run *run);
/* By how many percent a run's figure is above the baseline's; NAN where that says nothing, as it does of runs
 * that are not finished. */
double run_difference(const Results *results, const Run *run, size_t figure);
/* Whether any run has it. */
bool results_have(const Results *results, size_t figure);
/* For a person. Into a buffer of FORMAT_SIZE. */
const char *figure_text(char *buffer, FigureFormat unit, double value);

#endif
