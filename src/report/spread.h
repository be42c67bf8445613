/* How far a figure can be trusted: its spread over repeats or within the run, and whether other processes or
 * the hypervisor took the cores while it was measured.
 *
 * A spread is half the width of the 95% confidence interval of the mean. It comes from the repeats of a run,
 * else from the variation between parts of the run. Two runs tie in a figure if they differ by less than
 * their spreads combined. A run with contention is neither ranked nor a baseline. */
#ifndef WEFT_REPORT_SPREAD_H
#define WEFT_REPORT_SPREAD_H

#include "base/load.h"
#include "report/results.h"

/* The share of the cores that a run wanted but did not get; NAN: unknown. Of the repeats that count
 * (see run_counted), the largest. */
double run_contention(const Run *run);
/* Whether that was enough to distort its times; false if it is unknown. */
bool run_contended(const Run *run);
/* Why its figures are to be read with care: it has not finished, or others used its cores or GPUs; else NULL.
 */
const char *run_remark(const Run *run);
/* How many of the repeats that count have an unknown load: the run was too short to measure it, or the system
 * does not report it. */
size_t run_load_unknown(const Run *run);
/* What others took while the run was measured. False: unknown. */
bool run_load(const Run *run, Load *ret_load);
/* What runs with contention lacked, "cores" or "GPUs", and what took it: "other processes", "the hypervisor"
 * or both, or "other ranks". `dropped`: of the repeats that do not count. */
typedef struct Taken {
    const char *what, *takers;
} Taken;
Taken results_taken(const Results *results, bool dropped);

/* The number of finished repeats, the run itself included, and how many of them figures are the mean of:
 * all without those that had contention, if others are known to have had none. */
size_t run_finished(const Run *run);
size_t run_counted(const Run *run);
/* The first of the repeats that count; the run itself if none has finished. */
const Run *run_shown(const Run *run);
/* The mean over the repeats that count; NAN: unknown. */
double run_mean(const Run *run, size_t figure, double (*value)(const Run *run, size_t figure));

/* NAN: unknown, or the figure is not timed. */
double run_spread(const Run *run, size_t figure);
/* Whether any run has a spread. */
bool results_spread(const Results *results, size_t figure);
/* Whether a figure has an interval, or needs none because it is predicted or not timed. Without one, nothing
 * is said to be better or worse. */
bool figure_is_settled(const Run *run, size_t figure);
bool figures_settled(const Run *a, const Run *b, size_t figure);
/* Whether the runs' values differ by less than their spreads; false if one is unknown. */
bool figures_tie(const Run *a, const Run *b, size_t figure);
/* A spread relative to its value, "±2.1%" or without UTF-8 "+-2.1%"; empty if unknown or zero. Writes into a
 * buffer of FORMAT_SIZE bytes. */
const char *spread_text(char *buffer, const Run *run, size_t figure, bool utf8);

/* What the figures rest on: repeats, warm-up steps, spread. Empty if no run was measured; the caller frees
 * it. */
MUST_USE Status spread_note(const Results *results, char **ret_text);

#endif
