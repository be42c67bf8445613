/* The figures of runs: where each value comes from, which are plausible, and how they are written. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "comm/axes.h"
#include "report/comparable.h"
#include "report/results.h"
#include "report/spread.h"
#include "report/study.h"
#include "report/text.h"
#include "train/noise.h"

const Figure figures[FIGURES] = {
    {"runtime_s", "runtime", FIGURE_FORMAT_SECONDS, -1, true, false},
    {"samples_per_s", "samples/s", FIGURE_FORMAT_RATE, 1, true, false},
    {"tokens_per_s", "tokens/s", FIGURE_FORMAT_RATE, 1, true, false},
    {"loss_last", "loss", FIGURE_FORMAT_LOSS, -1, false, false},
    {"val_loss", "val. loss", FIGURE_FORMAT_LOSS, -1, false, false},
    {"val_loss_mean", "mean val.", FIGURE_FORMAT_LOSS, -1, false, false},
    {"accuracy", "accuracy", FIGURE_FORMAT_SHARE, 1, false, false},
    {"f1", "F1", FIGURE_FORMAT_SHARE, 1, false, false},
    {"exact", "exact", FIGURE_FORMAT_SHARE, 1, false, false},
    {"utilization", "busy", FIGURE_FORMAT_SHARE, 1, true, false},
    {"peak_bytes", "memory", FIGURE_FORMAT_BYTES, -1, false, false},
    {"bubble", "bubble", FIGURE_FORMAT_SHARE, -1, true, false},
    {"sent_bytes", "sent", FIGURE_FORMAT_BYTES, -1, false, false},
    {"sent_per_rank", "sent/rank", FIGURE_FORMAT_BYTES, -1, false, true},
    {"between_nodes_bytes", "between nodes", FIGURE_FORMAT_BYTES, -1, false, false},
    {"mfu", "MFU", FIGURE_FORMAT_SHARE, 1, true, false},
    {"noise_scale", "noise scale", FIGURE_FORMAT_NUMBER, 0, false, false},
    {"statistical_efficiency", "efficiency", FIGURE_FORMAT_NUMBER, 1, false, false},
    {"goodput", "goodput", FIGURE_FORMAT_RATE, 1, true, false},
    {"steps", "steps", FIGURE_FORMAT_WHOLE, 0, false, true},
    {"step_ms", "ms/step", FIGURE_FORMAT_MS, -1, true, true},
    {"epoch_s", "time/epoch", FIGURE_FORMAT_SECONDS, -1, true, false},
    {"params_stored", "parameters", FIGURE_FORMAT_COUNT, 0, false, true},
    {"tp", "tp", FIGURE_FORMAT_WHOLE, 0, false, true},
    {"params_per_rank", "params/rank", FIGURE_FORMAT_COUNT, 0, false, true},
    {"work", "params x samples/s", FIGURE_FORMAT_RATE, 1, true, true},
    {"cost_per_million_tokens", "cost/M tokens", FIGURE_FORMAT_COST, -1, true, false},
    {"cost", "cost", FIGURE_FORMAT_COST, -1, true, false},
    {"energy_j", "energy", FIGURE_FORMAT_JOULES, -1, true, false},
    {"tokens_per_j", "tokens/J", FIGURE_FORMAT_RATE, 1, true, false},
};

/* Files may be damaged or edited by hand. */
static bool is_plausible(FigureFormat unit, double value) {
    if (unit == FIGURE_FORMAT_LOSS) return fabs(value) <= MAX_LOSS;
    return value >= 0 && value <= (unit == FIGURE_FORMAT_SHARE ? 2 : 1e18);
}

bool figure_is_timed(size_t figure) {
    return figures[figure].timed;
}

bool figure_is_quality(size_t figure) {
    return figure >= FIGURE_LOSS && figure <= FIGURE_EXACT;
}

const EpochColumn epoch_columns[EPOCH_COLUMNS] = {
    {"seconds", "time", FIGURE_FORMAT_SECONDS},
    {"loss", "mean loss", FIGURE_FORMAT_LOSS},
    {"val_loss", "val. loss", FIGURE_FORMAT_LOSS},
    {"accuracy", "accuracy", FIGURE_FORMAT_SHARE},
    {"f1", "F1", FIGURE_FORMAT_SHARE},
    {"exact", "exact", FIGURE_FORMAT_SHARE},
};

double epoch_value(const RunEpoch *epoch, size_t column) {
    double value = epoch->values[column];
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

/* The parameters that the ranks of one replica hold together, or one of them. Older runs recorded neither,
 * but without tensor and pipeline parallelism both are the size of the model. */
static double params_of(const RunSummary *summary, double known) {
    double model = 1;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if (!axis_info(axis)->copies)
            model *= json_number_or(summary->layout, axis_info(axis)->name, axis_info(axis)->shown ? NAN : 1);
    return isfinite(known) || model != 1 ? known : summary->params_total;
}

/* The value in a summary, unchecked. */
static double summary_figure(const RunSummary *summary, size_t figure) {
    switch (figure) {
    case FIGURE_PEAK: return peak_of(summary);
    case FIGURE_SENT: return sent_of(summary);
    case FIGURE_SENT_RANK: return sent_of(summary) / json_number_or(summary->layout, "ranks", NAN);
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
    for (size_t i = 0; i < run->epoch_count; i++) sum += run->epochs[i].values[EPOCH_SECONDS];
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

static bool is_cost(size_t figure) {
    return figure == FIGURE_COST || figure == FIGURE_COST_TOKENS;
}

/* Whether a prediction's figure follows from a power that replaces its cluster's. */
static bool is_powered(const Run *run, const RunSummary *summary, size_t figure) {
    return run->of->power > 0 && summary->predicted &&
           (figure == FIGURE_ENERGY || figure == FIGURE_TOKENS_JOULE);
}

static double energy_of(const Run *run, const RunSummary *summary, size_t figure) {
    double watts = run->of->power * summary->priced_units;
    return figure == FIGURE_ENERGY ? watts * summary->runtime_s : summary->tokens_per_s / watts;
}

double run_single_figure(const Run *run, size_t figure) {
    if (is_cost(figure)) return cost_of(run, &run->summary, figure);
    if (is_powered(run, &run->summary, figure)) return energy_of(run, &run->summary, figure);
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

/* Of a prediction. */
static double predicted_figure(const Run *run, const RunSummary *summary, size_t figure) {
    if (is_powered(run, summary, figure)) return energy_of(run, summary, figure);
    return is_cost(figure) ? cost_of(run, summary, figure) : checked_figure(summary, figure);
}

/* Of the prediction for weft next to one for another program. */
static double weft_figure(const Run *run, const RunSummary *summary, size_t figure) {
    CLEANUP(run_summary_done) RunSummary weft = run_summary_take(json_incref(summary->weft));
    return weft.json ? predicted_figure(run, &weft, figure) : NAN;
}

double run_source_figure(const Run *run, FigureSource source, size_t figure) {
    bool own = (source == SOURCE_PREDICTED) == (run_predicted(run) != NULL);
    const RunSummary *summary = run_predicted(run) ? &run->summary : &run->prediction;
    if (figure == FIGURE_WORK && source != SOURCE_WEFT)
        return source != SOURCE_PUBLISHED || study_lists(run->of, figure) ? run_work(run, source) : NAN;
    switch (source) {
    case SOURCE_PUBLISHED: return json_number_or(run->published, figures[figure].key, NAN);
    case SOURCE_WEFT: return weft_figure(run, summary, figure);
    case SOURCE_PREDICTED:
        return own ? run_figure(run, figure) : predicted_figure(run, &run->prediction, figure);
    default: return own ? run_figure(run, figure) : NAN;
    }
}

bool run_has_source(const Run *run, FigureSource source) {
    for (size_t f = 0; f < FIGURES; f++)
        if (isfinite(run_source_figure(run, source, f))) return true;
    return false;
}

double run_from_published(const Run *run, FigureSource source, size_t figure) {
    /* studies define efficiency in ways of their own */
    if (figure == FIGURE_EFFICIENCY || figure == FIGURE_GOODPUT) return NAN;
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

/* ---- ignored values ---- */

/* Appends to `note` why a value of the summary is ignored. */
static void add_invalid(char *note, size_t size, const char *key, const json_t *json, double value) {
    const char *separator = *note ? "; " : "summary.json: ";
    if (json && !json_is_number(json))
        text_append(note, size, "%signoring %s (not a number)", separator, key);
    else
        text_append(note, size, "%signoring %s (%g is out of range)", separator, key, value);
}

void summary_faults(const RunSummary *summary, char *note, size_t size) {
    static const char *const counts[] = {"params_total", "ranks", "batch"};
    *note = 0;
    for (size_t f = 0; f < FIGURES; f++) {
        const json_t *json = json_object_get(summary->json, figures[f].key);
        bool present = json && !json_is_null(json) && !json_is_object(json);
        double value = summary_figure(summary, f);
        if ((present && !json_is_number(json)) || (isfinite(value) && !is_plausible(figures[f].unit, value)))
            add_invalid(note, size, figures[f].key, present ? json : NULL, value);
    }
    /* Counts in a derived summary are copied from the settings, where 0 means "auto". */
    bool own = !summary->by_metrics;
    for (size_t i = 0; own && i < sizeof counts / sizeof *counts; i++) {
        const json_t *of = i ? summary->layout : summary->json;
        const json_t *json = json_object_get(of, counts[i]);
        if (json && !json_is_null(json) && !(json_number_or(of, counts[i], NAN) >= 1))
            add_invalid(note, size, counts[i], json, json_number_or(of, counts[i], NAN));
    }
}

/* ---- comparing ---- */

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
    results_foreach(results, run) {
        if (isfinite(run_figure(run, figure))) return true;
        if (published && isfinite(run_source_figure(run, SOURCE_PUBLISHED, figure))) return true;
    }
    return false;
}

/* ---- text ---- */

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

const char *time_text(char *buffer, double seconds) {
    int unit = seconds >= 1 ? 0 : seconds >= 1e-3 ? 1 : 2;
    double value = seconds * (double[]){1, 1e3, 1e6}[unit];
    snprintf(buffer, FORMAT_SIZE, value < 100 ? "%.3g%s" : "%.0f%s", fmax(value, 0),
             value > 0 ? (const char *[]){" s", " ms", " µs"}[unit] : "");
    return buffer;
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
