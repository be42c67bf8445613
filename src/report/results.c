/* Reads run directories. Runs that are still running, were killed or have damaged files show what can be
 * read: metrics.jsonl is parsed line by line and replaces a summary.json that is missing or older. Problems
 * do not fail; they are collected in Run.error. */
#include "report/results.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "report/comparable.h"
#include "report/spread.h"
#include "report/study.h"
#include "train/history.h"
#include "train/noise.h"
#include "train/rundir.h"

enum { METRICS_LIMIT = 1 << 30, TRACE_LIMIT = 1 << 26 };
#define MAX_LOSS 1e12 /* larger values mean a damaged file */

/* ---- runs ---- */

void curve_done(Curve *curve) {
    free(curve->step);
    free(curve->value);
    *curve = (Curve){0};
}

static void forget_metrics(Run *run) {
    curve_done(&run->loss);
    curve_done(&run->val_loss);
    curve_done(&run->step_ms);
    curve_done(&run->busy);
    curve_done(&run->tokens);
    curve_done(&run->elapsed);
    free(run->diverged);
    run->diverged = NULL;
    run->epoch_count = 0;
    run->earlier_s = 0;
}

static void run_done(Run *run) {
    free(run->name);
    free(run->dir);
    free(run->error);
    json_decref(run->options);
    json_decref(run->settings);
    run_summary_done(&run->summary);
    json_decref(run->published);
    run_summary_done(&run->prediction);
    forget_metrics(run);
    free(run->epochs);
    for (size_t i = 0; i < run->repeat_count; i++) run_done(&run->repeats[i]);
    free(run->repeats);
}

void results_done(Results *results) {
    for (size_t i = 0; i < results->count; i++) run_done(&results->runs[i]);
    free(results->runs);
    free(results->title);
    free(results->about);
    free(results->scale);
    free(results->command);
    json_decref(results->study);
    json_decref(results->others);
    *results = (Results){0};
}

Status results_add(Results *results, const char *name, const char *dir, Run **ret_run) {
    TRY(mem_grow(&results->runs, &results->capacity, results->count + 1, sizeof *results->runs));
    Run *run = &results->runs[results->count++];
    *run = (Run){.of = results, .summary = run_summary_take(NULL), .prediction = run_summary_take(NULL)};
    TRY(str_dup(name, &run->name));
    TRY(str_dup(dir, &run->dir));
    *ret_run = run;
    return OK;
}

Status run_add_repeat(Run *run) {
    TRY(mem_grow(&run->repeats, &run->repeat_capacity, run->repeat_count + 1, sizeof *run->repeats));
    Run *repeat = &run->repeats[run->repeat_count++];
    *repeat = (Run){.of = run->of,
                    .settings = json_incref(run->settings),
                    .samples = run->samples,
                    .summary = run_summary_take(NULL),
                    .prediction = run_summary_take(NULL)};
    TRY(str_dup(run->name, &repeat->name));
    return str_format(&repeat->dir, "%s.%zu", run->dir, run->repeat_count + 1);
}

Status curve_add(Curve *curve, double step, double value) {
    TRY(mem_grow(&curve->step, &curve->step_capacity, curve->count + 1, sizeof *curve->step));
    TRY(mem_grow(&curve->value, &curve->value_capacity, curve->count + 1, sizeof *curve->value));
    curve->step[curve->count] = step;
    curve->value[curve->count++] = value;
    return OK;
}

/* A run that resumes from a checkpoint repeats steps; the later values win. */
static Status put_point(Curve *curve, double step, double value) {
    while (curve->count && curve->step[curve->count - 1] >= step) curve->count--;
    return curve_add(curve, step, value);
}

/* A repeated epoch replaces the earlier one and those after it. */
static Status put_epoch(Run *run, const json_t *entry) {
    RunEpoch epoch = {.number = json_number_or(entry, "epoch", NAN),
                      .step = json_number_or(entry, "step", NAN),
                      .seconds = json_number_or(entry, "seconds", NAN),
                      .loss = json_number_or(entry, "loss", NAN),
                      .val_loss = json_number_or(entry, "val_loss", NAN),
                      .accuracy = json_number_or(entry, "accuracy", NAN),
                      .f1 = json_number_or(entry, "f1", NAN),
                      .exact = json_number_or(entry, "exact", NAN)};
    if (!(epoch.number >= 1 && epoch.number < 1e15)) return OK;
    while (run->epoch_count && run->epochs[run->epoch_count - 1].number >= epoch.number) run->epoch_count--;
    TRY(mem_grow(&run->epochs, &run->epoch_capacity, run->epoch_count + 1, sizeof *run->epochs));
    run->epochs[run->epoch_count++] = epoch;
    return OK;
}

/* A process that resumes the run counts from its own start; its time is added to that of the steps before. */
static Status put_elapsed(Run *run, double step, double elapsed) {
    Curve *curve = &run->elapsed;
    size_t before = curve->count;
    while (before && curve->step[before - 1] >= step) before--;
    if (before < curve->count || (before && elapsed + run->earlier_s < curve->value[before - 1]))
        run->earlier_s = before ? curve->value[before - 1] : 0;
    return put_point(curve, step, run->earlier_s + elapsed);
}

/* Unreadable and implausible lines are skipped and counted in *bad. */
static Status read_line(Run *run, const char *line, size_t size, History *history, size_t *bad) {
    CLEANUP(json_decrefp) json_t *entry = json_loadb(line, size, 0, NULL);
    double step = json_number_or(entry, "step", NAN), loss = json_number_or(entry, "loss", NAN),
           val = json_number_or(entry, "val_loss", NAN);
    if (!(step >= 0 && step < 1e15) || fabs(loss) > MAX_LOSS || fabs(val) > MAX_LOSS) {
        ++*bad;
        return OK;
    }
    const char *diverged = json_string_at(entry, "diverged");
    free(run->diverged);
    run->diverged = NULL;
    if (diverged) TRY(str_format(&run->diverged, "step %.0f: %s", step, diverged));
    if (isfinite(loss)) TRY(put_point(&run->loss, step, loss));
    if (isfinite(val)) TRY(put_point(&run->val_loss, step, val));
    double step_ms = json_number_or(entry, "step_ms", NAN), busy = json_number_or(entry, "utilization", NAN);
    if (step_ms > 0 && step_ms < 1e15) TRY(put_point(&run->step_ms, step, step_ms));
    if (busy >= 0 && busy <= 1) TRY(put_point(&run->busy, step, busy));
    double tokens = json_number_or(entry, "tokens", NAN), elapsed = json_number_or(entry, "elapsed_s", NAN);
    if (tokens >= 0 && tokens < 1e18) TRY(put_point(&run->tokens, step, tokens));
    if (elapsed >= 0 && elapsed < 1e12) TRY(put_elapsed(run, step, elapsed));
    TRY(put_epoch(run, json_object_get(entry, "epoch_end")));
    history_take(history, entry);
    return OK;
}

/* Appends a problem to the run's error text, unless it is already there. */
static Status add_problem(Run *run, const char *text) {
    if (!run->error) return str_dup(text, &run->error);
    if (strstr(run->error, text)) return OK;
    char *all;
    TRY(str_format(&all, "%s; %s", run->error, text));
    free(run->error);
    run->error = all;
    return OK;
}

static Status read_metrics(Run *run, const char *path, History *history) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size, bad = 0;
    CLEANUP(status_freep) Status unread = file_read(path, METRICS_LIMIT, &text, &size);
    if (unread) return add_problem(run, status_message(unread));
    for (char *line = text, *end; line < text + size; line = end + 1) {
        end = memchr(line, '\n', size - (size_t)(line - text));
        if (!end) end = text + size;
        if (end > line) TRY(read_line(run, line, (size_t)(end - line), history, &bad));
    }
    if (!bad) return OK;
    char note[96];
    snprintf(note, sizeof note, "metrics.jsonl: %zu unreadable line%s", bad, PLURAL(bad));
    return add_problem(run, note);
}

/* Reads a JSON object from the run's directory. *ret_object is unchanged if the file is missing or damaged.
 */
static Status read_object(Run *run, const char *name, json_t **ret_object) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(path_join(&path, run->dir, name));
    if (!path_exists(path)) return OK;
    CLEANUP(status_freep) Status unread = json_read_file(path, &json);
    if (unread) return add_problem(run, status_message(unread));
    if (!json_is_object(json)) {
        char note[64];
        snprintf(note, sizeof note, "%s: expected a JSON object", name);
        return add_problem(run, note);
    }
    json_decref(*ret_object);
    *ret_object = json;
    json = NULL;
    return OK;
}

/* The largest total over the ranks in a table of bytes, or the sum of the totals; NAN if no rank has one. */
static double rank_bytes(const RunSummary *summary, const char *table, const char *key, bool sum) {
    const json_t *rank;
    double result = NAN;
    size_t i;
    json_array_foreach(summary->ranks, i, rank) {
        double bytes = json_number_or(json_object_get(rank, table), key, NAN);
        if (!isfinite(bytes)) continue;
        /* predictions list one rank per group of identical ranks */
        double group = json_number_or(rank, "stands_for", NAN);
        if (sum && isfinite(group)) bytes *= group;
        result = isnan(result) ? bytes : sum ? result + bytes : fmax(result, bytes);
    }
    return result;
}

static Status remove_in(const char *dir, const char *name) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, name));
    if (path_exists(path) && unlink(path) != 0) return FAILED("%s: cannot remove: %s", path, strerror(errno));
    return OK;
}

Status run_renew(Run *run) {
    if (run_predicted(run)) {
        TRY(remove_in(run->dir, RUN_SUMMARY_FILE));
        TRY(remove_in(run->dir, "trace.json"));
    }
    run_summary_done(&run->summary);
    free(run->error);
    run->error = NULL;
    forget_metrics(run);
    run->state = RUN_WAITING;
    return OK;
}

const char *run_predicted(const Run *run) {
    return run->summary.predicted;
}

/* Recognized by the message of cli/child.c. That message also mentions memory, so run_lacks_memory excludes
 * it. */
bool run_killed(const Run *run) {
    return run->state == RUN_FAILED && run->error && strstr(run->error, "signal 9 (");
}

bool run_lacks_memory(const Run *run) {
    return run->state == RUN_FAILED && run->error && !run_killed(run) && strstr(run->error, "out of memory");
}

const char *run_outcome(const Run *run) {
    return run_lacks_memory(run) ? "out of memory" : run_killed(run) ? "killed" : run_state_name(run->state);
}

bool run_shows(const Run *run) {
    for (size_t f = 0; f < FIGURES; f++)
        if (isfinite(run_figure(run, f))) return true;
    return false;
}

const char *run_state_name(RunState state) {
    static const char *const names[] = {"waiting", "running", "finished", "interrupted", "failed"};
    return names[state];
}

/* ---- figures ---- */

const Figure figures[FIGURES] = {
    {"runtime_s", "runtime", FIGURE_FORMAT_SECONDS, -1, false},
    {"samples_per_s", "samples/s", FIGURE_FORMAT_RATE, 1, false},
    {"tokens_per_s", "tokens/s", FIGURE_FORMAT_RATE, 1, false},
    {"loss_last", "loss", FIGURE_FORMAT_LOSS, -1, false},
    {"val_loss", "val. loss", FIGURE_FORMAT_LOSS, -1, false},
    {"val_loss_mean", "mean val.", FIGURE_FORMAT_LOSS, -1, false},
    {"accuracy", "accuracy", FIGURE_FORMAT_SHARE, 1, false},
    {"f1", "F1", FIGURE_FORMAT_SHARE, 1, false},
    {"exact", "exact", FIGURE_FORMAT_SHARE, 1, false},
    {"utilization", "busy", FIGURE_FORMAT_SHARE, 1, false},
    {"peak_bytes", "memory", FIGURE_FORMAT_BYTES, -1, false},
    {"bubble", "bubble", FIGURE_FORMAT_SHARE, -1, false},
    {"sent_bytes", "sent", FIGURE_FORMAT_BYTES, -1, false},
    {"between_nodes_bytes", "between nodes", FIGURE_FORMAT_BYTES, -1, false},
    {"mfu", "MFU", FIGURE_FORMAT_SHARE, 1, false},
    {"noise_scale", "noise scale", FIGURE_FORMAT_NUMBER, 0, false},
    {"statistical_efficiency", "efficiency", FIGURE_FORMAT_NUMBER, 1, false},
    {"goodput", "goodput", FIGURE_FORMAT_RATE, 1, false},
    {"step_ms", "ms/step", FIGURE_FORMAT_MS, -1, true},
    {"epoch_s", "time/epoch", FIGURE_FORMAT_SECONDS, -1, false},
    {"params_stored", "parameters", FIGURE_FORMAT_COUNT, 0, true},
    {"tp", "tp", FIGURE_FORMAT_WHOLE, 0, true},
    {"params_per_rank", "params/rank", FIGURE_FORMAT_COUNT, 0, true},
    {"work", "params x samples/s", FIGURE_FORMAT_RATE, 1, true},
    {"cost_per_million_tokens", "cost/M tokens", FIGURE_FORMAT_COST, -1, false},
    {"cost", "cost", FIGURE_FORMAT_COST, -1, false},
    {"energy_j", "energy", FIGURE_FORMAT_JOULES, -1, false},
    {"tokens_per_j", "tokens/J", FIGURE_FORMAT_RATE, 1, false},
};

/* Files may be damaged or edited by hand. */
static bool is_plausible(FigureFormat unit, double value) {
    if (unit == FIGURE_FORMAT_LOSS) return fabs(value) <= MAX_LOSS;
    return value >= 0 && value <= (unit == FIGURE_FORMAT_SHARE ? 2 : 1e18);
}

bool figure_is_quality(size_t figure) {
    return figure >= FIGURE_LOSS && figure <= FIGURE_EXACT;
}

const EpochColumn epoch_columns[EPOCH_COLUMNS] = {
    {"seconds", "time", FIGURE_FORMAT_SECONDS, offsetof(RunEpoch, seconds)},
    {"loss", "mean loss", FIGURE_FORMAT_LOSS, offsetof(RunEpoch, loss)},
    {"val_loss", "val. loss", FIGURE_FORMAT_LOSS, offsetof(RunEpoch, val_loss)},
    {"accuracy", "accuracy", FIGURE_FORMAT_SHARE, offsetof(RunEpoch, accuracy)},
    {"f1", "F1", FIGURE_FORMAT_SHARE, offsetof(RunEpoch, f1)},
    {"exact", "exact", FIGURE_FORMAT_SHARE, offsetof(RunEpoch, exact)},
};

double epoch_value(const RunEpoch *epoch, size_t column) {
    double value;
    memcpy(&value, (const char *)epoch + epoch_columns[column].offset, sizeof value);
    return is_plausible(epoch_columns[column].unit, value) ? value : NAN;
}

bool results_have_epochs(const Results *results, size_t column) {
    for (size_t i = 0; i < results->count; i++)
        for (size_t e = 0; e < results->runs[i].epoch_count; e++)
            if (isfinite(epoch_value(&results->runs[i].epochs[e], column))) return true;
    return false;
}

/* The last value of the curve, for losses that the summary lacks. */
static double last_of_curve(const Run *run, size_t figure) {
    const Curve *curve = figure == FIGURE_LOSS       ? &run->loss
                         : figure == FIGURE_VAL_LOSS ? &run->val_loss
                                                     : NULL;
    return curve && curve->count ? curve->value[curve->count - 1] : NAN;
}

/* From the summary, else from the settings. */
static double batch_of(const Run *run) {
    double batch = json_number_or(run->summary.layout, "batch", NAN);
    return batch >= 1 ? batch : json_number_or(run->settings, "batch", NAN);
}

/* Statistical efficiency relative to the baseline's batch size; see train/noise.h. The noise scale depends on
 * the data and the model, so the baseline's is used for runs that did not measure it. */
static double run_efficiency(const Run *run) {
    const Run *base = run_base(run->of, run);
    double noise = run->summary.noise_scale;
    if (!isfinite(noise)) noise = base->summary.noise_scale;
    return noise_efficiency(noise, batch_of(base), batch_of(run));
}

/* The peak of the largest rank. Parts of a resumed run may have recorded only a maximum over the ranks. */
static double peak_of(const RunSummary *summary) {
    return fmax(rank_bytes(summary, "peak_bytes", "total", false),
                json_number_or(summary->peak_bytes, "total", NAN));
}

static double sent_of(const RunSummary *summary) {
    double known = summary->sent_bytes;
    return isfinite(known) ? known : rank_bytes(summary, "comm_bytes", "total", true);
}

static double between_of(const RunSummary *summary) {
    double known = summary->between_nodes_bytes;
    return isfinite(known) ? known : rank_bytes(summary, "comm_bytes", "between_nodes", true);
}

/* The parameters that the ranks of one replica hold together, or one of them. Runs record neither, but
 * without tensor and pipeline parallelism both are the size of the model. */
static double params_of(const RunSummary *summary, double known) {
    const json_t *layout = summary->layout;
    bool whole = json_number_or(layout, "tp", NAN) * json_number_or(layout, "pp", NAN) == 1;
    return isfinite(known) || !whole ? known : summary->params_total;
}

/* The value in a summary, unchecked. */
static double summary_figure(const RunSummary *summary, size_t figure) {
    switch (figure) {
    case FIGURE_PEAK: return peak_of(summary);
    case FIGURE_SENT: return sent_of(summary);
    case FIGURE_BETWEEN: return between_of(summary);
    case FIGURE_PARAMS: return params_of(summary, summary->params_stored);
    case FIGURE_PARAMS_RANK: return params_of(summary, summary->params_per_rank);
    case FIGURE_TENSOR: return json_number_or(summary->layout, "tp", NAN);
    default: return run_summary_number(summary, figures[figure].key);
    }
}

/* A plausible value of a summary; NAN if there is none. */
static double checked_figure(const RunSummary *summary, size_t figure) {
    double value = summary_figure(summary, figure);
    return isfinite(value) && is_plausible(figures[figure].unit, value) ? value : NAN;
}

/* Parameters x samples/s per rank, relative to the first finished run of the same task and sequence length.
 */
static double run_work(const Run *run, FigureSource source) {
    double work[2];
    const Run *of[2] = {run, run};
    for (size_t i = run->of->count; i-- > 0;) {
        const Run *other = &run->of->runs[i];
        if (other->state == RUN_FINISHED && same_sequences(other, run)) of[1] = other;
    }
    for (int i = 0; i < 2; i++)
        work[i] = run_params(of[i]) * run_source_figure(of[i], source, FIGURE_SAMPLES) / run_ranks(of[i]);
    return work[1] > 0 ? work[0] / work[1] : NAN;
}

/* The steps of an epoch, without evaluation: the mean over completed epochs, else by throughput. */
static double run_epoch(const Run *run) {
    double predicted = checked_figure(&run->summary, FIGURE_EPOCH), sum = 0;
    for (size_t i = 0; i < run->epoch_count; i++) sum += run->epochs[i].seconds;
    if (isfinite(predicted)) return predicted;
    if (sum > 0) return sum / (double)run->epoch_count;
    return run->samples > 0 ? run->samples / run_single_figure(run, FIGURE_SAMPLES) : NAN;
}

double run_figure(const Run *run, size_t figure) {
    double mean =
        run->repeat_count && figure_is_timed(figure) ? run_mean(run, figure, run_single_figure) : NAN;
    return isfinite(mean) ? mean : run_single_figure(run, figure);
}

/* The price of all GPUs or hosts that a run occupies, per hour; NAN: unknown. */
static double price_of(const Run *run, const RunSummary *summary) {
    double price = run->of->price > 0 ? run->of->price : summary->price_per_hour;
    double units = summary->priced_units, hosts = json_number_at(summary->machine, "host_count");
    double gpus = hosts * (double)json_array_size(json_object_get(summary->machine, "gpus"));
    double ranks = json_number_or(summary->layout, "ranks", NAN);
    if (!(units >= 1)) units = gpus >= 1 ? fmin(ranks, gpus) : hosts;
    return units >= 1 ? price * units : NAN;
}

static double cost_of(const Run *run, const RunSummary *summary, size_t figure) {
    double per_s = price_of(run, summary) / 3600;
    return figure == FIGURE_COST ? per_s * summary->runtime_s : 1e6 * per_s / summary->tokens_per_s;
}

double run_single_figure(const Run *run, size_t figure) {
    if (figure == FIGURE_COST || figure == FIGURE_COST_TOKENS) return cost_of(run, &run->summary, figure);
    if (figure == FIGURE_EPOCH) return run_epoch(run);
    if (figure == FIGURE_EFFICIENCY) return run->summary.json ? run_efficiency(run) : NAN;
    if (figure == FIGURE_GOODPUT)
        return run->summary.json ? run_single_figure(run, FIGURE_SAMPLES) * run_efficiency(run) : NAN;
    if (figure == FIGURE_WORK) return run_work(run, run_predicted(run) ? SOURCE_PREDICTED : SOURCE_MEASURED);
    double value = checked_figure(&run->summary, figure);
    return isfinite(value) ? value : last_of_curve(run, figure);
}

/* ---- sources ---- */

const char *source_name(FigureSource source) {
    static const char *const names[SOURCES] = {"published", "predicted", "predicted, weft", "measured"};
    return names[source];
}

const char *run_program(const Run *run) {
    return run_predicted(run) ? run->summary.program : run->prediction.program;
}

/* Of the prediction for weft next to one for another program. */
static double weft_figure(const RunSummary *summary, size_t figure) {
    CLEANUP(run_summary_done) RunSummary weft = run_summary_take(json_incref(summary->weft));
    return checked_figure(&weft, figure);
}

double run_source_figure(const Run *run, FigureSource source, size_t figure) {
    bool own = (source == SOURCE_PREDICTED) == (run_predicted(run) != NULL);
    const RunSummary *summary = run_predicted(run) ? &run->summary : &run->prediction;
    if ((figure == FIGURE_COST || figure == FIGURE_COST_TOKENS) && !own && source == SOURCE_PREDICTED)
        return cost_of(run, &run->prediction, figure);
    if (figure == FIGURE_WORK && source != SOURCE_WEFT)
        return source != SOURCE_PUBLISHED || study_lists(run->of, figure) ? run_work(run, source) : NAN;
    switch (source) {
    case SOURCE_PUBLISHED: return json_number_or(run->published, figures[figure].key, NAN);
    case SOURCE_WEFT: return weft_figure(summary, figure);
    case SOURCE_PREDICTED: return own ? run_figure(run, figure) : checked_figure(&run->prediction, figure);
    default: return own ? run_figure(run, figure) : NAN;
    }
}

bool run_has_source(const Run *run, FigureSource source) {
    for (size_t f = 0; f < FIGURES; f++)
        if (isfinite(run_source_figure(run, source, f))) return true;
    return false;
}

double run_from_published(const Run *run, FigureSource source, size_t figure) {
    double published = run_source_figure(run, SOURCE_PUBLISHED, figure),
           own = run_source_figure(run, source, figure);
    if (source == SOURCE_PUBLISHED || !isfinite(published) || !isfinite(own) || published == 0) return NAN;
    if (source == SOURCE_MEASURED && run->state != RUN_FINISHED) return NAN;
    return 100 * (own - published) / fabs(published);
}

bool results_published(const Results *results) {
    for (size_t i = 0; i < results->count && !results->resized; i++)
        if (results->runs[i].published) return true;
    return false;
}

/* Appends to `note` why a value of the summary is ignored. */
static void add_invalid(char *note, size_t size, const char *key, const json_t *json, double value) {
    size_t used = strlen(note);
    const char *separator = used ? "; " : "summary.json: ";
    if (json && !json_is_number(json))
        snprintf(note + used, size - used, "%signoring %s (not a number)", separator, key);
    else
        snprintf(note + used, size - used, "%signoring %s (%g is out of range)", separator, key, value);
}

/* Records which values in the summary are ignored because they are not numbers or implausible. */
static Status check_numbers(Run *run) {
    static const char *const counts[] = {"params_total", "ranks", "batch"};
    char note[2048] = "";
    for (size_t f = 0; f < FIGURES; f++) {
        const json_t *json = json_object_get(run->summary.json, figures[f].key);
        bool present = json && !json_is_null(json) && !json_is_object(json);
        double value = summary_figure(&run->summary, f);
        if ((present && !json_is_number(json)) || (isfinite(value) && !is_plausible(figures[f].unit, value)))
            add_invalid(note, sizeof note, figures[f].key, present ? json : NULL, value);
    }
    /* Counts in a derived summary are copied from the settings, where 0 means "auto". */
    bool own = !run->summary.by_metrics;
    for (size_t i = 0; own && i < sizeof counts / sizeof *counts; i++) {
        const json_t *of = i ? run->summary.layout : run->summary.json;
        const json_t *json = json_object_get(of, counts[i]);
        if (json && !json_is_null(json) && !(json_number_or(of, counts[i], NAN) >= 1))
            add_invalid(note, sizeof note, counts[i], json, json_number_or(of, counts[i], NAN));
    }
    return *note ? add_problem(run, note) : OK;
}

/* ---- reading the directory ---- */

/* Derives a summary from the metrics if there is none, or if it does not include the last steps. */
static Status settle_summary(Run *run, const History *history) {
    CLEANUP(json_decrefp) json_t *summary = NULL;
    if (run->summary.json && !((double)history->last_step > run->summary.steps)) return OK;
    TRY(history_summary(history, run->settings, &summary));
    if (summary) run_summary_replace(&run->summary, json_incref(summary));
    return OK;
}

/* A finished run must have recorded its losses. */
static Status check_metrics(Run *run, bool exists) {
    if (run->state != RUN_FINISHED || run_predicted(run) || !(run->summary.steps > 0)) return OK;
    if (!exists) return add_problem(run, "metrics.jsonl: missing");
    return run->loss.count ? OK : add_problem(run, "metrics.jsonl: no readable losses");
}

Status run_trace(const Run *run, json_t **ret_trace) {
    run = run_shown(run);
    CLEANUP(mem_freep) char *path = NULL, *text = NULL;
    CLEANUP(json_decrefp) json_t *trace = NULL;
    size_t size;
    *ret_trace = NULL;
    TRY(path_join(&path, run->dir, "trace.json"));
    if (!path_exists(path)) return OK;
    TRY(file_read(path, TRACE_LIMIT, &text, &size));
    TRY(json_parse(text, size, path, &trace));
    if (!json_is_array(json_object_get(trace, "traceEvents")))
        return FAILED("%s: expected a JSON object with a 'traceEvents' array", path);
    *ret_trace = json_incref(trace);
    return OK;
}

static Status check_trace(Run *run) {
    CLEANUP(json_decrefp) json_t *trace = NULL;
    CLEANUP(status_freep) Status damaged = run_trace(run, &trace);
    return damaged ? add_problem(run, status_message(damaged)) : OK;
}

static Status look_at(Run *run) {
    CLEANUP(mem_freep) char *metrics = NULL;
    CLEANUP(history_done) History history = {0};
    CLEANUP(json_decrefp) json_t *summary = NULL;
    TRY(read_object(run, RUN_SUMMARY_FILE, &summary));
    if (summary) run_summary_replace(&run->summary, json_incref(summary));
    if (!run->settings) TRY(read_object(run, "config.json", &run->settings));
    TRY(path_join(&metrics, run->dir, "metrics.jsonl"));
    forget_metrics(run);
    bool started = path_exists(metrics);
    if (started) TRY(read_metrics(run, metrics, &history));
    TRY(settle_summary(run, &history));
    TRY(check_numbers(run));
    if (run->state == RUN_FAILED) return check_trace(run);
    bool complete = run->summary.json && !run->summary.interrupted;
    run->state = complete                       ? RUN_FINISHED
                 : rundir_held(run->dir)        ? RUN_RUNNING
                 : started || run->summary.json ? RUN_INTERRUPTED
                                                : RUN_WAITING;
    if (run->state == RUN_INTERRUPTED && run->diverged) {
        run->state = RUN_FAILED;
        TRY(add_problem(run, run->diverged));
    }
    TRY(check_metrics(run, started));
    return run->state == RUN_RUNNING ? OK : check_trace(run);
}

Status run_look(Run *run) {
    for (size_t i = 0; i < run->repeat_count; i++) TRY(look_at(&run->repeats[i]));
    return look_at(run);
}

/* The baseline among the runs of the same kind as `like`; NULL: among all. */
static const Run *base_of(const Results *results, const Run *like) {
    const Run *finished = NULL, *started = NULL, *first = NULL;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (like && !same_kind(run, like)) continue;
        if (run->state == RUN_FINISHED && !run_contended(run)) return run;
        if (!finished && run->state == RUN_FINISHED) finished = run;
        if (!started && run->state != RUN_FAILED && run->summary.json) started = run;
        if (!first) first = run;
    }
    return finished ? finished : started ? started : first;
}

const Run *results_base(const Results *results) {
    return base_of(results, NULL);
}

const Run *run_base(const Results *results, const Run *run) {
    return base_of(results, run);
}

/* Whether both validation losses are averages over the same number of samples; true if unknown. */
static bool same_validation(const Run *a, const Run *b) {
    double one = a->summary.val_samples, two = b->summary.val_samples;
    return !isfinite(one) || !isfinite(two) || one == two;
}

double run_difference(const Results *results, const Run *run, size_t figure) {
    const Run *baseline = run_base(results, run);
    if (run == baseline) return NAN;
    if (run->state != RUN_FINISHED || baseline->state != RUN_FINISHED || !figures[figure].better) return NAN;
    if (figure_is_quality(figure) && !same_task(run, baseline)) return NAN;
    if (figure_is_quality(figure) && figure != FIGURE_LOSS && !same_validation(run, baseline)) return NAN;
    if (figure_is_timed(figure) && (run_contended(run) || run_contended(baseline))) return NAN;
    double base = run_figure(baseline, figure), own = run_figure(run, figure);
    if (!isfinite(own) || !isfinite(base) || base == 0) return NAN;
    return 100 * (own - base) / fabs(base);
}

bool results_have(const Results *results, size_t figure) {
    bool published = results_published(results);
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (isfinite(run_figure(run, figure))) return true;
        if (published && isfinite(run_source_figure(run, SOURCE_PUBLISHED, figure))) return true;
    }
    return false;
}

/* Digits after the point: two, or three significant ones below 1. */
static int cost_digits(double value) {
    enum { MOST = 12 };
    if (!(value > 0) || value >= 1) return 2;
    double digits = 2 - floor(log10(value));
    return digits < MOST ? (int)digits : MOST;
}

const char *figure_text(char *buffer, FigureFormat unit, double value) {
    if (!isfinite(value)) {
        snprintf(buffer, FORMAT_SIZE, "-");
        return buffer;
    }
    switch (unit) {
    case FIGURE_FORMAT_SECONDS:
        if (value >= 60) return format_duration(buffer, value);
        snprintf(buffer, FORMAT_SIZE, "%.*f s", value < 0.995 ? 2 : 1, value);
        return buffer;
    case FIGURE_FORMAT_RATE:
        if (value >= 1000) return format_count(buffer, value);
        snprintf(buffer, FORMAT_SIZE, "%.*f", value >= 100 ? 1 : value >= 0.1 || value == 0 ? 2 : 4, value);
        return buffer;
    case FIGURE_FORMAT_BYTES: return format_bytes(buffer, value);
    case FIGURE_FORMAT_COST: snprintf(buffer, FORMAT_SIZE, "%.*f", cost_digits(value), value); return buffer;
    case FIGURE_FORMAT_JOULES: {
        char number[FORMAT_SIZE - 2];
        snprintf(buffer, FORMAT_SIZE, "%.29sJ", format_si(number, value));
        return buffer;
    }
    case FIGURE_FORMAT_COUNT: return format_count(buffer, value);
    case FIGURE_FORMAT_WHOLE: snprintf(buffer, FORMAT_SIZE, "%.0f", value); return buffer;
    case FIGURE_FORMAT_MS: snprintf(buffer, FORMAT_SIZE, "%.*f", value < 100 ? 1 : 0, value); return buffer;
    case FIGURE_FORMAT_SHARE: snprintf(buffer, FORMAT_SIZE, "%.1f%%", 100 * value); return buffer;
    default:
        snprintf(buffer, FORMAT_SIZE, fabs(value) < 1e-3 && value != 0 ? "%.2e" : "%.4f", value);
        return buffer;
    }
}

const char *percent_text(char *buffer, double percent, bool utf8) {
    bool same = fabs(percent) < 0.05;
    const char *mark = same ? (utf8 ? "= " : "") : percent > 0 ? (utf8 ? "▲ " : "+") : (utf8 ? "▼ " : "-");
    if (!isfinite(percent))
        buffer[0] = 0;
    else if (percent >= 1000)
        snprintf(buffer, FORMAT_SIZE, "%s%.*f", utf8 ? "× " : "x ", percent < 1e4 ? 1 : 0, 1 + percent / 100);
    else
        snprintf(buffer, FORMAT_SIZE, "%s%.1f%%", mark, fabs(percent));
    return buffer;
}

const char *noise_text(char *buffer, double scale, double error, bool utf8) {
    double unit = isfinite(error) ? error : scale / 10; /* the digits to show */
    int digits = unit >= 10 ? 0 : unit >= 1 ? 1 : 2;
    if (!isfinite(scale))
        snprintf(buffer, FORMAT_SIZE, "-");
    else if (isfinite(error))
        snprintf(buffer, FORMAT_SIZE, "%.*f %s %.*f", digits, scale, utf8 ? "±" : "+-", digits, error);
    else
        snprintf(buffer, FORMAT_SIZE, "%.*f", digits, scale);
    return buffer;
}

const char *run_figure_text(char *buffer, const Run *run, size_t figure, bool utf8) {
    double value = run_figure(run, figure);
    if (figure != FIGURE_NOISE) return figure_text(buffer, figures[figure].unit, value);
    return noise_text(buffer, value, run->summary.noise_scale_error, utf8);
}
