/* Generates the summary paragraph of a comparison.
 *
 * The winner is the finished run with the highest throughput in tokens/s. Runs with CPU contention and rates
 * without an interval take no part, and runs that differ by less than their spread tie (report/spread.h). The
 * winner is compared with the baseline or, if the winner is the baseline, with the runner-up. The explanation
 * compares rank time per sample: ranks divided by samples/s, split by phase as recorded in summary.json. The
 * phase with the largest difference is named as the cause. Models of different sizes are compared by MFU
 * only; throughput and memory are compared among the runs of the baseline's size.
 *
 * Sentences after the first begin with a space. */
#include "report/summary.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/terminal.h"
#include "report/comparable.h"
#include "report/spread.h"
#include "report/text.h"

#define NEGLIGIBLE 0.01 /* of goodput */

/* `noun` completes "... accounts for most of the difference", `verb` completes "because each rank ...". */
static const struct {
    const char *key, *name, *noun, *verb;
    int color;
} phases[SHARES] = {
    {"compute_s", "compute", "compute", "computes more slowly", 0},
    {"optimizer_s", "optimizer", "the optimizer step", "spends longer in the optimizer step", 3},
    {"data_s", "data loading", "data loading", "spends longer loading data", 2},
    {"wait_data_s", "wait for replicas", "waiting for other replicas", "waits for other replicas", 4},
    {"wait_tensor_s", "wait for tensor-parallel ranks", "waiting for other tensor-parallel ranks",
     "waits for other tensor-parallel ranks", 6},
    {"wait_pipeline_s", "pipeline bubble", "the pipeline bubble", "waits for other pipeline stages", 5},
    {"other_s", "other", "other work", "spends longer on other work", 7},
};

const char *share_name(StepShare phase) {
    return phases[phase].name;
}

int share_color(StepShare phase) {
    return phases[phase].color;
}

/* Adds the seconds in a "phases" object to `sum`. Invalid values count as 0. */
static void add_phases(const json_t *times, double sum[SHARES]) {
    for (int p = 0; p < SHARES; p++) {
        double seconds = json_number_at(times, phases[p].key);
        if (isfinite(seconds) && seconds > 0) sum[p] += seconds;
    }
}

static bool shares_of(const double *sum, double ret_share[SHARES]) {
    double total = 0;
    for (int p = 0; p < SHARES; p++) total += sum[p];
    for (int p = 0; p < SHARES && total > 0; p++) ret_share[p] = sum[p] / total;
    return total > 0;
}

bool run_shares(const Run *run, double ret_share[SHARES]) {
    const json_t *rank;
    double sum[SHARES] = {0};
    size_t i;
    json_array_foreach(run_shown(run)->summary.ranks, i, rank)
        add_phases(json_object_get(rank, "phases"), sum);
    return shares_of(sum, ret_share);
}

bool run_spent(const Run *run, double ret_share[SPENT_PARTS]) {
    static const char *const keys[] = {"eval_s", "checkpoint_s", "setup_s"};
    const json_t *times = run_shown(run)->summary.phases;
    double sum[SHARES] = {0}, total = 0;
    add_phases(times, sum);
    ret_share[SPENT_STEPS] = json_number_at(times, "comm_s") + json_number_at(times, "bubble_s");
    for (int p = 0; p < SHARES; p++) ret_share[SPENT_STEPS] += sum[p];
    for (int i = 0; i < 3; i++) ret_share[SPENT_EVAL + i] = json_number_at(times, keys[i]);
    for (int i = 0; i < SPENT_PARTS; i++) total += ret_share[i];
    for (int i = 0; i < SPENT_PARTS && total > 0; i++) ret_share[i] /= total;
    return total > 0 && isfinite(total);
}

/* ---- runs that are alike ---- */

/* " “a” failed." or " 3 runs, including “a”, failed."; nothing about no runs. `of`: before them. */
static void put_chosen(FILE *out, const Results *results, bool (*is)(const Run *run), const char *of,
                       const char *singular, const char *plural) {
    size_t count = results_count(results, is);
    const Run *first = results->runs;
    while (count && !is(first)) first++;
    if (count == 1)
        fprintf(out, " %s“%s” %s", of, first->name, singular);
    else if (count)
        fprintf(out, " %s%zu runs, including “%s”, %s", of, count, first->name, plural);
}

static bool is_unfinished(const Run *run) {
    return run->state == RUN_WAITING || run->state == RUN_INTERRUPTED;
}

static bool is_running(const Run *run) {
    return run->state == RUN_RUNNING;
}

static bool is_predicted(const Run *run) {
    return run_predicted(run) != NULL;
}

/* Finished, but not ranked because of contention. */
static bool is_contended(const Run *run) {
    return run->state == RUN_FINISHED && run_contended(run);
}

/* Not ranked only because its rate has no interval. */
static bool lacks_interval(const Run *run) {
    return run->state == RUN_FINISHED && isfinite(run_figure(run, FIGURE_TOKENS)) && !run_contended(run) &&
           !run_ranked(run, FIGURE_TOKENS);
}

static bool lacks_losses(const Run *run) {
    return run->state == RUN_FINISHED && !run_predicted(run) && !has_losses(run);
}

/* ---- winner ---- */

/* "of the finished runs" if a run that did not finish has this figure too; otherwise "". */
static const char *of_finished(const Results *results, FigureId figure) {
    results_foreach(results, run) {
        if (run->state != RUN_FINISHED && isfinite(run_figure(run, figure))) return " of the finished runs";
    }
    return "";
}

/* The run that the winner is compared with, and what to call it. */
typedef struct Rival {
    const Run *run; /* NULL: there is no other finished run, or the two tie */
    const char *role;
} Rival;

static void put_lead(FILE *out, double ratio, const Rival *rival) {
    if (ratio >= 1.5)
        fprintf(out, ", %.1f times the throughput of the %s “%s”", ratio, rival->role, rival->run->name);
    else
        fprintf(out, ", %.1f%% faster than the %s “%s”", 100 * (ratio - 1), rival->role, rival->run->name);
}

static bool ties_with(const Run *run, const Run *winner) {
    return run == winner || (same_size(run, winner) && run_ranked(run, FIGURE_TOKENS) &&
                             figures_tie(run, winner, FIGURE_TOKENS));
}

static size_t count_ties(const Results *results, const Run *winner) {
    size_t count = 0;
    results_foreach(results, run) count += ties_with(run, winner);
    return count;
}

/* "A" and "B" tie for the fastest. */
static void put_ties(FILE *out, const Results *results, const Run *winner, size_t count) {
    size_t named = 0;
    results_foreach(results, run) {
        if (!ties_with(run, winner)) continue;
        fprintf(out, "%s“%s”", !named ? "" : named + 1 == count ? " and " : ", ", run->name);
        named++;
    }
    fprintf(out, " tie for the fastest%s", of_finished(results, FIGURE_TOKENS));
}

/* "14.7 k ±2.1%". */
static void put_rate(FILE *out, const Run *run) {
    char rate[FORMAT_SIZE], spread[FORMAT_SIZE];
    spread_text(spread, run, FIGURE_TOKENS, true);
    fprintf(out, "%s%s%s tokens/s", format_count(rate, run_figure(run, FIGURE_TOKENS)), *spread ? " " : "",
            spread);
}

static Rival put_winner(FILE *out, const Results *results, const Run *winner) {
    const Run *base = results_base(results);
    Rival rival = {results_runner_up(results, winner), "runner-up"};
    if (!rival.run) {
        bool contended = results_count(results, is_contended),
             unsettled = results_count(results, lacks_interval);
        fprintf(out, "“%s” is the only finished run", winner->name);
        if (contended && !unsettled)
            fprintf(out, " that had its %s to itself", results_taken(results, false).what);
        else if (unsettled)
            fputs(contended ? " that can be ranked" : " whose throughput has a confidence interval", out);
        fputs(", at ", out);
        put_rate(out, winner);
        fputs(".", out);
        return rival;
    }
    if (winner != base && run_ranked(base, FIGURE_TOKENS) && run_figure(base, FIGURE_TOKENS) > 0)
        rival = (Rival){base, "baseline"};
    const char *scope = of_finished(results, FIGURE_TOKENS);
    bool predicted = run_predicted(winner) && !run_predicted(rival.run);
    size_t ties = count_ties(results, winner);
    if (ties > 1)
        put_ties(out, results, winner, ties);
    else
        fprintf(out, "“%s” is%s the fastest%s", winner->name, predicted ? " predicted to be" : "",
                *scope ? scope : " run");
    fputs(" at ", out);
    put_rate(out, winner);
    double other = run_figure(rival.run, FIGURE_TOKENS);
    bool comparable = other > 0 && !ties_with(rival.run, winner);
    if (comparable) put_lead(out, run_figure(winner, FIGURE_TOKENS) / other, &rival);
    if (ties > 1) fputs("; they differ by less than the spread of the measurements", out);
    fputs(".", out);
    if (!comparable || ties > 1) rival.run = NULL; /* a tie needs no explanation */
    return rival;
}

/* Names the runs whose rates have no interval, and what is missing. */
static void put_unsettled(FILE *out, const Results *results) {
    put_chosen(
        out, results, lacks_interval, "",
        "is not ranked: it has too few steps for a confidence interval. Train it for more steps, or "
        "repeat it.",
        "are not ranked: they have too few steps for a confidence interval. Train them for more steps, "
        "or repeat them.");
}

/* If no run can be called the fastest. */
static void put_unranked(FILE *out, const Results *results) {
    bool contended = results_count(results, is_contended), unsettled = results_count(results, lacks_interval);
    fputs("No run can be called the fastest: ", out);
    if (contended)
        fprintf(out, "none%s had its %s to itself%s.", unsettled ? " that" : "",
                results_taken(results, false).what,
                unsettled ? " has enough steps for a confidence interval" : "");
    else
        fputs(
            "the rates come from too few steps for a confidence interval, so differences may be noise. Train "
            "for more steps, or repeat the runs.",
            out);
}

/* Names the runs that are not ranked because of contention. */
static void put_contended(FILE *out, const Results *results) {
    size_t contended = results_count(results, is_contended);
    Load load, least, most;
    size_t known = 0;
    results_foreach(results, run) {
        if (is_contended(run) && run_load(run, &load)) load_extend(&least, &most, known++, load);
    }
    if (!known) return;
    bool all = contended == results->count, one = contended == 1;
    if (all)
        fputs(one ? " Its timings are unreliable: " : " All timings are unreliable: ", out);
    else
        put_chosen(out, results, is_contended, "", "is not ranked: ", "are not ranked: ");
    load_put(out, &least, &most);
    fprintf(out, " while %s ran", one ? "it" : "they");
    fputs(all ? "." : one ? ", so its timings are unreliable." : ", so their timings are unreliable.", out);
}

/* ---- explanation ---- */

/* Rank-seconds per sample in each phase; false if the run did not record them. */
static bool sample_costs(const Run *run, double ret_cost[SHARES], double *ret_total) {
    double share[SHARES], total = run_ranks(run) / run_figure(run, FIGURE_SAMPLES);
    if (!isfinite(total) || !(total > 0) || !run_shares(run, share)) return false;
    for (int p = 0; p < SHARES; p++) ret_cost[p] = share[p] * total;
    *ret_total = total;
    return true;
}

static void put_ranks(FILE *out, const Run *winner, const Rival *rival) {
    double own = run_ranks(winner), other = run_ranks(rival->run);
    if (own > other)
        fprintf(out, " It uses %.0f ranks, the %s %.0f.", own, rival->role, other);
    else if (own < other)
        fprintf(out, " It needs only %.0f rank%s; the %s uses %.0f.", own, PLURAL(own), rival->role, other);
}

/* The winner spends less rank time per sample: names the phase that saves most. */
static void put_saving(FILE *out, const double *own, const double *other, double own_total,
                       double other_total) {
    char text[2][FORMAT_SIZE], part[2][FORMAT_SIZE];
    StepShare largest = SHARE_COMPUTE;
    for (int p = 0; p < SHARES; p++)
        if (other[p] - own[p] > other[largest] - own[largest]) largest = (StepShare)p;
    fprintf(out, " Per-sample cost is %s of rank time vs %s", time_text(text[0], own_total),
            time_text(text[1], other_total));
    if (largest != SHARE_REST)
        fprintf(out, "; %s accounts for %s of the difference (%s vs %s)", phases[largest].noun,
                other[largest] - own[largest] >= 0.5 * (other_total - own_total) ? "most"
                                                                                 : "the largest part",
                time_text(part[0], own[largest]), time_text(part[1], other[largest]));
    fputs(".", out);
}

/* The winner is faster only because it has more ranks: names the phase that costs each of them most. */
static void put_price(FILE *out, const Run *winner, const Rival *rival, const double *own,
                      const double *other) {
    StepShare largest = SHARE_COMPUTE;
    double own_total = 0, other_total = 0;
    double threads = run_threads(winner), other_threads = run_threads(rival->run);
    for (int p = 0; p < SHARES; p++) {
        if (own[p] - other[p] > own[largest] - other[largest]) largest = (StepShare)p;
        own_total += own[p];
        other_total += other[p];
    }
    fprintf(out, " Each rank reaches %.0f%% of the %s's per-rank throughput", 100 * other_total / own_total,
            rival->role);
    if (threads < other_threads)
        fprintf(out, "; it has %.0f thread%s instead of %.0f", threads, PLURAL(threads), other_threads);
    else if (largest != SHARE_COMPUTE && own[largest] > other[largest] && own_total > 1.01 * other_total)
        fprintf(out, ", mainly because it %s (%.0f%% of the time vs %.0f%%)", phases[largest].verb,
                100 * own[largest] / own_total, 100 * other[largest] / other_total);
    fputs(".", out);
}

static bool oversubscribed(const Run *run) {
    const json_t *layout = run->summary.layout;
    const char *device = run_text(run, "device");
    double cores = json_number_at(layout, "cores");
    return device && !strcmp(device, "cpu") && cores > 0 && run_ranks(run) * run_threads(run) > cores;
}

static void put_why(FILE *out, const Run *winner, const Rival *rival) {
    double own[SHARES], other[SHARES], own_total, other_total;
    put_ranks(out, winner, rival);
    if (!sample_costs(winner, own, &own_total) || !sample_costs(rival->run, other, &other_total)) return;
    if (own_total < other_total)
        put_saving(out, own, other, own_total, other_total);
    else if (run_ranks(winner) > run_ranks(rival->run))
        put_price(out, winner, rival, own, other);
    if (oversubscribed(winner) || oversubscribed(rival->run))
        fputs(" There are more threads than cores, so a rank computes faster while other ranks wait.", out);
}

/* ---- a single run ---- */

static void put_single(FILE *out, const Run *run) {
    double share[SHARES];
    fprintf(out, "“%s” reached ", run->name);
    put_rate(out, run);
    if (run_figure(run, FIGURE_MFU) > 0) fprintf(out, " at %.1f%% MFU", 100 * run_figure(run, FIGURE_MFU));
    fputs(".", out);
    if (!run_shares(run, share)) return;
    StepShare largest = SHARE_OPTIMIZER;
    for (int p = SHARE_OPTIMIZER; p < SHARES; p++)
        if (share[p] > share[largest]) largest = (StepShare)p;
    fprintf(out, " Compute took %.0f%% of the step time", 100 * share[SHARE_COMPUTE]);
    if (share[largest] >= 0.005)
        fprintf(out, "; the next largest part was %s at %.1f%%", phases[largest].noun, 100 * share[largest]);
    fputs(".", out);
}

/* ---- models of different sizes ---- */

/* The smallest and largest parameter count among finished runs; smallest > largest if no run has one. */
static void find_sizes(const Results *results, double *ret_smallest, double *ret_largest) {
    *ret_smallest = INFINITY;
    *ret_largest = 0;
    results_foreach(results, run) {
        double params = run_params(run);
        if (run->state != RUN_FINISHED || !isfinite(params)) continue;
        *ret_smallest = fmin(*ret_smallest, params);
        *ret_largest = fmax(*ret_largest, params);
    }
}

static bool sizes_differ(const Results *results) {
    double smallest, largest;
    find_sizes(results, &smallest, &largest);
    return smallest < largest;
}

/* A space and, if models differ in size, which runs the sentence is about: those of the baseline's size. */
static void put_scope(FILE *out, const Results *results) {
    char text[FORMAT_SIZE];
    fputc(' ', out);
    if (sizes_differ(results))
        fprintf(out, "Of the runs with %s parameters, ",
                format_count(text, run_params(results_base(results))));
}

static void put_sizes(FILE *out, const Results *results) {
    const Run *best = results_best(results, NULL, FIGURE_MFU, 1),
              *worst = results_best(results, NULL, FIGURE_MFU, -1);
    char small[FORMAT_SIZE], large[FORMAT_SIZE];
    double smallest, largest;
    find_sizes(results, &smallest, &largest);
    fprintf(out, "The models range from %s to %s parameters, so their runs are compared by MFU.",
            format_count(small, smallest), format_count(large, largest));
    if (!best || best == worst) return;
    if (figures_tie(best, worst, FIGURE_MFU)) {
        fprintf(out, " All reach about the same MFU (%.1f%%): they differ by less than the spread.",
                100 * run_figure(best, FIGURE_MFU));
        return;
    }
    fprintf(out, " “%s” has the highest MFU (%.1f%%), “%s” the lowest (%.1f%%).", best->name,
            100 * run_figure(best, FIGURE_MFU), worst->name, 100 * run_figure(worst, FIGURE_MFU));
    double own[SHARES], other[SHARES];
    if (!run_shares(best, own) || !run_shares(worst, other)) return;
    fprintf(out, " Compute takes %.0f%% of the step time in “%s” and %.0f%% in “%s”",
            100 * own[SHARE_COMPUTE], best->name, 100 * other[SHARE_COMPUTE], worst->name);
    StepShare wait = SHARE_WAIT_DATA;
    for (int p = SHARE_OPTIMIZER; p < SHARES; p++)
        if (other[p] > other[wait]) wait = (StepShare)p;
    if (other[wait] >= 0.02) fprintf(out, ", where %s takes %.0f%%", phases[wait].noun, 100 * other[wait]);
    fputs(".", out);
}

/* ---- goodput, memory and loss ---- */

/* With different batch sizes, the fastest run is not always the one that learns fastest. */
static void put_goodput(FILE *out, const Results *results, const Run *winner) {
    const Run *best = results_best(results, winner, FIGURE_GOODPUT, 1);
    if (!best || best == winner || !results_differ(results, run_batch)) return;
    double own = run_figure(best, FIGURE_GOODPUT), other = run_figure(winner, FIGURE_GOODPUT);
    char text[2][FORMAT_SIZE];
    if (!(own > (1 + NEGLIGIBLE) * other) || figures_tie(best, winner, FIGURE_GOODPUT)) return;
    fprintf(out,
            " “%s” has the highest goodput (throughput times statistical efficiency): %s samples/s vs %s.",
            best->name, figure_text(text[0], FIGURE_FORMAT_RATE, own),
            figure_text(text[1], FIGURE_FORMAT_RATE, other));
}

static double run_val_samples(const Run *run) {
    return run->summary.val_samples;
}

/* “a”, “a” and “b”, or “a” and 3 others: the run and those whose figure prints alike. Returns whether there
 * are any. */
static bool put_equal(FILE *out, const Results *results, const Run *run, FigureId figure) {
    char own[FORMAT_SIZE], text[FORMAT_SIZE];
    const Run *other = NULL;
    size_t count = 0;
    run_figure_text(own, run, figure, true);
    results_foreach(results, next) {
        if (next == run || !same_size(next, run) || !run_ranked(next, figure)) continue;
        if (!strcmp(own, run_figure_text(text, next, figure, true)) && !count++) other = next;
    }
    fprintf(out, "“%s”", run->name);
    if (count == 1) fprintf(out, " and “%s”", other->name);
    if (count > 1) fprintf(out, " and %zu others", count);
    return count > 0;
}

static void put_memory(FILE *out, const Results *results) {
    char bytes[FORMAT_SIZE];
    const Run *base = results_base(results), *least = results_best(results, base, FIGURE_PEAK, -1),
              *most = results_best(results, base, FIGURE_PEAK, 1);
    if (!least || least == most) return;
    double low = run_figure(least, FIGURE_PEAK), high = run_figure(most, FIGURE_PEAK);
    if (!(high > 1.005 * low)) return; /* "0% less" */
    put_scope(out, results);
    bool several = put_equal(out, results, least, FIGURE_PEAK);
    fprintf(out, " need%s the least memory%s, with a peak of %s per rank: %.0f%% less than ",
            several ? "" : "s", of_finished(results, FIGURE_PEAK), format_bytes(bytes, low),
            100 * (1 - low / high));
    several = put_equal(out, results, most, FIGURE_PEAK);
    fprintf(out, ", which need%s the most.", several ? "" : "s");
}

/* "The losses of all runs"; `all`: every run with losses is comparable with the others. */
static void put_whose_losses(FILE *out, const Results *results, bool all) {
    size_t known = results_count(results, has_losses);
    if (!all)
        fputs(" The losses of runs with the same model, batch size and precision", out);
    else if (known == results->count)
        fputs(" The losses of all runs", out);
    else
        fprintf(out, " The losses of the %zu finished runs that recorded them", known);
}

/* Names finished runs whose losses are missing or unreadable. */
static void put_missing_losses(FILE *out, const Results *results) {
    put_chosen(out, results, lacks_losses, "The losses of ", "are unknown: its metrics.jsonl contains none.",
               "are unknown: their metrics.jsonl files contain none.");
}

static void put_loss(FILE *out, const Results *results) {
    char text[FORMAT_SIZE];
    bool all;
    double difference = max_loss_difference(results, &all);
    if (isfinite(difference) && difference < 1e-3) {
        put_whose_losses(out, results, all);
        if (difference > 0)
            fprintf(out, " agree within %s (relative) at every step.", difference_text(text, difference));
        else
            fputs(" are identical at every step.", out);
        put_missing_losses(out, results);
        return;
    }
    const Run *least = results_best(results, NULL, FIGURE_VAL_LOSS, -1),
              *most = results_best(results, NULL, FIGURE_VAL_LOSS, 1);
    if (!least || least == most || results_differ(results, run_val_samples) || !one_task(results)) return;
    double low = run_figure(least, FIGURE_VAL_LOSS), high = run_figure(most, FIGURE_VAL_LOSS);
    if (high - low <= 1e-3 * fabs(high))
        fputs(" All finished runs reach the same validation loss.", out);
    else
        fprintf(out, " The final validation loss ranges from %.4f (“%s”) to %.4f (“%s”).", low, least->name,
                high, most->name);
}

/* ---- runs without a result ---- */

/* A run that has figures did start. */
static bool failed_training(const Run *run) {
    return run->state == RUN_FAILED && !run_lacks_memory(run) && !run_killed(run) && run_shows(run);
}

static bool failed_start(const Run *run) {
    return run->state == RUN_FAILED && !run_lacks_memory(run) && !run_killed(run) && !run_shows(run);
}

/* One sentence for each kind of failure. */
static void put_failures(FILE *out, const Results *results) {
    put_chosen(out, results, run_lacks_memory, "", "ran out of memory.", "ran out of memory.");
    put_chosen(out, results, run_killed, "", "was killed (possibly out of memory).",
               "were killed (possibly out of memory).");
    put_chosen(out, results, failed_training, "", "failed during training.", "failed during training.");
    put_chosen(out, results, failed_start, "", "failed to start.", "failed to start.");
}

static void put_rest(FILE *out, const Results *results) {
    size_t incomplete = results_count(results, is_unfinished), running = results_count(results, is_running),
           predicted = results_count(results, is_predicted);
    const Run *base = results_base(results);
    put_failures(out, results);
    if (base != results->runs && base->state == RUN_FINISHED) {
        bool contended = results->runs->state == RUN_FINISHED;
        fprintf(out, " The baseline is “%s” because “%s” %s%s%s.", base->name, results->runs->name,
                contended                            ? "did not have its "
                : results->runs->state == RUN_FAILED ? "failed"
                                                     : "has not finished",
                contended ? results_taken(results, false).what : "", contended ? " to itself" : "");
    }
    if (running) fprintf(out, " %zu run%s still running.", running, running > 1 ? "s are" : " is");
    if (incomplete) fprintf(out, " %zu run%s not finished.", incomplete, incomplete > 1 ? "s have" : " has");
    if (predicted == results->count)
        fputs(" All figures are predictions.", out);
    else if (predicted)
        fprintf(out, " The figures of %zu run%s are predictions.", predicted, PLURAL(predicted));
}

/* The fastest run of the baseline's size. One that is alone with its size is not compared. */
static void put_fastest(FILE *out, const Results *results) {
    const Run *winner = results_best(results, results_base(results), FIGURE_TOKENS, 1);
    bool sizes = sizes_differ(results);
    if (!winner || (sizes && !results_runner_up(results, winner))) return;
    if (sizes) put_scope(out, results);
    Rival rival = put_winner(out, results, winner);
    if (rival.run) put_why(out, winner, &rival);
    put_goodput(out, results, winner);
}

static void put_verdict(FILE *out, const Results *results) {
    const Run *winner = results_best(results, NULL, FIGURE_TOKENS, 1), *only = results->runs;
    if (results->count == 1 && only->state == RUN_FINISHED && isfinite(run_figure(only, FIGURE_TOKENS))) {
        put_single(out, only);
        put_contended(out, results);
        return;
    }
    bool contended = results_count(results, is_contended);
    if (!winner && !contended && !results_count(results, lacks_interval)) {
        fputs("No run has finished.", out);
        return;
    }
    if (!winner) put_unranked(out, results);
    if (winner && sizes_differ(results)) put_sizes(out, results);
    put_fastest(out, results);
    put_contended(out, results);
    if (winner || contended) put_unsettled(out, results);
    put_memory(out, results);
    put_loss(out, results);
}

Status results_summary(const Results *results, char **ret_text) {
    CLEANUP(text_done) Text text = {0};
    TRY(text_open(&text));
    put_verdict(text.out, results);
    put_rest(text.out, results);
    TRY(text_take(&text, ret_text, NULL));
    terminal_clean(*ret_text);
    return OK;
}
