/* Which runs may be called the best. */
#include "report/ranking.h"

#include <math.h>

#include "report/comparable.h"
#include "report/spread.h"

/* Whether another run has finished and has the figure. */
static bool has_rival(const Run *run, FigureId figure) {
    const Results *results = run->of;
    for (size_t i = 0; i < results->count; i++) {
        const Run *other = &results->runs[i];
        if (other != run && other->state == RUN_FINISHED && isfinite(run_figure(other, figure))) return true;
    }
    return false;
}

bool run_ranked(const Run *run, FigureId figure) {
    if (run->state != RUN_FINISHED || !isfinite(run_figure(run, figure))) return false;
    if (figure_is_timed(figure) && run_contended(run)) return false;
    return figure_is_settled(run, figure) || !has_rival(run, figure);
}

const Run *results_best(const Results *results, const Run *like, FigureId figure, int sign) {
    const Run *best = NULL;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        double value = run_figure(run, figure);
        if (!run_ranked(run, figure) || (like && !same_size(run, like))) continue;
        if (!best || sign * value > sign * run_figure(best, figure)) best = run;
    }
    return best;
}

const Run *results_runner_up(const Results *results, const Run *winner) {
    const Run *best = NULL;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (run == winner || !same_size(run, winner) || !run_ranked(run, FIGURE_TOKENS)) continue;
        if (!best || run_figure(run, FIGURE_TOKENS) > run_figure(best, FIGURE_TOKENS)) best = run;
    }
    return best;
}
