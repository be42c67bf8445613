/* The winner is the finished run with the most tokens a second. Why is read from the phases: a sample takes
 * some time of all ranks together, and what the other run spends more of it on is what the winner saves. */
#include "report/summary.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "report/comparable.h"

#define LITTLE 0.01

static const struct {
    const char *key, *name, *doing;
    int color;
} phases[PHASES] = {
    {"compute_s", "computing", "computing", 0},
    {"optimizer_s", "updating weights", "updating weights", 3},
    {"data_s", "reading data", "reading data", 2},
    {"wait_data_s", "waiting for replicas", "waiting for the other replicas", 4},
    {"wait_tensor_s", "waiting for tensor ranks", "waiting for the other tensor ranks", 6},
    {"wait_pipeline_s", "waiting for stages", "waiting for other pipeline stages", 5},
    {"other_s", "other", "other things", 7},
};

const char *phase_name(Phase phase) {
    return phases[phase].name;
}

int phase_color(Phase phase) {
    return phases[phase].color;
}

/* Adds the seconds of an object of phases. */
static void add_phases(const json_t *seconds_of, double sum[PHASES]) {
    for (int p = 0; p < PHASES; p++) {
        double seconds = json_number_value(json_object_get(seconds_of, phases[p].key));
        if (isfinite(seconds) && seconds > 0) sum[p] += seconds;
    }
}

static bool shares_of(const double *sum, double ret_share[PHASES]) {
    double total = 0;
    for (int p = 0; p < PHASES; p++) total += sum[p];
    for (int p = 0; p < PHASES && total > 0; p++) ret_share[p] = sum[p] / total;
    return total > 0;
}

bool run_phases(const Run *run, double ret_share[PHASES]) {
    const json_t *rank;
    double sum[PHASES] = {0};
    size_t i;
    json_array_foreach(json_object_get(run->summary, "ranks"), i, rank)
        add_phases(json_object_get(rank, "phases"), sum);
    return shares_of(sum, ret_share);
}

const char *spent_name(Spent part) {
    static const char *const names[] = {"training", "evaluating", "saving checkpoints", "setting up"};
    return names[part];
}

bool run_spent(const Run *run, double ret_share[SPENT_PARTS]) {
    static const char *const keys[] = {"eval_s", "checkpoint_s", "setup_s"};
    const json_t *times = json_object_get(run->summary, "phases");
    double sum[PHASES] = {0}, total = 0;
    add_phases(times, sum);
    ret_share[SPENT_STEPS] = json_number_value(json_object_get(times, "comm_s")) +
                             json_number_value(json_object_get(times, "bubble_s"));
    for (int p = 0; p < PHASES; p++) ret_share[SPENT_STEPS] += sum[p];
    for (int i = 0; i < 3; i++)
        ret_share[SPENT_EVAL + i] = json_number_value(json_object_get(times, keys[i]));
    for (int i = 0; i < SPENT_PARTS; i++) total += ret_share[i];
    for (int i = 0; i < SPENT_PARTS && total > 0; i++) ret_share[i] /= total;
    return total > 0 && isfinite(total);
}

const Run *results_best(const Results *results, FigureId figure, int sign) {
    const Run *best = NULL;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        double value = run_figure(run, figure);
        if (run->state != RUN_FINISHED || !isfinite(value)) continue;
        if (!best || sign * value > sign * run_figure(best, figure)) best = run;
    }
    return best;
}

static const Run *runner_up(const Results *results, const Run *winner) {
    const Run *best = NULL;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (run == winner || run->state != RUN_FINISHED || !isfinite(run_figure(run, FIGURE_TOKENS)))
            continue;
        if (!best || run_figure(run, FIGURE_TOKENS) > run_figure(best, FIGURE_TOKENS)) best = run;
    }
    return best;
}

/* ---- who won ---- */

/* "1.8 times", "12 % more than" or "as many as"; less than a percent is what two runs of the same differ by.
 */
static void put_more(FILE *out, double ratio) {
    if (ratio < 1 + LITTLE)
        fputs("about as many as", out);
    else if (ratio >= 1.5)
        fprintf(out, "%.1f times", ratio);
    else
        fprintf(out, "%.1f %% more than", 100 * (ratio - 1));
}

/* Where others show a figure that are left out, since they are not finished. */
static const char *among(const Results *results, FigureId figure) {
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (run->state != RUN_FINISHED && isfinite(run_figure(run, figure)))
            return " of the runs that finished";
    }
    return "";
}

/* Returns the run that the winner was held against, where it is ahead: the baseline or, where that has won,
 * the next. */
static const Run *put_winner(FILE *out, const Results *results, const Run *winner) {
    char rate[FORMAT_SIZE];
    const Run *base = results_base(results), *other = runner_up(results, winner);
    double own = run_figure(winner, FIGURE_TOKENS);
    if (!other) {
        fprintf(out, "“%s” is the only run that finished: %s tokens/s.", winner->name,
                format_count(rate, own));
        return NULL;
    }
    bool over_base = winner != base && base->state == RUN_FINISHED && run_figure(base, FIGURE_TOKENS) > 0;
    if (over_base) other = base;
    bool guess = run_predicted(winner) && !run_predicted(other);
    fprintf(out, "“%s” is the fastest%s%s: %s tokens/s", winner->name, among(results, FIGURE_TOKENS),
            guess ? ", by prediction" : "", format_count(rate, own));
    if (!(run_figure(other, FIGURE_TOKENS) > 0)) {
        fputs(".", out);
        return NULL;
    }
    fputs(", ", out);
    put_more(out, own / run_figure(other, FIGURE_TOKENS));
    fprintf(out, " the %s “%s”.", over_base ? "baseline" : "next,", other->name);
    return own < (1 + LITTLE) * run_figure(other, FIGURE_TOKENS) ? NULL : other;
}

/* ---- why ---- */

/* Rank-seconds that a sample takes in each phase; false where the run does not tell. */
static bool sample_costs(const Run *run, double ret_cost[PHASES], double *ret_total) {
    double share[PHASES], total = run_ranks(run) / run_figure(run, FIGURE_SAMPLES);
    if (!isfinite(total) || !(total > 0) || !run_phases(run, share)) return false;
    for (int p = 0; p < PHASES; p++) ret_cost[p] = share[p] * total;
    *ret_total = total;
    return true;
}

static const char *time_text(char *buffer, double seconds) {
    bool whole = seconds >= 1;
    snprintf(buffer, FORMAT_SIZE, "%.3g %s", whole ? seconds : 1e3 * seconds, whole ? "s" : "ms");
    return buffer;
}

static void put_ranks(FILE *out, const Run *winner, const Run *other) {
    double own = run_ranks(winner), others = run_ranks(other);
    if (own > others)
        fprintf(out, " It works with %.0f ranks where the other has %.0f.", own, others);
    else if (own < others)
        fprintf(out, " And that with %.0f rank%s where the other has %.0f.", own, own == 1 ? "" : "s",
                others);
}

/* A sample takes less of the ranks' time, mostly because of one phase. */
static void put_saving(FILE *out, const double *own, const double *other, double own_total,
                       double other_total) {
    char less[FORMAT_SIZE], more[FORMAT_SIZE], part_less[FORMAT_SIZE], part_more[FORMAT_SIZE];
    Phase most = PHASE_COMPUTE;
    for (int p = 0; p < PHASES; p++)
        if (other[p] - own[p] > other[most] - own[most]) most = (Phase)p;
    fprintf(out, " A sample takes %s of its ranks' time instead of %s", time_text(less, own_total),
            time_text(more, other_total));
    if (most == PHASE_REST)
        fputs(".", out);
    else
        fprintf(out, ", and most of the difference is in %s: %s instead of %s.", phases[most].doing,
                own[most] > 0 ? time_text(part_less, own[most]) : "none", time_text(part_more, other[most]));
}

/* The ranks are not better used, there are more of them. */
static void put_price(FILE *out, const Run *winner, const Run *other, const double *own,
                      const double *others) {
    Phase most = PHASE_COMPUTE;
    double own_total = 0, other_total = 0, threads = run_threads(winner), more = run_threads(other);
    for (int p = 0; p < PHASES; p++) {
        if (own[p] - others[p] > own[most] - others[most]) most = (Phase)p;
        own_total += own[p];
        other_total += others[p];
    }
    fprintf(out, " Each of them does %.0f %% of what one does there", 100 * other_total / own_total);
    if (threads < more)
        fprintf(out, ", with %.0f thread%s instead of %.0f", threads, threads == 1 ? "" : "s", more);
    else if (most != PHASE_COMPUTE && own[most] > others[most] && own_total > 1.01 * other_total)
        fprintf(out, ", mostly for %s: %.0f %% of the time instead of %.0f %%", phases[most].doing,
                100 * own[most] / own_total, 100 * others[most] / other_total);
    fputs(".", out);
}

/* Ranks that share cores compute the faster the more others wait. */
static bool crowded(const Run *run) {
    const json_t *layout = json_object_get(run->summary, "layout");
    const char *device = run_text(run, "device");
    double cores = json_number_value(json_object_get(layout, "cores"));
    return device && !strcmp(device, "cpu") && cores > 0 && run_ranks(run) * run_threads(run) > cores;
}

static void put_crowd(FILE *out, const Run *winner, const Run *other) {
    if (!crowded(winner) && !crowded(other)) return;
    fputs(" There are more ranks than cores, so that a rank computes faster while others wait.", out);
}

static void put_why(FILE *out, const Run *winner, const Run *other) {
    double own[PHASES], others[PHASES], own_total, other_total;
    put_ranks(out, winner, other);
    if (!sample_costs(winner, own, &own_total) || !sample_costs(other, others, &other_total)) return;
    if (own_total < other_total)
        put_saving(out, own, others, own_total, other_total);
    else if (run_ranks(winner) > run_ranks(other))
        put_price(out, winner, other, own, others);
    put_crowd(out, winner, other);
}

/* ---- a run alone ---- */

static void put_alone(FILE *out, const Run *run) {
    char rate[FORMAT_SIZE];
    double share[PHASES];
    fprintf(out, "“%s” made %s tokens/s", run->name, format_count(rate, run_figure(run, FIGURE_TOKENS)));
    if (run_figure(run, FIGURE_MFU) > 0)
        fprintf(out, ", %.1f %% of the machine's peak", 100 * run_figure(run, FIGURE_MFU));
    fputs(".", out);
    if (!run_phases(run, share)) return;
    Phase most = PHASE_OPTIMIZER;
    for (int p = PHASE_OPTIMIZER; p < PHASES; p++)
        if (share[p] > share[most]) most = (Phase)p;
    fprintf(out, " Of the time of its steps %.0f %% went into computing", 100 * share[PHASE_COMPUTE]);
    if (share[most] >= 0.005)
        fprintf(out, " and %.1f %%, the most of the rest, into %s", 100 * share[most], phases[most].doing);
    fputs(".", out);
}

/* ---- models of several sizes ---- */

static void find_sizes(const Results *results, double *ret_least, double *ret_most) {
    *ret_least = INFINITY;
    *ret_most = 0;
    for (size_t i = 0; i < results->count; i++) {
        double params = run_params(&results->runs[i]);
        if (results->runs[i].state != RUN_FINISHED || !isfinite(params)) continue;
        *ret_least = fmin(*ret_least, params);
        *ret_most = fmax(*ret_most, params);
    }
}

static bool sizes_differ(const Results *results) {
    double least, most;
    find_sizes(results, &least, &most);
    return least < most;
}

/* A token of a large model is more work, so what counts is how much of the machine the work makes use of. */
static void put_sizes(FILE *out, const Results *results) {
    const Run *best = results_best(results, FIGURE_MFU, 1), *worst = results_best(results, FIGURE_MFU, -1);
    char small[FORMAT_SIZE], large[FORMAT_SIZE];
    double least, most;
    find_sizes(results, &least, &most);
    fprintf(out,
            "The models have %s to %s parameters, so runs are held against each other by the part of the "
            "machine's peak that they make use of.",
            format_count(small, least), format_count(large, most));
    if (!best || best == worst) return;
    fprintf(out, " “%s” makes most of it, %.1f %%, and “%s” least, %.1f %%.", best->name,
            100 * run_figure(best, FIGURE_MFU), worst->name, 100 * run_figure(worst, FIGURE_MFU));
    double own[PHASES], others[PHASES];
    if (!run_phases(best, own) || !run_phases(worst, others)) return;
    fprintf(out, " The one computes %.0f %% of the time, the other %.0f %%", 100 * own[PHASE_COMPUTE],
            100 * others[PHASE_COMPUTE]);
    Phase wait = PHASE_WAIT_DATA;
    for (int p = PHASE_OPTIMIZER; p < PHASES; p++)
        if (others[p] > others[wait]) wait = (Phase)p;
    if (others[wait] >= 0.02) fprintf(out, ", with %.0f %% %s", 100 * others[wait], phases[wait].doing);
    fputs(".", out);
}

/* ---- the rest ---- */

/* Where batches differ, the fastest need not be the one that learns most. */
static void put_goodput(FILE *out, const Results *results, const Run *winner) {
    const Run *best = results_best(results, FIGURE_GOODPUT, 1);
    if (!best || best == winner || !results_differ(results, run_batch)) return;
    double own = run_figure(best, FIGURE_GOODPUT), other = run_figure(winner, FIGURE_GOODPUT);
    char rate[FORMAT_SIZE], less[FORMAT_SIZE];
    if (!(own > (1 + LITTLE) * other)) return;
    fprintf(out,
            " By what samples of a batch bring for learning “%s” is ahead: a goodput of %s instead of %s "
            "samples/s.",
            best->name, figure_text(rate, FIGURE_FORMAT_RATE, own),
            figure_text(less, FIGURE_FORMAT_RATE, other));
}

static double run_val_samples(const Run *run) {
    const json_t *samples = json_object_get(run->summary, "val_samples");
    return json_is_number(samples) ? json_number_value(samples) : NAN;
}

static void put_memory(FILE *out, const Results *results) {
    char bytes[FORMAT_SIZE];
    const Run *least = results_best(results, FIGURE_PEAK, -1), *most = results_best(results, FIGURE_PEAK, 1);
    if (!least || least == most) return;
    double low = run_figure(least, FIGURE_PEAK), high = run_figure(most, FIGURE_PEAK);
    if (high <= low) return;
    fprintf(
        out,
        " “%s” needs the least memory, %s a rank at most: %.0f %% less than “%s”, which needs the most%s.",
        least->name, format_bytes(bytes, low), 100 * (1 - low / high), most->name,
        among(results, FIGURE_PEAK));
}

/* "one part in 25 million" */
static void put_part(FILE *out, double apart) {
    char number[FORMAT_SIZE];
    double parts = 1 / apart;
    if (parts >= 1e6)
        snprintf(number, sizeof number, "%.3g million", 1e-6 * parts);
    else
        snprintf(number, sizeof number, "%.0f", parts);
    fprintf(out, "one part in %s", number);
}

/* Whose losses the agreement is of. */
static void put_learners(FILE *out, const Results *results, bool all) {
    size_t known = 0;
    for (size_t i = 0; i < results->count; i++) known += has_losses(&results->runs[i]);
    if (!all)
        fputs(" Runs with the same model, batch and precision", out);
    else if (known == results->count)
        fputs(" All runs", out);
    else
        fprintf(out, " The %zu finished runs whose losses are known", known);
}

/* Runs that finished and have lost, or never had, their losses. */
static void put_unknown(FILE *out, const Results *results) {
    size_t count = 0;
    const Run *example = NULL;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (run->state != RUN_FINISHED || run_predicted(run) || has_losses(run)) continue;
        if (!count++) example = run;
    }
    if (count == 1)
        fprintf(out, " How “%s” learned is not known: its metrics.jsonl has no losses.", example->name);
    else if (count)
        fprintf(out,
                " How %zu runs learned is not known, “%s” among them: their metrics.jsonl has no losses.",
                count, example->name);
}

static void put_loss(FILE *out, const Results *results) {
    bool all;
    double apart = losses_apart(results, &all);
    if (isfinite(apart) && apart < 1e-3) {
        put_learners(out, results, all);
        fputs(" learned the same: ", out);
        if (apart > 0) {
            fputs("at no step are two losses further apart than ", out);
            put_part(out, apart);
            fputs(".", out);
        } else {
            fputs("their losses are equal at every step.", out);
        }
        put_unknown(out, results);
        return;
    }
    const Run *least = results_best(results, FIGURE_VAL_LOSS, -1),
              *most = results_best(results, FIGURE_VAL_LOSS, 1);
    if (!least || least == most || results_differ(results, run_val_samples) || !one_task(results)) return;
    double low = run_figure(least, FIGURE_VAL_LOSS), high = run_figure(most, FIGURE_VAL_LOSS);
    if (high - low <= 1e-3 * fabs(high))
        fputs(" All that finished end at the same validation loss.", out);
    else
        fprintf(out, " The validation loss ends between %.4f (“%s”) and %.4f (“%s”).", low, least->name, high,
                most->name);
}

typedef enum { LACKED_MEMORY, WAS_KILLED, FAILED_TRAINING, NEVER_RAN, FAILURES } Failure;

/* One that has figures did run. */
static Failure failure_of(const Run *run) {
    return run_lacks_memory(run) ? LACKED_MEMORY
           : run_killed(run)     ? WAS_KILLED
           : run_shows(run)      ? FAILED_TRAINING
                                 : NEVER_RAN;
}

/* Those that failed in the same way together. */
static void put_failures(FILE *out, const Results *results) {
    static const char *const one[] = {"ran out of memory",
                                      "was killed (a lack of memory is one possible cause)",
                                      "failed while it trained", "could not run"};
    static const char *const several[] = {"ran out of memory",
                                          "were killed (a lack of memory is one possible cause)",
                                          "failed while they trained", "could not run"};
    for (int kind = 0; kind < FAILURES; kind++) {
        size_t count = 0;
        const Run *example = NULL;
        for (size_t i = 0; i < results->count; i++) {
            const Run *run = &results->runs[i];
            if (run->state == RUN_FAILED && (int)failure_of(run) == kind && !count++) example = run;
        }
        if (count == 1)
            fprintf(out, " “%s” %s.", example->name, one[kind]);
        else if (count)
            fprintf(out, " %zu runs %s, “%s” among them.", count, several[kind], example->name);
    }
}

static void put_rest(FILE *out, const Results *results) {
    size_t open = 0, under_way = 0, predicted = 0;
    const Run *base = results_base(results);
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        predicted += run_predicted(run) != NULL;
        under_way += run->state == RUN_RUNNING;
        open += run->state == RUN_WAITING || run->state == RUN_INTERRUPTED;
    }
    put_failures(out, results);
    if (base != results->runs && base->state == RUN_FINISHED)
        fprintf(out, " The baseline is “%s”, since “%s” %s.", base->name, results->runs->name,
                results->runs->state == RUN_FAILED ? "failed" : "is not finished");
    if (under_way) fprintf(out, " %zu run%s under way.", under_way, under_way > 1 ? "s are" : " is");
    if (open) fprintf(out, " %zu run%s not finished.", open, open > 1 ? "s are" : " is");
    if (predicted == results->count)
        fputs(" All figures are predictions.", out);
    else if (predicted)
        fprintf(out, " The figures of %zu run%s are predictions.", predicted, predicted > 1 ? "s" : "");
}

Status results_summary(const Results *results, char **ret_text) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory while writing the results");
    const Run *winner = results_best(results, FIGURE_TOKENS, 1);
    if (winner && results->count == 1) {
        put_alone(out, winner);
    } else if (winner && sizes_differ(results)) {
        put_sizes(out, results);
        put_memory(out, results);
        put_loss(out, results);
    } else if (winner) {
        const Run *other = put_winner(out, results, winner);
        if (other) put_why(out, winner, other);
        put_goodput(out, results, winner);
        put_memory(out, results);
        put_loss(out, results);
    } else {
        fputs("No run has finished.", out);
    }
    put_rest(out, results);
    bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) return FAILED("out of memory while writing the results");
    *ret_text = text;
    text = NULL;
    return OK;
}
