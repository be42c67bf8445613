/* Which runs can be held against each other, and in what: layouts in words, runs that differ in one thing
 * alone, and how far loss curves lie apart. */
#ifndef WEFT_REPORT_COMPARABLE_H
#define WEFT_REPORT_COMPARABLE_H

#include "report/results.h"

/* What a run was, by its summary; NAN: not known. */
double run_ranks(const Run *run);
double run_batch(const Run *run);
double run_params(const Run *run);
double run_threads(const Run *run); /* of each rank */
/* A text of its layout, such as "precision"; NULL: not known. */
const char *run_text(const Run *run, const char *key);

/* "dp 2 x pp 2, ZeRO 3". Into the buffer; empty where it is not known. */
enum { LAYOUT_SIZE = 160 };
const char *run_layout(const Run *run, char *buffer);

/* Whether runs do the same work in the same way, the batch apart. */
bool same_except_batch(const Run *a, const Run *b);
/* Whether they learn the same from the same: model, data, batch, precision and what else steers learning are
 * the same, so that their loss curves should be. */
bool same_training(const Run *a, const Run *b);

/* A number of each run: run_batch, run_ranks ... Whether two runs are known to differ in it. */
typedef double (*RunNumber)(const Run *run);
bool results_differ(const Results *results, RunNumber number);
/* The value that all runs which know it share; NULL where there is none, or several. */
const char *results_share(const Results *results, const char *key);

/* Whether the run is finished and its losses can be read. */
bool has_losses(const Run *run);
/* Whether losses are of the same kind, by what the runs were asked to learn; true where one does not say. */
bool same_task(const Run *a, const Run *b);
/* Whether those of all runs that finished are. */
bool one_task(const Results *results);
/* The largest relative difference at a step of two loss curves that should be the same; NAN where no two
 * runs that finished can be compared. *ret_all: all runs with has_losses are among them. */
double losses_apart(const Results *results, bool *ret_all);
/* The value at a step; NAN where the curve has none. Steps rise. */
double curve_at(const Curve *curve, double step);

/* Throughput a rank, as a part of that of the run of the same model on the same kind of machine that has the
 * fewest ranks, with the same batch or, where there is none, with the same batch a rank; NAN where all of
 * those have as many ranks. *ret_base: that run. */
double scaling_efficiency(const Results *results, const Run *run, const Run **ret_base);

#endif
