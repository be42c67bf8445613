/* Estimates a summary from metrics lines, and merges the summaries of two parts of a run: times and bytes add
 * up, rates are averaged by time, peaks take the maximum. */
#include "train/history.h"

#include <math.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "comm/axes.h"
#include "train/run_summary.h"

enum { METRICS_LIMIT = 1 << 30 };

static const char *const phase_names[HISTORY_PHASES] = {"compute",   "comm", "bubble",
                                                        "optimizer", "data", "other"};

/* Unknown values count as 0 in sums. */
static double or_zero(double value) {
    return isfinite(value) ? value : 0;
}

static void set_line(json_t **slot, const json_t *line) {
    json_decref(*slot);
    *slot = json_incref((json_t *)(uintptr_t)line);
}

typedef double (*Combine)(double a, double b);

/* Combines the numbers of `object` with those of `earlier`, recursively; copies keys that `object` lacks. */
static void join_numbers(json_t *object, const json_t *earlier, Combine combine) {
    const char *key;
    json_t *before;
    json_object_foreach((json_t *)(uintptr_t)earlier, key, before) {
        json_t *own = json_object_get(object, key);
        if (json_is_object(before) && json_is_object(own))
            join_numbers(own, before, combine);
        else if (json_is_number(before) && json_is_number(own)) {
            double value = combine(json_number_value(own), json_number_value(before));
            bool integral = json_is_integer(before) && json_is_integer(own) && fabs(value) < 1e18;
            json_object_set_new(object, key, integral ? json_integer((json_int_t)value) : json_real(value));
        } else if (!own)
            json_object_set_new(object, key, json_clone_deep(before));
    }
}

void history_done(History *history) {
    json_decref(history->first);
    json_decref(history->last);
    json_decref(history->val);
    json_decref(history->peak);
    *history = (History){0};
}

/* ---- from metrics ---- */

static void add_ranks(History *h, const json_t *line, double step_ms) {
    const json_t *ranks = json_object_get(line, "ranks"), *busy = json_object_get(ranks, "utilization");
    int count = (int)json_array_size(busy);
    if (count < 1 || count > HISTORY_RANKS) return;
    h->ranks = count;
    for (int r = 0; r < count; r++) {
        h->rank_busy[r] += step_ms * or_zero(json_number_value(json_array_get(busy, (size_t)r)));
        for (int p = 0; p < HISTORY_PHASES; p++) {
            char key[24];
            snprintf(key, sizeof key, "%s_ms", phase_names[p]);
            const json_t *list = json_object_get(ranks, key);
            h->rank_ms[r][p] += or_zero(json_number_value(json_array_get(list, (size_t)r)));
        }
    }
}

/* A resumed process starts its peaks from zero, so take the maximum. */
static void add_peak(History *h, const json_t *peak) {
    if (!json_is_object(peak)) return;
    if (h->peak)
        join_numbers(h->peak, peak, fmax);
    else
        h->peak = json_clone_deep(peak);
}

static void add_step(History *h, const json_t *line, double step_ms) {
    double elapsed = or_zero(json_number_or(line, "elapsed_s", NAN));
    h->lines++;
    h->step_ms += step_ms;
    h->samples += 1e-3 * step_ms * or_zero(json_number_or(line, "samples_per_s", NAN));
    h->tokens += 1e-3 * step_ms * or_zero(json_number_or(line, "tokens_per_s", NAN));
    h->busy += step_ms * json_number_or(line, "utilization", NAN);
    h->gpu += step_ms * json_number_or(line, "gpu_utilization", NAN);
    h->mfu += step_ms * json_number_or(line, "mfu", NAN);
    h->sent += or_zero(json_number_or(line, "sent_bytes", NAN));
    h->between += or_zero(json_number_or(line, "between_nodes_bytes", NAN));
    h->checkpoint_s += 1e-3 * or_zero(json_number_or(line, "checkpoint_ms", NAN));
    for (int p = 0; p < HISTORY_PHASES; p++)
        h->phase_ms[p] += or_zero(json_number_or(json_object_get(line, "phases_ms"), phase_names[p], NAN));
    add_ranks(h, line, step_ms);
    if (elapsed < h->elapsed_s) h->earlier_s += h->elapsed_s; /* the run was resumed by a new process */
    h->elapsed_s = elapsed;
    add_peak(h, json_object_get(line, "peak_bytes"));
    if (!h->first) set_line(&h->first, line);
    set_line(&h->last, line);
}

void history_take(History *h, const json_t *line) {
    double step = json_number_or(line, "step", NAN), step_ms = json_number_or(line, "step_ms", NAN);
    if (!(step >= 0 && step < 1e15)) return;
    if (isfinite(json_number_or(line, "val_loss", NAN))) {
        h->eval_s += 1e-3 * or_zero(json_number_or(line, "eval_ms", NAN));
        set_line(&h->val, line);
        if (step > 0) {
            h->val_sum += json_number_or(line, "val_loss", NAN);
            h->vals++;
        }
        return;
    }
    if (!(step_ms > 0) || (int64_t)step <= h->last_step) return;
    h->last_step = (int64_t)step;
    add_step(h, line, step_ms);
}

static void copy_setting(const json_t *settings, const char *option, json_t *layout, const char *key) {
    json_t *value = json_object_get(settings, option);
    if (value) json_object_set(layout, key, value);
}

/* The layout from the options in config.json, under the summary's key names. */
static json_t *layout_of(const History *h, const json_t *settings) {
    static const char *const keys[][2] = {
        {"zero", "zero"},           {"offload", "offload"},
        {"batch", "batch"},         {"micro_batch", "micro-batch"},
        {"recompute", "recompute"}, {"pp_schedule", "pp-schedule"},
        {"precision", "precision"}, {"device", "device"},
        {"threads", "threads"},     {"sequence_parallel", "sequence-parallel"},
        {"cp_mode", "cp-mode"},     {"cp_heads", "cp-heads"}};
    json_t *layout = json_object();
    copy_setting(settings, "ranks", layout, "ranks");
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        copy_setting(settings, axis_info(axis)->name, layout, axis_info(axis)->name);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        copy_setting(settings, keys[i][1], layout, keys[i][0]);
    if (json_number_or(settings, "ep", 1) > 1) copy_setting(settings, "ep", layout, "ep");
    if (h->ranks) json_object_set_new(layout, "ranks", json_integer(h->ranks));
    if (settings && !json_object_get(layout, "precision")) {
        const char *device = json_string_at(settings, "device");
        bool gpu = device && !strcmp(device, "cuda");
        json_object_set_new(layout, "precision", json_string(gpu ? "bf16" : "fp32"));
    }
    return layout;
}

/* Seconds by phase; the rest of the run time is setup before the first step. */
static json_t *phases_of(const History *h, const double *ms, double scale) {
    json_t *phases = json_object();
    double left = h->earlier_s + h->elapsed_s - h->eval_s - h->checkpoint_s;
    for (int p = 0; p < HISTORY_PHASES; p++) {
        char key[24];
        snprintf(key, sizeof key, "%s_s", phase_names[p]);
        json_object_set_new(phases, key, json_real(scale * ms[p]));
        left -= scale * ms[p];
    }
    json_object_set_new(phases, "eval_s", json_real(h->eval_s));
    json_object_set_new(phases, "checkpoint_s", json_real(h->checkpoint_s));
    json_object_set_new(phases, "setup_s", json_real(fmax(left, 0)));
    return phases;
}

/* The metrics do not separate data-parallel from tensor-parallel waits, so all are attributed to one of them:
 * to tensor parallelism if `tensor` is set. */
static json_t *rank_of(const History *h, int rank, double scale, bool tensor) {
    const double *ms = h->ranks ? h->rank_ms[rank] : h->phase_ms;
    double busy = h->ranks ? h->rank_busy[rank] : h->busy;
    json_t *phases = phases_of(h, ms, scale);
    json_object_set_new(phases, tensor ? "wait_tensor_s" : "wait_data_s", json_real(scale * ms[1]));
    json_object_set_new(phases, "wait_pipeline_s", json_real(scale * ms[2]));
    return json_pack("{s:i, s:o, s:o}", "rank", rank, "utilization", json_finite(busy / h->step_ms), "phases",
                     phases);
}

static json_t *ranks_of(const History *h, double scale, bool tensor) {
    json_t *list = json_array();
    for (int r = 0; r < (h->ranks ? h->ranks : 1); r++)
        json_array_append_new(list, rank_of(h, r, scale, tensor));
    return list;
}

static double number_in(const json_t *line, const char *key) {
    return json_number_or(line, key, NAN);
}

Status history_summary(const History *h, const json_t *settings, json_t **ret_summary) {
    if (!h->lines) return OK;
    double steps = (double)h->last_step; /* lines start at the beginning of the run */
    double scale = 1e-3 * steps / (double)h->lines, seconds = 1e-3 * h->step_ms;
    const json_t *groups = json_object_get(h->last, "comm_bytes_by_group");
    bool tensor = json_object_get(groups, "tensor") && !json_object_get(groups, "data");
    double waiting = h->phase_ms[0] + h->phase_ms[1] + h->phase_ms[2];
    CLEANUP(run_summary_done) RunSummary summary = run_summary_take(NULL);
    summary.by_metrics = summary.interrupted = true;
    summary.steps = summary.steps_measured = steps;
    summary.loss_first = number_in(h->first, "loss");
    summary.loss_last = number_in(h->last, "loss");
    summary.val_loss = number_in(h->val, "val_loss");
    summary.val_samples = number_in(h->val, "val_samples");
    summary.val_loss_mean = h->val_sum / (double)h->vals;
    summary.accuracy = number_in(h->val, "accuracy");
    summary.f1 = number_in(h->val, "f1");
    summary.mcc = number_in(h->val, "mcc");
    summary.exact = number_in(h->val, "exact");
    summary.layout = layout_of(h, settings);
    summary.runtime_s = h->earlier_s + h->elapsed_s;
    summary.step_ms = h->step_ms / (double)h->lines;
    summary.samples_per_s = h->samples / seconds;
    summary.tokens_per_s = h->tokens / seconds;
    summary.utilization = h->busy / h->step_ms;
    summary.gpu_utilization = h->gpu / h->step_ms;
    summary.mfu = h->mfu / h->step_ms;
    summary.bubble = waiting > 0 ? h->phase_ms[2] / waiting : 0;
    summary.sent_bytes = h->sent * steps / (double)h->lines;
    summary.between_nodes_bytes = h->between * steps / (double)h->lines;
    summary.peak_bytes = json_incref(h->peak);
    summary.noise_scale = number_in(h->last, "noise_scale");
    summary.noise_scale_error = number_in(h->last, "noise_scale_error");
    summary.statistical_efficiency = number_in(h->last, "statistical_efficiency");
    summary.goodput = number_in(h->last, "goodput");
    summary.phases = phases_of(h, h->phase_ms, scale);
    summary.ranks = ranks_of(h, scale, tensor);
    return run_summary_json(&summary, ret_summary);
}

/* ---- from a run directory ---- */

static Status object_in(const char *dir, const char *name, json_t **ret_object) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, name));
    CLEANUP(json_decrefp) json_t *json = NULL;
    /* A damaged file is treated as missing. */
    CLEANUP(status_freep) Status ignored = path_exists(path) ? json_read_file(path, &json) : OK;
    *ret_object = json_is_object(json) ? json_incref(json) : NULL;
    return OK;
}

static Status add_file(History *history, const char *path, int64_t step) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    CLEANUP(status_freep) Status ignored = file_read(path, METRICS_LIMIT, &text, &size);
    if (ignored) return OK;
    for (char *line = text, *end; (end = memchr(line, '\n', size - (size_t)(line - text))); line = end + 1) {
        CLEANUP(json_decrefp) json_t *entry = json_loadb(line, (size_t)(end - line), 0, NULL);
        if (json_number_or(entry, "step", NAN) <= (double)step) history_take(history, entry);
    }
    return OK;
}

Status history_read(const char *dir, int64_t step, json_t **ret_summary) {
    CLEANUP(run_summary_done) RunSummary summary = run_summary_take(NULL);
    CLEANUP(json_decrefp) json_t *settings = NULL;
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(history_done) History history = {0};
    TRY(object_in(dir, RUN_SUMMARY_FILE, &summary.json));
    summary = run_summary_take(summary.json);
    if (summary.steps == (double)step && !summary.predicted) {
        *ret_summary = json_incref(summary.json);
        return OK;
    }
    TRY(object_in(dir, "config.json", &settings));
    TRY(path_join(&path, dir, "metrics.jsonl"));
    TRY(add_file(&history, path, step));
    return history_summary(&history, settings, ret_summary);
}

/* ---- merging two parts ---- */

static double sum_of(double a, double b) {
    return a + b;
}

/* Averages weighted by seconds. */
static void join_means(json_t *object, const json_t *earlier, const char *const *keys, size_t count,
                       const double seconds[2]) {
    for (size_t i = 0; i < count; i++) {
        double own = json_number_or(object, keys[i], NAN), before = json_number_or(earlier, keys[i], NAN);
        if (!isfinite(before)) continue;
        double mean = before;
        if (isfinite(own)) mean = (own * seconds[0] + before * seconds[1]) / (seconds[0] + seconds[1]);
        json_object_set_new(object, keys[i], json_real(mean));
    }
}

static void join_ranks(json_t *ranks, const json_t *earlier, const double seconds[2]) {
    static const char *const means[] = {"utilization", "gpu_utilization", "bubble"};
    static const char *const sums[] = {"comm_bytes", "comm_bytes_by_group", "phases"};
    if (json_array_size(ranks) != json_array_size(earlier)) return;
    for (size_t r = 0; r < json_array_size(ranks); r++) {
        json_t *own = json_array_get(ranks, r);
        const json_t *before = json_array_get(earlier, r);
        join_means(own, before, means, sizeof means / sizeof *means, seconds);
        for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
            join_numbers(json_object_get(own, sums[i]), json_object_get(before, sums[i]), sum_of);
        join_numbers(json_object_get(own, "peak_bytes"), json_object_get(before, "peak_bytes"), fmax);
    }
}

static bool same_member(const json_t *a, const json_t *b, const char *key) {
    const json_t *one = json_object_get(a, key), *two = json_object_get(b, key);
    return one == two || json_equal(one, two);
}

static bool same_layout(const json_t *a, const json_t *b) {
    static const char *const keys[] = {"ranks", "zero", "batch", "micro_batch", "device", "precision"};
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if (!same_member(a, b, axis_info(axis)->name)) return false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!same_member(a, b, keys[i])) return false;
    return true;
}

/* Metrics have only the maximum over ranks. If this part ended before its first step, its own per-rank peaks
 * are meaningless and are removed unless the earlier part has them. */
static void join_peaks(json_t *summary, const json_t *earlier, bool stepped) {
    const json_t *peak = json_object_get(earlier, "peak_bytes");
    json_t *own = json_object_get(summary, "peak_bytes"), *rank;
    size_t r;
    if (!json_is_object(peak)) return;
    if (own)
        join_numbers(own, peak, fmax);
    else
        json_object_set_new(summary, "peak_bytes", json_clone_deep(peak));
    json_array_foreach(json_object_get(summary, "ranks"), r, rank) {
        const json_t *before = json_array_get(json_object_get(earlier, "ranks"), r);
        if (!stepped && !json_object_get(before, "peak_bytes")) json_object_del(rank, "peak_bytes");
    }
}

/* Keeps the load of the part with more contention. */
static void join_load(json_t *summary, json_t *earlier) {
    const json_t *own = json_object_get(summary, "load");
    if (earlier && !(json_number_at(own, "contention") >= json_number_at(earlier, "contention")))
        json_object_set(summary, "load", earlier);
}

Status history_join(json_t *summary, const json_t *earlier) {
    static const char *const means[] = {"samples_per_s", "tokens_per_s", "utilization", "gpu_utilization",
                                        "mfu",           "bubble",       "tokens_per_j"};
    static const char *const sums[] = {
        "runtime_s",           "sent_bytes",       "between_nodes_bytes",       "phases",
        "comm_bytes_by_group", "other_sent_bytes", "other_between_nodes_bytes", "energy_j"};
    double own = json_number_or(summary, "steps_measured", NAN),
           before = json_number_or(earlier, "steps_measured", NAN);
    double seconds[2] = {own * json_number_or(summary, "step_ms", NAN),
                         before * json_number_or(earlier, "step_ms", NAN)};
    if (!isfinite(seconds[0])) seconds[0] = own = 0; /* this part ended before its first step */
    if (!(seconds[1] > 0)) return OK;
    if (!same_layout(json_object_get(summary, "layout"), json_object_get(earlier, "layout"))) return OK;
    CLEANUP(json_decrefp) json_t *numbers = json_object();
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        json_t *value = json_object_get(earlier, sums[i]);
        if (value) json_object_set(numbers, sums[i], value);
    }
    join_numbers(summary, numbers, sum_of);
    join_means(summary, earlier, means, sizeof means / sizeof *means, seconds);
    join_peaks(summary, earlier, own > 0);
    join_ranks(json_object_get(summary, "ranks"), json_object_get(earlier, "ranks"), seconds);
    json_object_set_new(summary, "step_ms", json_real((seconds[0] + seconds[1]) / (own + before)));
    json_object_set_new(summary, "steps_measured", json_integer((json_int_t)(own + before)));
    double excluded = json_number_at(summary, "steps_excluded") + json_number_at(earlier, "steps_excluded");
    json_object_set_new(summary, "steps_excluded", json_integer((json_int_t)excluded));
    join_load(summary, json_object_get(earlier, "load"));
    double goodput = json_number_or(summary, "samples_per_s", NAN) *
                     json_number_or(summary, "statistical_efficiency", NAN);
    if (isfinite(goodput)) json_object_set_new(summary, "goodput", json_real(goodput));
    return OK;
}
