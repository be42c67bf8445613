/* Reads summaries and settings with defensive accessors: values of the wrong type or out of range count as
 * unknown. Runs are compared by what their layout and settings record; a key that is absent from both runs
 * counts as equal. */
#include "report/comparable.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "comm/axes.h"
#include "report/spread.h"
#include "report/text.h"

static const json_t *layout_of(const Run *run) {
    return run->summary.layout;
}

static double number(const json_t *value) {
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static double count_of(const json_t *value) {
    double count = number(value);
    return count >= 1 ? count : NAN;
}

double run_ranks(const Run *run) {
    double ranks = count_of(json_object_get(layout_of(run), "ranks"));
    if (isfinite(ranks)) return ranks;
    size_t count = json_array_size(run->summary.ranks);
    return count ? (double)count : NAN;
}

double run_batch(const Run *run) {
    return count_of(json_object_get(layout_of(run), "batch"));
}

double run_params(const Run *run) {
    double total = run->summary.params_total, adapters = run->summary.params_adapters;
    if (adapters > 0 && adapters < total) total -= adapters;
    return total >= 1 ? total : NAN;
}

double run_threads(const Run *run) {
    return count_of(json_object_get(layout_of(run), "threads"));
}

const char *run_text(const Run *run, const char *key) {
    return json_string_at(layout_of(run), key);
}

/* ---- layout descriptions ---- */

/* Appends a part, after a separator unless it is the first. */
static void append(char *buffer, const char *separator, const char *text, const char *value) {
    text_append(buffer, LAYOUT_SIZE, "%s%s%.40s", *buffer ? separator : "", text, value);
}

static void append_number(char *buffer, const char *separator, const Run *run, const char *key, double above,
                          const char *name) {
    double value = number(json_object_get(layout_of(run), key));
    if (value > above) text_append(buffer, LAYOUT_SIZE, "%s%s %.0f", *buffer ? separator : "", name, value);
}

/* Appends the layout's value of `key`, unless it is the default. */
static void append_unless(char *buffer, const Run *run, const char *key, const char *standard,
                          const char *prefix) {
    const char *value = run_text(run, key);
    if (value && strcmp(value, standard)) append(buffer, ", ", prefix, value);
}

static bool uses_axis(const Run *run, Axis axis) {
    return number(json_object_get(layout_of(run), axis_info(axis)->name)) > 1;
}

const char *run_layout(const Run *run, char *buffer) {
    buffer[0] = 0;
    if (!layout_of(run)) return buffer;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        append_number(buffer, " x ", run, axis_info(axis)->name, 1, axis_info(axis)->name);
    if (!*buffer) append(buffer, "", "1 rank", "");
    if (uses_axis(run, AXIS_CP)) {
        append_unless(buffer, run, "cp_mode", "auto", "cp-mode ");
        append_number(buffer, ", ", run, "cp_heads", 0, "cp-heads");
    }
    append_number(buffer, ", ", run, "ep", 1, "ep");
    append_number(buffer, ", ", run, "zero", 0, "ZeRO");
    append_number(buffer, ", ", run, "sync_every", 0, "sync every");
    if (number(json_object_get(layout_of(run), "pp")) > 1)
        append_unless(buffer, run, "pp_schedule", "1f1b", "");
    append_unless(buffer, run, "recompute", "none", "recompute ");
    append_unless(buffer, run, "offload", "none", "offload ");
    return buffer;
}

const char *run_strategy(const Run *run, char *buffer) {
    int used = 0;
    buffer[0] = 0;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) used += uses_axis(run, axis);
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) {
        if (!uses_axis(run, axis)) continue;
        if (axis == AXIS_DP && number(json_object_get(layout_of(run), "zero")) > 0)
            append_number(buffer, " x ", run, "zero", 0, "ZeRO");
        else
            append(buffer, " x ", axis_info(axis)->title, used > 1 ? "" : " parallel");
    }
    if (!*buffer) append(buffer, "", "1 rank", "");
    return buffer;
}

/* ---- equality ---- */

static bool same_value(const json_t *a, const json_t *b, const char *key) {
    const json_t *one = json_object_get(a, key), *two = json_object_get(b, key);
    return one == two || json_equal(one, two);
}

/* Whether two objects have the same values of the keys, which end with NULL. */
static bool same_values(const json_t *a, const json_t *b, const char *const *keys) {
    for (; *keys; keys++)
        if (!same_value(a, b, *keys)) return false;
    return true;
}

static bool same_layout(const Run *a, const Run *b, const char *const *keys) {
    return same_values(layout_of(a), layout_of(b), keys);
}

static bool same_mesh(const Run *a, const Run *b) {
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if (!same_value(layout_of(a), layout_of(b), axis_info(axis)->name)) return false;
    return same_value(layout_of(a), layout_of(b), "ep");
}

/* Both runs were measured, or both are predictions for the same cluster. */
static bool same_hardware(const Run *a, const Run *b) {
    const char *one = run_predicted(a), *two = run_predicted(b);
    return one && two ? !strcmp(one, two) : one == two;
}

static bool same_number(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

bool same_except_batch(const Run *a, const Run *b) {
    static const char *const keys[] = {"zero",       "offload", "recompute", "precision", "device",
                                       "sync_every", "cp_mode", "cp_heads",  NULL};
    return same_mesh(a, b) && same_layout(a, b, keys) && same_number(run_params(a), run_params(b)) &&
           same_hardware(a, b);
}

/* True also if the settings of either run are unknown. */
static bool same_settings(const Run *a, const Run *b, const char *const *keys) {
    return !a->settings || !b->settings || same_values(a->settings, b->settings, keys);
}

/* Runs of earlier versions lack the setting. */
static bool counts_from_zero(const Run *run) {
    return json_is_true(json_object_get(run->settings, "schedule-from-zero"));
}

static const char *setting(const Run *run, const char *key) {
    const char *text = json_string_at(run->settings, key);
    return text ? text : "";
}

/* The task, with "auto" resolved from the model's name; "" if unknown. */
static const char *task_of(const Run *run) {
    const char *task = setting(run, "task");
    if (!strcmp(task, "squad")) return "span";
    if (strcmp(task, "auto")) return task;
    return strstr(setting(run, "model"), "bert") ? "mlm" : "lm";
}

bool same_task(const Run *a, const Run *b) {
    const char *one = task_of(a), *two = task_of(b);
    return !*one || !*two || !strcmp(one, two);
}

/* From the summary, else from the settings. */
static double seq_of(const Run *run) {
    double seq = count_of(json_object_get(layout_of(run), "seq"));
    return isfinite(seq) ? seq : count_of(json_object_get(run->settings, "seq"));
}

bool same_sequences(const Run *a, const Run *b) {
    double one = seq_of(a), two = seq_of(b);
    return same_task(a, b) && !(one < two) && !(one > two);
}

bool same_size(const Run *a, const Run *b) {
    double one = run_params(a), two = run_params(b);
    return !(one < two) && !(one > two);
}

bool same_kind(const Run *a, const Run *b) {
    return same_sequences(a, b) && same_size(a, b);
}

size_t kind_size(const Results *results, const Run *run) {
    size_t count = 0;
    results_foreach(results, other) count += run_shows(other) && same_kind(other, run);
    return count;
}

bool one_task(const Results *results) {
    const Run *base = results_base(results);
    results_foreach(results, run) {
        if (run->state == RUN_FINISHED && !same_task(run, base)) return false;
    }
    return true;
}

bool same_training(const Run *a, const Run *b) {
    static const char *const keys[] = {"batch", "precision", NULL};
    static const char *const settings[] = {"task",          "seq",         "data",
                                           "seed",          "shuffle",     "steps",
                                           "epochs",        "lr",          "min-lr",
                                           "warmup",        "beta1",       "beta2",
                                           "eps",           "clip",        "weight-decay",
                                           "dropout",       "schedule",    "quantize-aware",
                                           "stride",        "seq-warmup",  "seq-warmup-from",
                                           "data-fraction", "untie",       "mask-rate",
                                           "optimizer",     "momentum",    "nesterov",
                                           "muon-scale",    "adamw-lr",    "group",
                                           "freeze",        "decay-steps", "decay-type",
                                           "rope-scaling",  "balance",     "balance-coef",
                                           "z-loss",        "top-k",       "lora",
                                           "lora-alpha",    "rslora",      "lora-dropout",
                                           "lora-targets",  "lora-base",   NULL};
    return same_layout(a, b, keys) && same_number(run_params(a), run_params(b)) &&
           same_settings(a, b, settings) && counts_from_zero(a) == counts_from_zero(b);
}

bool results_differ(const Results *results, RunNumber number_of) {
    double first = NAN;
    results_foreach(results, run) {
        double value = number_of(run);
        if (!isfinite(value)) continue;
        if (isfinite(first) && value != first) return true;
        first = value;
    }
    return false;
}

const char *results_share(const Results *results, const char *key) {
    const char *shared = NULL;
    results_foreach(results, run) {
        const char *text = run_text(run, key);
        if (!text) continue;
        if (shared && strcmp(shared, text)) return NULL;
        shared = text;
    }
    return shared;
}

/* ---- loss curves ---- */

double curve_at(const Curve *curve, double step) {
    size_t low = 0, high = curve->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (curve->step[middle] < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low < curve->count && curve->step[low] == step ? curve->value[low] : NAN;
}

double curve_difference(const Curve *a, const Curve *b) {
    double largest = NAN;
    for (size_t i = 0; i < a->count; i++) {
        double difference = fabs(curve_at(b, a->step[i]) - a->value[i]) / fabs(a->value[i]);
        if (isfinite(difference) && !(difference <= largest)) largest = difference;
    }
    return largest;
}

bool has_losses(const Run *run) {
    return run->state == RUN_FINISHED && run->loss.count > 0;
}

double max_loss_difference(const Results *results, bool *ret_all) {
    const Run *first = NULL;
    double largest = NAN;
    *ret_all = true;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (!has_losses(run)) continue;
        if (!first) first = run;
        *ret_all &= same_training(run, first);
        for (size_t k = 0; k < i; k++) {
            if (!has_losses(&results->runs[k]) || !same_training(run, &results->runs[k])) continue;
            double difference = curve_difference(&run->loss, &results->runs[k].loss);
            if (isfinite(difference) && !(difference <= largest)) largest = difference;
        }
    }
    return largest;
}

const char *difference_text(char *buffer, double difference) {
    snprintf(buffer, FORMAT_SIZE, "%.1e", difference);
    char *exponent = strstr(buffer, "e-0");
    if (exponent) memmove(exponent + 2, exponent + 3, strlen(exponent + 3) + 1);
    return buffer;
}

/* ---- scaling ---- */

static bool scales(const Run *run) {
    return run->state == RUN_FINISHED && !run_contended(run) && run_ranks(run) > 0 &&
           run_figure(run, FIGURE_TOKENS) > 0;
}

/* The same model, task and precision on the same kind of hardware; the number of ranks may differ. */
static bool same_job(const Run *a, const Run *b) {
    static const char *const keys[] = {"precision", "recompute", "device", NULL}, *const settings[] = {
                                                                                      "task", "seq", NULL};
    return scales(a) && scales(b) && same_layout(a, b, keys) && same_hardware(a, b) &&
           run_params(a) == run_params(b) && same_settings(a, b, settings);
}

static double batch_per_rank(const Run *run) {
    return run_batch(run) / run_ranks(run);
}

/* Among runs of the same job with the same value of `batch`, the one with the fewest ranks; NULL if they all
 * have the same number of ranks. */
static const Run *fewest_ranks(const Results *results, const Run *run, RunNumber batch) {
    const Run *base = NULL;
    bool ranks_differ = false;
    results_foreach(results, other) {
        if (!same_job(other, run) || !same_number(batch(other), batch(run))) continue;
        ranks_differ |= run_ranks(other) != run_ranks(run);
        if (!base || run_ranks(other) < run_ranks(base)) base = other;
    }
    return ranks_differ ? base : NULL;
}

double scaling_efficiency(const Results *results, const Run *run, const Run **ret_base) {
    const Run *base = fewest_ranks(results, run, run_batch);
    if (!base) base = fewest_ranks(results, run, batch_per_rank);
    if (!base) return NAN;
    *ret_base = base;
    return run_figure(run, FIGURE_TOKENS) / run_ranks(run) /
           (run_figure(base, FIGURE_TOKENS) / run_ranks(base));
}

/* ---- the best ---- */

/* Whether another run has finished and has the figure. */
static bool has_rival(const Run *run, FigureId figure) {
    const Results *results = run->of;
    results_foreach(results, other) {
        if (other != run && other->state == RUN_FINISHED && isfinite(run_figure(other, figure))) return true;
    }
    return false;
}

bool run_ranked(const Run *run, FigureId figure) {
    if (run->state != RUN_FINISHED || !isfinite(run_figure(run, figure))) return false;
    if (figure_is_timed(figure) && run_contended(run)) return false;
    return figure_is_settled(run, figure) || !has_rival(run, figure);
}

/* As results_best, of all runs but one. */
static const Run *best_but(const Results *results, const Run *other, const Run *like, FigureId figure,
                           int sign) {
    const Run *best = NULL;
    results_foreach(results, run) {
        double value = run_figure(run, figure);
        if (run == other || !run_ranked(run, figure) || (like && !same_size(run, like))) continue;
        if (!best || sign * value > sign * run_figure(best, figure)) best = run;
    }
    return best;
}

const Run *results_best(const Results *results, const Run *like, FigureId figure, int sign) {
    return best_but(results, NULL, like, figure, sign);
}

const Run *results_runner_up(const Results *results, const Run *winner) {
    return best_but(results, winner, winner, FIGURE_TOKENS, 1);
}
