#include "report/spread.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "report/text.h"

#define SINGLE_SPREAD                                                                                        \
    0.01 /* at least, for a run without repeats: what an idle machine's repeats differ by                    \
          */
enum { MAX_BLOCKS = 10, MIN_BLOCKS = 3 };

/* ---- repeats and contention ---- */

/* Repeat 0 is the run itself. */
static const Run *repeat_of(const Run *run, size_t at) {
    return at ? &run->repeats[at - 1] : run;
}

static bool is_disturbed(const Run *run) {
    return load_is_disturbed(run->summary.load);
}

static bool is_clean(const Run *run) {
    return load_is_clean(run->summary.load);
}

static bool has_clean(const Run *run) {
    for (size_t i = 0; i <= run->repeat_count; i++)
        if (repeat_of(run, i)->state == RUN_FINISHED && is_clean(repeat_of(run, i))) return true;
    return false;
}

/* Repeats whose load is unknown are mostly the shortest: if they replaced the disturbed ones, the mean would
 * be that of the fastest. So disturbed repeats are left out only if others are known to be undisturbed. */
static bool counts(const Run *run, size_t at) {
    const Run *repeat = repeat_of(run, at);
    return repeat->state == RUN_FINISHED && (!is_disturbed(repeat) || !has_clean(run));
}

size_t run_load_unknown(const Run *run) {
    size_t count = 0;
    for (size_t i = 0; i <= run->repeat_count; i++)
        count += counts(run, i) && !is_disturbed(repeat_of(run, i)) && !is_clean(repeat_of(run, i));
    return count;
}

size_t run_finished(const Run *run) {
    size_t count = 0;
    for (size_t i = 0; i <= run->repeat_count; i++) count += repeat_of(run, i)->state == RUN_FINISHED;
    return count;
}

size_t run_counted(const Run *run) {
    size_t count = 0;
    for (size_t i = 0; i <= run->repeat_count; i++) count += counts(run, i);
    return count;
}

const Run *run_shown(const Run *run) {
    for (size_t i = 0; i <= run->repeat_count; i++)
        if (counts(run, i)) return repeat_of(run, i);
    return run;
}

static double contention_of(const Run *run) {
    return json_number_or(run->summary.load, "contention", NAN);
}

double run_contention(const Run *run) {
    double most = NAN;
    for (size_t i = 0; i <= run->repeat_count; i++)
        if (counts(run, i)) most = fmax(most, contention_of(repeat_of(run, i)));
    return run->state == RUN_FINISHED ? most : contention_of(run);
}

bool run_contended(const Run *run) {
    if (run->state != RUN_FINISHED) return is_disturbed(run);
    for (size_t i = 0; i <= run->repeat_count; i++)
        if (counts(run, i) && is_disturbed(repeat_of(run, i))) return true;
    return false;
}

const char *run_remark(const Run *run) {
    if (run->state != RUN_FINISHED) return run_outcome(run);
    return run_contended(run) ? load_remark(run_shown(run)->summary.load) : NULL;
}

/* ---- what took the cores or GPUs ---- */

bool run_load(const Run *run, Load *ret_load) {
    *ret_load = load_read(run_shown(run)->summary.load);
    return ret_load->cores >= 1 || ret_load->gpu_ranks >= 1;
}

Taken results_taken(const Results *results, bool dropped) {
    bool processes = false, hypervisor = false, ranks = false;
    for (size_t i = 0; i < results->count; i++)
        for (size_t r = 0; r <= results->runs[i].repeat_count; r++) {
            const Run *run = &results->runs[i], *repeat = repeat_of(run, r);
            if (repeat->state != RUN_FINISHED || !is_disturbed(repeat) || counts(run, r) == dropped) continue;
            Load load = load_read(repeat->summary.load);
            processes |= load_has_processes(&load);
            hypervisor |= load_has_hypervisor(&load);
            ranks |= load.gpu_ranks > 0;
        }
    return ranks         ? (Taken){"GPUs", "other ranks"}
           : !hypervisor ? (Taken){"cores", "other processes"}
           : processes   ? (Taken){"cores", "other processes and the hypervisor"}
                         : (Taken){"cores", "the hypervisor"};
}

/* ---- spread ---- */

/* The quantile of the t distribution for a two-sided 95% interval; above 10 degrees of freedom within 0.01.
 */
static double t_quantile(size_t freedom) {
    static const double known[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228};
    enum { KNOWN = sizeof known / sizeof *known };
    return freedom <= KNOWN ? known[freedom - 1] : 1.96 + 2.65 / (double)freedom;
}

/* Sums over values. */
typedef struct Sample {
    double sum, squares;
    size_t count;
} Sample;

static void sample_add(Sample *sample, double value) {
    sample->sum += value;
    sample->squares += value * value;
    sample->count++;
}

static double sample_mean(const Sample *sample) {
    return sample->count ? sample->sum / (double)sample->count : NAN;
}

/* Half the width of the mean's confidence interval. */
static double sample_spread(const Sample *sample) {
    double n = (double)sample->count, mean = sample_mean(sample);
    if (sample->count < 2) return NAN;
    double variance = fmax(sample->squares - n * mean * mean, 0) / (n - 1);
    return t_quantile(sample->count - 1) * sqrt(variance / n);
}

/* The values of the repeats that count. */
static Sample sample_of(const Run *run, size_t figure, double (*value)(const Run *run, size_t figure)) {
    Sample sample = {0};
    for (size_t i = 0; i <= run->repeat_count; i++) {
        double own = counts(run, i) ? value(repeat_of(run, i), figure) : NAN;
        if (isfinite(own)) sample_add(&sample, own);
    }
    return sample;
}

double run_mean(const Run *run, size_t figure, double (*value)(const Run *run, size_t figure)) {
    Sample sample = sample_of(run, figure, value);
    return sample_mean(&sample);
}

/* The relative spread of the mean of a curve, from the means of consecutive blocks of steps; neighboring
 * steps are disturbed alike, so single steps are not independent. */
static double block_spread(const Curve *curve, double excluded) {
    size_t first = 0;
    while (first < curve->count && curve->step[first] <= excluded) first++;
    size_t count = curve->count - first, blocks = count / 2 < MAX_BLOCKS ? count / 2 : MAX_BLOCKS;
    Sample means = {0};
    if (blocks < MIN_BLOCKS) return NAN;
    for (size_t b = 0; b < blocks; b++) {
        Sample block = {0};
        for (size_t i = first + b * count / blocks; i < first + (b + 1) * count / blocks; i++)
            sample_add(&block, curve->value[i]);
        sample_add(&means, sample_mean(&block));
    }
    return sample_spread(&means) / fabs(sample_mean(&means));
}

/* Of a run without repeats. */
static double spread_within(const Run *run, size_t figure) {
    double excluded = isfinite(run->summary.steps_excluded) ? run->summary.steps_excluded : 0;
    double pace = block_spread(&run->step_ms, excluded), value = run_figure(run, figure);
    if (run_predicted(run)) return NAN;
    switch (figure) {
    case FIGURE_BUSY: return value * block_spread(&run->busy, excluded);
    case FIGURE_BUBBLE:
    case FIGURE_ENERGY:
    case FIGURE_TOKENS_JOULE: return NAN;
    case FIGURE_RUNTIME:
    case FIGURE_COST: /* only the steps are known to vary */
        return value * pace * 1e-3 * run->summary.step_ms * run->summary.steps_measured /
               run->summary.runtime_s;
    default: return pace * value;
    }
}

double run_spread(const Run *run, size_t figure) {
    if (!figure_is_timed(figure)) return NAN;
    if (!run->repeat_count || run_counted(run) < 2) return spread_within(run_shown(run), figure);
    Sample sample = sample_of(run, figure, run_single_figure);
    return sample_spread(&sample);
}

bool results_spread(const Results *results, size_t figure) {
    for (size_t i = 0; i < results->count; i++)
        if (isfinite(run_spread(&results->runs[i], figure))) return true;
    return false;
}

bool figure_is_settled(const Run *run, size_t figure) {
    return !figure_is_timed(figure) || run_predicted(run) || isfinite(run_spread(run, figure));
}

bool figures_settled(const Run *a, const Run *b, size_t figure) {
    return figure_is_settled(a, figure) && figure_is_settled(b, figure);
}

static double spread_or_zero(const Run *run, size_t figure) {
    double spread = run_spread(run, figure);
    return isfinite(spread) ? spread : 0;
}

bool figures_tie(const Run *a, const Run *b, size_t figure) {
    double one = run_figure(a, figure), two = run_figure(b, figure);
    bool predicted = run_predicted(a) && run_predicted(b);
    if (!isfinite(one) || !isfinite(two)) return false;
    if (!figure_is_timed(figure) || predicted) return one == two;
    double margin = hypot(spread_or_zero(a, figure), spread_or_zero(b, figure));
    if (run_counted(a) < 2 || run_counted(b) < 2)
        margin = fmax(margin, SINGLE_SPREAD * fmin(fabs(one), fabs(two)));
    return fabs(one - two) <= margin;
}

const char *spread_text(char *buffer, const Run *run, size_t figure, bool utf8) {
    double percent = 100 * run_spread(run, figure) / fabs(run_figure(run, figure));
    const char *sign = utf8 ? "±" : "+-";
    buffer[0] = 0;
    if (isfinite(percent) && percent > 0)
        snprintf(buffer, FORMAT_SIZE, "%s%.*f%%", sign, percent < 9.95, percent);
    return buffer;
}

/* ---- the note ---- */

/* The smallest and largest of a count over the measured runs. */
typedef struct Span {
    double least, most;
} Span;

static void span_add(Span *span, double value) {
    span->least = fmin(span->least, value);
    span->most = fmax(span->most, value);
}

static bool is_measured(const Run *run) {
    return run->state == RUN_FINISHED && !run_predicted(run);
}

/* "3 repeats", "1 to 3 repeats" without the noun. */
static void put_span(FILE *out, const Span *span) {
    if (span->least < span->most) fprintf(out, "%.0f to ", span->least);
    fprintf(out, "%.0f", span->most);
}

/* `all`: finished repeats of all runs, `dropped`: how many of them do not count, because of `takers`. */
static void put_repeats(FILE *out, const Span *repeats, const Span *counted, size_t all, size_t dropped,
                        Taken taken) {
    if (!(repeats->most > 1)) return;
    fputs("Times are means of ", out);
    put_span(out, repeats);
    fputs(" interleaved repeats. ", out);
    if (!dropped) return;
    fprintf(out, "%zu of %zu %s left out because %s took the %s; ", dropped, all, dropped == 1 ? "is" : "are",
            taken.takers, taken.what);
    put_span(out, counted);
    fprintf(out, " per run remain%s. ", counted->most == 1 ? "s" : "");
}

/* `count` of `all` repeats that count. */
static void put_unknown_load(FILE *out, size_t count, size_t all, bool repeated) {
    if (!count) return;
    fputs("Load unknown", out);
    if (all > 1 && count == all)
        fprintf(out, " for all %s", repeated ? "repeats" : "runs");
    else if (all > 1)
        fprintf(out, " for %zu of %zu %s", count, all, repeated ? "repeats" : "runs");
    fputs(": too short to tell whether the cores were free, or not recorded.", out);
}

static void put_note(FILE *out, const Results *results) {
    Span repeats = {INFINITY, 0}, counted = {INFINITY, 0}, excluded = {INFINITY, 0};
    size_t all = 0, dropped = 0, loadless = 0;
    bool any = false, spread = false, unknown = false;
    results_foreach(results, run) {
        if (!is_measured(run)) continue;
        any = true;
        bool known = isfinite(run_spread(run, FIGURE_TOKENS)) || isfinite(run_spread(run, FIGURE_SAMPLES));
        spread |= known;
        unknown |= !known;
        all += run_finished(run);
        dropped += run_finished(run) - run_counted(run);
        loadless += run_load_unknown(run);
        span_add(&counted, (double)run_counted(run));
        span_add(&repeats, (double)run_finished(run));
        if (isfinite(run->summary.steps_excluded)) span_add(&excluded, run->summary.steps_excluded);
    }
    if (!any) return;
    put_repeats(out, &repeats, &counted, all, dropped, results_taken(results, true));
    if (excluded.most > 0)
        fprintf(out, "Rates leave out the first %.0f steps%s, which warm up. ", excluded.most,
                excluded.least < excluded.most ? " of longer runs" : "");
    if (spread)
        fprintf(out, "± is the 95%% confidence interval of the mean, %s. ",
                counted.least > 1   ? "over the repeats"
                : repeats.most == 1 ? "from the variation within each run; repeats would show more"
                : counted.most == 1 ? "from the variation within each run"
                                    : "over the repeats or, for runs with only one, within the run");
    if (unknown && results->count > 1)
        fputs("Rates without ± come from too few steps for a confidence interval; differences in parentheses "
              "may be "
              "noise. ",
              out);
    put_unknown_load(out, loadless, all - dropped, repeats.most > 1);
}

Status spread_note(const Results *results, char **ret_text) {
    CLEANUP(text_done) Text text = {0};
    TRY(text_open(&text));
    put_note(text.out, results);
    return text_take(&text, ret_text, NULL);
}
