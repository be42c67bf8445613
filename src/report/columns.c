/* Columns are compared as text: values that print alike are the same to a reader. */
#include "report/table.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/terminal.h"
#include "report/comparable.h"
#include "report/spread.h"
#include "report/study.h"
#include "report/text.h"

/* Whether all runs that have figures have this one. */
static bool is_complete(const Results *results, size_t figure) {
    results_foreach(results, run) {
        if (run_shows(run) && !isfinite(run_figure(run, figure))) return false;
    }
    return true;
}

/* Whether all of at least two runs have the same value. */
static bool is_equal(const Results *results, size_t figure) {
    char first[FORMAT_SIZE] = "", text[FORMAT_SIZE];
    size_t count = 0;
    if (!is_complete(results, figure)) return false;
    results_foreach(results, run) {
        if (!run_shows(run)) continue;
        run_figure_text(text, run, figure, true);
        if (count++ && strcmp(first, text)) return false;
        memcpy(first, text, sizeof first);
    }
    return count > 1;
}

/* Whether the time of an epoch is of interest: a run trains for epochs, or the study reports it. */
static bool has_epochs(const Results *results) {
    results_foreach(results, run) {
        if (json_number_at(run->settings, "epochs") > 0) return true;
        if (results_published(results) && isfinite(run_source_figure(run, SOURCE_PUBLISHED, FIGURE_EPOCH)))
            return true;
    }
    return false;
}

static bool has_nodes(const Results *results) {
    for (size_t i = 0; i < results->count; i++)
        if (run_figure(&results->runs[i], FIGURE_BETWEEN) > 0) return true;
    return false;
}

/* Whether every run that has the figure has the value that says nothing: no bubble, no traffic, full
 * efficiency. */
static bool is_neutral(const Results *results, size_t figure) {
    double neutral = figure == FIGURE_BUBBLE || figure == FIGURE_SENT ? 0
                     : figure == FIGURE_EFFICIENCY                    ? 1
                                                                      : NAN;
    bool any = false;
    for (size_t i = 0; i < results->count; i++) {
        double value = run_figure(&results->runs[i], figure);
        if (!isfinite(value)) continue;
        if (value != neutral) return false;
        any = true;
    }
    return any;
}

/* Whether the figure needs no column: no study reported it, and our runs do not differ in it. */
static bool is_folded(const Results *results, size_t figure) {
    return !figure_is_published(results, figure) &&
           (is_equal(results, figure) || is_neutral(results, figure));
}

/* Tokens per sample, if they are the same in all runs: samples/s then says nothing that tokens/s does not.
 * NAN otherwise, and where a study has samples/s. */
static double tokens_per_sample(const Results *results) {
    double tokens = NAN;
    for (size_t i = 0; i < results->count && !results->study; i++) {
        const Run *run = &results->runs[i];
        double own = run_figure(run, FIGURE_TOKENS) / run_figure(run, FIGURE_SAMPLES);
        if (!run_shows(run)) continue;
        if (!isfinite(own) || fabs(own - tokens) > 1e-6 * own) return NAN;
        tokens = own;
    }
    return tokens;
}

static void add(Columns *columns, const Results *results, size_t figure) {
    if (!results_have(results, figure) || (figure == FIGURE_EPOCH && !has_epochs(results))) return;
    if (figure == FIGURE_BETWEEN && !has_nodes(results)) return;
    if (figure == FIGURE_GOODPUT && is_folded(results, FIGURE_EFFICIENCY)) return; /* samples/s again */
    if (figure == FIGURE_SAMPLES && isfinite(columns->tokens_per_sample)) return;
    if (!is_folded(results, figure))
        columns->shown[columns->count++] = figure;
    else if (is_complete(results, figure))
        columns->equal[columns->equal_count++] = figure;
}

Columns results_columns(const Results *results) {
    Columns columns = {.tokens_per_sample = tokens_per_sample(results)};
    const json_t *listed = json_object_get(results->study, "columns"), *name;
    bool added[FIGURES] = {false};
    size_t i;
    json_array_foreach(listed, i, name) {
        for (size_t f = 0; f < FIGURES; f++) {
            if (added[f] || !json_is_string(name) || strcmp(figures[f].key, json_string_value(name)))
                continue;
            add(&columns, results, f);
            added[f] = true;
        }
    }
    for (size_t f = 0; !listed && f < FIGURES; f++)
        if (!figures[f].named || figure_is_published(results, f)) add(&columns, results, f);
    return columns;
}

Columns results_own_columns(const Results *results) {
    Columns columns = results_columns(results);
    size_t kept = 0;
    for (size_t i = 0; i < columns.count; i++) {
        bool any = false;
        for (size_t k = 0; k < results->count && !any; k++)
            any = isfinite(run_figure(&results->runs[k], columns.shown[i]));
        if (any) columns.shown[kept++] = columns.shown[i];
    }
    columns.count = kept;
    return columns;
}

/* ---- cells ---- */

const char *cell_text(char *buffer, const Run *run, size_t figure, bool utf8) {
    char value[FORMAT_SIZE], spread[FORMAT_SIZE];
    run_figure_text(value, run, figure, utf8);
    spread_text(spread, run, figure, utf8);
    snprintf(buffer, CELL_SIZE, "%s%s%s", value, *spread ? " " : "", spread);
    return buffer;
}

Change change_text(char *buffer, const Run *run, size_t figure, bool utf8) {
    double difference = run_difference(run->of, run, figure);
    const Run *base = run_base(run->of, run);
    char percent[FORMAT_SIZE];
    bool tie = figure_is_timed(figure) && figures_tie(run, base, figure),
         settled = figures_settled(run, base, figure);
    percent_text(percent, difference, utf8);
    buffer[0] = 0;
    if (!isfinite(difference)) return CHANGE_NONE;
    snprintf(buffer, CELL_SIZE, tie ? "tie" : settled ? "%s" : "(%s)", percent);
    if (tie || !settled || fabs(difference) < 0.05) return CHANGE_SAME;
    return (difference > 0) == (figures[figure].better > 0) ? CHANGE_BETTER : CHANGE_WORSE;
}

/* ---- the note ---- */

static void put_equal(FILE *out, const Results *results, const Columns *columns) {
    const Run *run = NULL;
    char text[FORMAT_SIZE];
    for (size_t i = 0; i < results->count && !run; i++)
        if (run_shows(&results->runs[i])) run = &results->runs[i];
    for (size_t i = 0; run && i < columns->equal_count; i++) {
        for (size_t k = 0; k < results->count && !isfinite(run_figure(run, columns->equal[i])); k++)
            run = &results->runs[k];
        fprintf(out, "%s%s %s",
                i                    ? ", "
                : results->count > 1 ? "The same in all runs: "
                                     : "Also: ",
                figures[columns->equal[i]].heading, run_figure_text(text, run, columns->equal[i], true));
    }
    if (columns->equal_count) fputs(". ", out);
    if (isfinite(columns->tokens_per_sample))
        fprintf(out, "A sample has %.6g tokens, so samples/s is tokens/s divided by %.6g. ",
                columns->tokens_per_sample, columns->tokens_per_sample);
}

/* Names every program other than weft once. */
static void put_programs(FILE *out, const Results *results) {
    bool any = false, measured = false;
    for (size_t i = 0; i < results->count; i++) {
        const char *program = run_program(&results->runs[i]);
        bool named = false;
        measured |= run_has_source(&results->runs[i], SOURCE_MEASURED);
        for (size_t k = 0; program && k < i && !named; k++)
            named = run_program(&results->runs[k]) && !strcmp(run_program(&results->runs[k]), program);
        if (!program || named) continue;
        fprintf(out, "%s%s", any ? " and " : "Predictions are for ", program);
        any = true;
    }
    if (any) fprintf(out, ", not for weft%s. ", measured ? "; measured figures are weft's" : "");
}

/* The baselines of all kinds with at least two runs, if there are several kinds. */
static void put_bases(FILE *out, const Results *results) {
    bool any = false, several = false;
    for (size_t i = 0; i < results->count; i++)
        several |= run_shows(&results->runs[i]) && !same_kind(&results->runs[i], results_base(results));
    for (size_t i = 0; i < results->count && several; i++) {
        const Run *run = &results->runs[i];
        if (run_base(results, run) != run || run->state != RUN_FINISHED || kind_size(results, run) < 2)
            continue;
        fprintf(out, "%s“%s”",
                any ? ", "
                    : "Percentages compare runs with the same model size, task and sequence length; "
                      "baselines: ",
                run->name);
        any = true;
    }
    if (any) fputs(". ", out);
}

/* What costs and predicted energy assume of a GPU or host. */
typedef struct Assumption {
    const char *subject, *unit, *name;
    size_t figure;             /* that depends on it */
    double (*of)(const Run *); /* NAN: unknown */
    bool given;                /* by an option, for all runs */
} Assumption;

static double price_of(const Run *run) {
    return run->of->price > 0 ? run->of->price : run->summary.price_per_hour;
}

static double power_of(const Run *run) {
    return run->of->power > 0 ? run->of->power : run->summary.power_watts;
}

/* Where the value comes from: the cluster of a prediction, or the GPU of a run. */
static const char *owner_of(const Run *run) {
    const json_t *gpus = json_object_get(run->summary.machine, "gpus");
    return run_predicted(run) ? run_predicted(run) : json_string_at(json_array_get(gpus, 0), "name");
}

static void put_assumption(FILE *out, const Results *results, Assumption assumed) {
    const char *names[2] = {NULL, NULL};
    double values[2];
    size_t count = 0;
    for (size_t i = 0; i < results->count && count < 2; i++) {
        const Run *run = &results->runs[i];
        double value = assumed.of(run);
        if (!isfinite(value) || !isfinite(run_figure(run, assumed.figure))) continue;
        if (count && value == values[0]) continue;
        names[count] = owner_of(run);
        values[count++] = value;
    }
    if (!count) return;
    fprintf(out, "%s %.6g %s for each GPU or host without GPUs", assumed.subject, values[0], assumed.unit);
    if (!assumed.given && names[0]) fprintf(out, ", the %s of %s", assumed.name, names[0]);
    if (count > 1) fprintf(out, ", and %.6g of %s", values[1], names[1] ? names[1] : "others");
    fputs(". ", out);
}

Status columns_note(const Results *results, const Columns *columns, char **ret_text) {
    CLEANUP(text_done) Text text = {0};
    TRY(text_open(&text));
    put_equal(text.out, results, columns);
    put_programs(text.out, results);
    put_assumption(text.out, results,
                   (Assumption){"Costs assume", "per hour", "price", FIGURE_COST_TOKENS, price_of,
                                .given = results->price > 0});
    put_assumption(text.out, results,
                   (Assumption){"Predicted energy assumes", "W", "rated power", FIGURE_TOKENS_JOULE, power_of,
                                .given = results->power > 0});
    put_bases(text.out, results);
    TRY(text_take(&text, ret_text, NULL));
    terminal_clean(*ret_text);
    return OK;
}
