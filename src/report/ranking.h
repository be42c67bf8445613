/* The best runs of a comparison; see ranking.c. */
#ifndef WEFT_REPORT_RANKING_H
#define WEFT_REPORT_RANKING_H

#include "report/results.h"

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
