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
#include "plan/cluster.h"
#include "report/comparable.h"
#include "report/spread.h"
#include "train/history.h"
#include "train/rundir.h"

enum { METRICS_LIMIT = 1 << 30, TRACE_LIMIT = 1 << 26 };

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
    curve_done(&run->peak_load);
    curve_done(&run->entropy);
    curve_done(&run->balance_loss);
    free(run->diverged);
    run->diverged = NULL;
    json_decref(run->sample);
    run->sample = NULL;
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

size_t results_count(const Results *results, bool (*is)(const Run *run)) {
    size_t count = 0;
    results_foreach(results, run) count += is(run);
    return count;
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
                      .step = json_number_or(entry, "step", NAN)};
    for (size_t c = 0; c < EPOCH_COLUMNS; c++)
        epoch.values[c] = json_number_or(entry, epoch_columns[c].key, NAN);
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

static Status put_experts(Run *run, double step, const json_t *experts) {
    const struct {
        Curve *curve;
        const char *key;
    } of[] = {
        {&run->peak_load, "peak_load"}, {&run->entropy, "entropy"}, {&run->balance_loss, "balance_loss"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        double value = json_number_or(experts, of[i].key, NAN);
        if (value >= 0 && value < 1e9) TRY(put_point(of[i].curve, step, value));
    }
    return OK;
}

static void take_sample(Run *run, json_t *entry) {
    if (!json_string_at(entry, "prompt") || !json_string_at(entry, "sample")) return;
    json_decref(run->sample);
    run->sample = json_incref(entry);
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
    TRY(put_experts(run, step, json_object_get(entry, "experts")));
    TRY(put_epoch(run, json_object_get(entry, "epoch_end")));
    take_sample(run, entry);
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

/* ---- reading the directory ---- */

/* Records which values of the summary are ignored. */
static Status check_numbers(Run *run) {
    char note[2048];
    summary_faults(&run->summary, note, sizeof note);
    return *note ? add_problem(run, note) : OK;
}

/* A run on GPUs of a built-in cluster has their list price. */
static Status settle_price(RunSummary *summary) {
    const json_t *gpus = json_object_get(summary->machine, "gpus");
    double price;
    if (summary->price_per_hour > 0 || !json_array_size(gpus)) return OK;
    TRY(cluster_list_price(json_string_at(json_array_get(gpus, 0), "name"), &price));
    if (price > 0) summary->price_per_hour = price;
    return OK;
}

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
    TRY(settle_price(&run->summary));
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

/* ---- the baseline ---- */

/* The baseline among the runs of the same kind as `like`; NULL: among all. */
static const Run *base_of(const Results *results, const Run *like) {
    const Run *finished = NULL, *started = NULL, *first = NULL;
    results_foreach(results, run) {
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
