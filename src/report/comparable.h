/* Which runs can be compared, and by what: layout descriptions, runs that differ in a single setting,
 * agreement of loss curves, and scaling efficiency. */
#ifndef WEFT_REPORT_COMPARABLE_H
#define WEFT_REPORT_COMPARABLE_H

#include "report/results.h"

/* Properties of a run, read from its summary; NAN if unknown. */
double run_ranks(const Run *run);
double run_batch(const Run *run);
double run_params(const Run *run);
double run_threads(const Run *run); /* threads per rank */
/* A string in the run's layout, such as "precision"; NULL if unknown. */
const char *run_text(const Run *run, const char *key);

/* Writes a short description such as "dp 2 x pp 2, ZeRO 3" into a buffer of LAYOUT_SIZE bytes and returns it;
 * an empty string if the layout is unknown. */
enum { LAYOUT_SIZE = 160 };
const char *run_layout(const Run *run, char *buffer);

/* How the run divides its work, without numbers of ranks: "data parallel", "ZeRO 3 x tensor x pipeline". */
const char *run_strategy(const Run *run, char *buffer);

/* Whether two runs have the same model, layout and hardware and may differ only in batch size. */
bool same_except_batch(const Run *a, const Run *b);
/* Whether model, data, batch size, precision, seed and hyperparameters match, so that the loss curves should
 * agree. Settings that are unknown are assumed equal. */
bool same_training(const Run *a, const Run *b);

/* A property of a run, such as run_batch or run_ranks. */
typedef double (*RunNumber)(const Run *run);
/* Whether any two runs are known to differ in this property. */
bool results_differ(const Results *results, RunNumber number);
/* The layout string that all runs share; NULL if they differ or no run has it. Runs without it are
 * ignored. */
const char *results_share(const Results *results, const char *key);

/* Whether the run is finished and has readable losses. */
bool has_losses(const Run *run);
/* Whether two runs have the same task and sequence length. Unknown ones are assumed equal. */
bool same_sequences(const Run *a, const Run *b);
/* Whether two runs have models with the same number of parameters. Unknown ones are assumed equal. */
bool same_size(const Run *a, const Run *b);
/* Whether percentages between two runs mean anything: they also have models of the same size. */
bool same_kind(const Run *a, const Run *b);
/* The number of runs of the same kind that have figures, this one included. */
size_t kind_size(const Results *results, const Run *run);
/* Whether two runs train on the same task, so that their losses are comparable; true if either is unknown. */
bool same_task(const Run *a, const Run *b);
/* Whether all finished runs have the same task as the baseline. */
bool one_task(const Results *results);
/* The largest relative difference at any step between two finished runs with same_training; NAN if no two
 * runs can be compared. *ret_all: all runs with losses have the same training. */
double max_loss_difference(const Results *results, bool *ret_all);
/* The largest relative difference at a step that both curves have; NAN if they have no step in common. */
double curve_difference(const Curve *a, const Curve *b);
/* A small relative difference as "1.6e-8". Writes into a buffer of FORMAT_SIZE bytes and returns it. */
const char *difference_text(char *buffer, double difference);
/* The value at exactly this step; NAN if the curve has none. Steps must be in ascending order. */
double curve_at(const Curve *curve, double step);

/* Throughput per rank as a fraction of that of *ret_base: the run of the same job with the fewest ranks, at
 * the same total batch size or, failing that, at the same batch size per rank. NAN, with *ret_base untouched,
 * if no comparable run has a different number of ranks. */
double scaling_efficiency(const Results *results, const Run *run, const Run **ret_base);

/* ---- the best runs ---- */

/* Whether a run may be called the best or the worst in a figure: it has finished and, if the figure is timed,
 * had its cores to itself and, if there are others, has an interval. */
bool run_ranked(const Run *run, FigureId figure);
/* The finished run with the highest (sign 1) or lowest (sign -1) value of a figure; NULL if no finished run
 * has one. Runs that are not ranked in the figure do not count. `like`: of the runs with a model of its size;
 * NULL: of all. */
const Run *results_best(const Results *results, const Run *like, FigureId figure, int sign);
/* The fastest of the other ranked runs with a model of the winner's size; NULL: there is none. */
const Run *results_runner_up(const Results *results, const Run *winner);

#endif
