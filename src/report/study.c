/* Claims are relations between figures, so a recipe states the conclusions of its study as data. A claim is
 * evaluated on one kind of value: mixing a measured with a predicted figure would compare two machines. */
#include "report/study.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "base/suggest.h"
#include "report/compressed.h"
#include "report/spread.h"
#include "report/steps.h"
#include "report/text.h"
#include "tokenizer/tokenizer.h"

#define DEFAULT_BY 0.01 /* repeated runs of the same configuration differ by about this much */

static const char out_of_memory[] = "out of memory";
static const char peak_gib[] = "peak_gib";

/* ---- checks ---- */

static Status unknown_key(const char *from, const char *key, const char *const *keys, bool with_figures) {
    Suggestion near = {.word = key};
    for (; *keys; keys++) suggest_offer(&near, *keys);
    for (size_t f = 0; with_figures && f < FIGURES; f++) suggest_offer(&near, figures[f].key);
    if (near.best) return USAGE("%s: unknown key '%s'; did you mean '%s'?", from, key, near.best);
    return USAGE("%s: unknown key '%s'; see docs/comparing.md", from, key);
}

static bool find_figure(const char *key, size_t *ret_figure) {
    for (size_t f = 0; key && f < FIGURES; f++) {
        if (strcmp(figures[f].key, key)) continue;
        *ret_figure = f;
        return true;
    }
    return false;
}

static Status check_figure(const json_t *name, const char *from) {
    size_t figure;
    const char *key = json_string_value(name);
    static const char *const none[] = {NULL};
    if (!key) return USAGE("%s: expected the name of a figure, such as \"samples_per_s\"", from);
    return find_figure(key, &figure) ? OK : unknown_key(from, key, none, true);
}

/* Checks that an object has only these keys, and strings below the first `texts` of them. */
static Status check_keys(const json_t *object, const char *from, const char *const *keys, size_t texts) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        size_t at = 0;
        while (keys[at] && strcmp(key, keys[at])) at++;
        if (!keys[at]) return unknown_key(from, key, keys, false);
        if (at < texts && !json_is_string(value)) return USAGE("%s: %s: expected a string", from, key);
    }
    return OK;
}

Status published_check(const json_t *published, const char *from) {
    static const char *const keys[] = {"hardware", "source", "outcome", "by_step", peak_gib, NULL};
    enum { TEXTS = 3, NUMBERS = 4 }; /* the first are texts, the last numbers */
    const char *key;
    json_t *value;
    size_t figure, at;
    if (!published || json_is_null(published)) return OK;
    if (!json_is_object(published))
        return USAGE("%s: published: expected an object with the study's figures", from);
    json_object_foreach((json_t *)(uintptr_t)published, key, value) {
        for (at = 0; keys[at] && strcmp(key, keys[at]);) at++;
        if (!keys[at] && !find_figure(key, &figure)) return unknown_key(from, key, keys, true);
        if (at < TEXTS && !json_is_string(value)) return USAGE("%s: %s: expected a string", from, key);
        if (at >= NUMBERS && !json_is_number(value))
            return USAGE("%s: published: %s: expected a number", from, key);
    }
    TRY(steps_check(json_object_get(published, "by_step"), from));
    const char *outcome = json_string_at(published, "outcome");
    if (outcome && strcmp(outcome, out_of_memory))
        return USAGE("%s: published: outcome: expected \"%s\"", from, out_of_memory);
    return OK;
}

Status published_settle(const json_t *published, json_t **ret_published) {
    json_t *copy = json_clone(published);
    if (!copy) return FAILED("out of memory");
    const json_t *gib = json_object_get(copy, peak_gib);
    if (gib) json_object_set_new(copy, figures[FIGURE_PEAK].key, json_real(0x1p30 * json_number_value(gib)));
    json_object_del(copy, peak_gib);
    *ret_published = copy;
    return OK;
}

static bool is_relation(const char *text, const char *relation) {
    return text && !strcmp(text, relation);
}

static Status check_run_names(const json_t *runs, const char *from) {
    const json_t *run;
    size_t i;
    if (json_is_string(runs)) return OK;
    if (!json_array_size(runs)) return USAGE("%s: run: expected the name of a run or a list of names", from);
    json_array_foreach(runs, i, run) if (!json_is_string(run)) return USAGE(
        "%s: run: entry %zu: expected the name of a run", from, i + 1);
    return OK;
}

static Status check_claim(const json_t *claim, const char *from) {
    static const char *const keys[] = {"text", "figure", "relation", "than", "run", "by", NULL};
    const char *relation = json_string_at(claim, "relation");
    if (!json_is_object(claim)) return USAGE("%s: expected an object", from);
    TRY(check_keys(claim, from, keys, 4));
    if (!json_object_get(claim, "text")) return USAGE("%s: expected a 'text' that states the claim", from);
    TRY(check_run_names(json_object_get(claim, "run"), from));
    const json_t *by = json_object_get(claim, "by");
    if (by && !(json_is_number(by) && json_number_value(by) >= 0))
        return USAGE("%s: by: expected a fraction of 0 or more, such as 0.05", from);
    bool memory = is_relation(relation, out_of_memory), equal = is_relation(relation, "equal");
    if (!memory && !equal && !is_relation(relation, "higher") && !is_relation(relation, "lower"))
        return USAGE("%s: relation: expected \"higher\", \"lower\", \"equal\" or \"%s\"", from,
                     out_of_memory);
    if (memory) return OK;
    const json_t *run = json_object_get(claim, "run");
    if (!json_object_get(claim, "than") && !(json_array_size(run) > 1))
        return USAGE("%s: than: expected the run to compare with", from);
    return check_figure(json_object_get(claim, "figure"), from);
}

Status study_check(const json_t *study, const char *from) {
    static const char *const keys[] = {"title",   "hardware", "source",      "note",
                                       "columns", "claims",   "compression", NULL};
    const json_t *columns = json_object_get(study, "columns"), *claims = json_object_get(study, "claims");
    const json_t *entry;
    char where[256];
    size_t i;
    if (!study || json_is_null(study)) return OK;
    if (!json_is_object(study)) return USAGE("%s: study: expected an object", from);
    snprintf(where, sizeof where, "%s: study", from);
    TRY(check_keys(study, where, keys, 4));
    if (columns && !json_is_array(columns)) return USAGE("%s: columns: expected a list of figures", where);
    TRY(compressed_check_claims(json_object_get(study, "compression"), where));
    if (claims && !json_is_array(claims)) return USAGE("%s: claims: expected a list of objects", where);
    json_array_foreach(columns, i, entry) {
        snprintf(where, sizeof where, "%s: study: columns: entry %zu", from, i + 1);
        TRY(check_figure(entry, where));
    }
    json_array_foreach(claims, i, entry) {
        snprintf(where, sizeof where, "%s: study: claim %zu", from, i + 1);
        TRY(check_claim(entry, where));
    }
    return OK;
}

/* ---- access ---- */

bool published_lacks_memory(const Run *run) {
    const char *outcome = json_string_at(run->published, "outcome");
    return outcome && !strcmp(outcome, out_of_memory);
}

const char *published_text(const Results *results, const Run *run, const char *key) {
    const char *own = run ? json_string_at(run->published, key) : NULL;
    return own ? own : json_string_at(results->study, key);
}

bool study_lists(const Results *results, size_t figure) {
    const json_t *name;
    size_t i;
    json_array_foreach(json_object_get(results->study, "columns"), i,
                       name) if (json_is_string(name) &&
                                 !strcmp(json_string_value(name), figures[figure].key)) return true;
    return false;
}

bool figure_is_published(const Results *results, size_t figure) {
    for (size_t i = 0; i < results->count && results_published(results); i++)
        if (isfinite(run_source_figure(&results->runs[i], SOURCE_PUBLISHED, figure))) return true;
    return false;
}

const json_t *study_claims(const Results *results) {
    return json_object_get(results->study, "claims");
}

static const Run *find_run(const Results *results, const char *name) {
    for (size_t i = 0; name && i < results->count; i++)
        if (!strcmp(results->runs[i].name, name)) return &results->runs[i];
    return NULL;
}

/* The runs that a claim is about, by index. */
static size_t claim_runs(const json_t *claim) {
    const json_t *run = json_object_get(claim, "run");
    return json_is_array(run) ? json_array_size(run) : 1;
}

static const char *claim_run(const json_t *claim, size_t at) {
    const json_t *run = json_object_get(claim, "run");
    return json_string_value(json_is_array(run) ? json_array_get(run, at) : run);
}

/* The run that the others are compared with: `than`, else the first of the list. */
static const char *claim_base(const json_t *claim) {
    const char *than = json_string_at(claim, "than");
    return than ? than : claim_run(claim, 0);
}

static Status missing_run(const Results *results, const char *from, size_t claim, const char *name) {
    Suggestion near = {.word = name};
    for (size_t i = 0; i < results->count; i++) suggest_offer(&near, results->runs[i].name);
    return USAGE("%s: study: claim %zu: no run is named '%s'%s%s%s", from, claim + 1, name,
                 near.best ? "; did you mean '" : "", near.best ? near.best : "", near.best ? "'?" : "");
}

/* The first name in a claim that no run has; NULL: all runs exist. */
static const char *find_missing(const Results *results, const json_t *claim) {
    for (size_t i = 0; i < claim_runs(claim); i++)
        if (!find_run(results, claim_run(claim, i))) return claim_run(claim, i);
    return find_run(results, claim_base(claim)) ? NULL : claim_base(claim);
}

Status study_check_runs(const Results *results, const char *from) {
    const json_t *claim;
    size_t i;
    json_array_foreach(study_claims(results), i, claim) {
        const char *missing = find_missing(results, claim);
        if (missing) return missing_run(results, from, i, missing);
    }
    return OK;
}

Status study_drop_claims(Results *results) {
    if (!study_claims(results)) return OK;
    CLEANUP(json_decrefp) json_t *study = json_clone(results->study), *kept = json_array();
    json_t *claim;
    size_t i;
    json_array_foreach(study_claims(results), i, claim) if (!find_missing(results, claim))
        json_array_append(kept, claim);
    if (!study || json_object_set(study, "claims", kept)) return FAILED("out of memory");
    json_decref(results->study);
    results->study = json_incref(study);
    return OK;
}

/* ---- verdicts ---- */

const char *verdict_name(Verdict verdict) {
    static const char *const names[] = {"not known", "holds", "does not hold"};
    return names[verdict];
}

/* Values of the runs of a claim that come from one source. `low` and `high` are the smallest and the largest
 * difference from the base, as a fraction. */
typedef struct Compared {
    FigureSource source;
    double own, base, low, high; /* own: of the only run */
} Compared;

static double value_of(const Results *results, const char *name, FigureSource source, size_t figure) {
    const Run *run = find_run(results, name);
    if (!run) return NAN;
    if (source != SOURCE_PUBLISHED && run->state != RUN_FINISHED) return NAN;
    return run_source_figure(run, source, figure);
}

/* False if a value is unknown. */
static bool compare(const Results *results, const json_t *claim, FigureSource source, size_t figure,
                    Compared *ret) {
    Compared seen = {.source = source, .low = INFINITY, .high = -INFINITY};
    bool listed = !json_object_get(claim, "than");
    seen.base = value_of(results, claim_base(claim), source, figure);
    if (!isfinite(seen.base) || seen.base == 0) return false;
    for (size_t i = listed; i < claim_runs(claim); i++) {
        seen.own = value_of(results, claim_run(claim, i), source, figure);
        if (!isfinite(seen.own)) return false;
        double difference = (seen.own - seen.base) / fabs(seen.base);
        seen.low = fmin(seen.low, difference);
        seen.high = fmax(seen.high, difference);
    }
    *ret = seen;
    return true;
}

static bool relation_holds(const json_t *claim, const Compared *seen) {
    const char *relation = json_string_at(claim, "relation");
    const json_t *given = json_object_get(claim, "by");
    double by = given ? json_number_value(given) : DEFAULT_BY;
    if (is_relation(relation, "higher")) return seen->low > 0 && seen->low >= by;
    if (is_relation(relation, "lower")) return seen->high < 0 && -seen->high >= by;
    return fmax(fabs(seen->low), fabs(seen->high)) <= by;
}

/* Without the sign of a zero. */
static double positive(double percent) {
    return fabs(percent) < 0.05 ? 0 : percent;
}

static void put_range(FILE *out, double low, double high) {
    char first[32], last[32];
    snprintf(first, sizeof first, "%+.1f%%", low);
    snprintf(last, sizeof last, "%+.1f%%", high);
    fprintf(out, strcmp(first, last) ? " %s to %s" : " %s", first, last);
}

/* "measured 1.6376 vs 1.6376 (0.0%)", or of a list "measured -3.1% to +28.0%". */
static void put_compared(FILE *out, const json_t *claim, const Compared *seen, size_t figure) {
    char own[FORMAT_SIZE], base[FORMAT_SIZE];
    FigureFormat unit = figures[figure].unit;
    bool listed = !json_object_get(claim, "than");
    fputs(source_name(seen->source), out);
    if (claim_runs(claim) - listed == 1)
        fprintf(out, " %s vs %s (%+.1f%%)", figure_text(own, unit, seen->own),
                figure_text(base, unit, seen->base), positive(100 * seen->high));
    else
        put_range(out, positive(100 * seen->low), positive(100 * seen->high));
}

static bool is_timed_against(const Run *run, size_t figure) {
    return run && !run_contended(run) && figure_is_settled(run, figure);
}

/* Why measured times do not decide a claim; NULL: they do. */
static const char *undecided(const Results *results, const json_t *claim, size_t figure) {
    bool order = !is_relation(json_string_at(claim, "relation"), "equal"), tie = false;
    const Run *base = find_run(results, claim_base(claim));
    bool listed = !json_object_get(claim, "than"), trusted = is_timed_against(base, figure);
    if (!figure_is_timed(figure)) return NULL;
    for (size_t i = listed; i < claim_runs(claim); i++) {
        const Run *run = find_run(results, claim_run(claim, i));
        trusted = trusted && is_timed_against(run, figure);
        tie |= order && run && base && figures_tie(run, base, figure);
    }
    return !trusted ? ", but with contention or too few steps for a confidence interval"
           : tie    ? ", a difference smaller than the spread"
                    : NULL;
}

/* Whether the runs of the claim run out of memory: executed or predicted. */
static void judge_memory(FILE *out, const Results *results, const json_t *claim, Verdict *ret_verdict) {
    Verdict verdict = VERDICT_HOLDS;
    for (size_t i = 0; i < claim_runs(claim); i++) {
        const Run *run = find_run(results, claim_run(claim, i));
        if (!run || (run->state != RUN_FINISHED && !run_lacks_memory(run))) {
            *ret_verdict = VERDICT_UNKNOWN;
            fprintf(out, "“%s” %s", claim_run(claim, i), run ? "did not finish" : "is missing");
            return;
        }
        if (run->state == RUN_FINISHED) verdict = VERDICT_FAILS;
    }
    const Run *first = find_run(results, claim_run(claim, 0));
    const char *error = first->error ? first->error : "", *colon = strstr(error, "as predicted: ");
    char peak[FORMAT_SIZE];
    *ret_verdict = verdict;
    if (verdict == VERDICT_HOLDS)
        fputs(colon ? colon + strlen("as ") : error, out);
    else
        fprintf(out, "%s peak %s", run_predicted(first) ? "predicted" : "measured",
                format_bytes(peak, run_figure(first, FIGURE_PEAK)));
}

static bool is_predicted(const Results *results, const char *name) {
    const Run *run = find_run(results, name);
    return run && run_predicted(run);
}

/* Why a claim cannot be judged. */
static void put_unknown(FILE *out, const Results *results, const json_t *claim, size_t figure) {
    bool predicted = is_predicted(results, claim_base(claim));
    for (size_t i = 0; i < claim_runs(claim); i++) predicted &= is_predicted(results, claim_run(claim, i));
    fprintf(out, predicted ? "predictions do not include %s" : "%s is not known for all of its runs",
            figures[figure].heading);
}

static void judge(FILE *out, const Results *results, const json_t *claim, Verdict *ret_verdict) {
    static const FigureSource ours[] = {SOURCE_MEASURED, SOURCE_PREDICTED};
    size_t figure;
    Compared seen;
    bool known = false;
    *ret_verdict = VERDICT_UNKNOWN;
    if (!find_figure(json_string_at(claim, "figure"), &figure)) {
        judge_memory(out, results, claim, ret_verdict);
        return;
    }
    for (size_t i = 0; i < 2 && !known; i++) {
        if (!compare(results, claim, ours[i], figure, &seen)) continue;
        const char *doubt = ours[i] == SOURCE_MEASURED ? undecided(results, claim, figure) : NULL;
        known = true;
        fprintf(out, "%s ", figures[figure].heading);
        put_compared(out, claim, &seen, figure);
        if (doubt)
            fputs(doubt, out);
        else
            *ret_verdict = relation_holds(claim, &seen) ? VERDICT_HOLDS : VERDICT_FAILS;
    }
    if (!known) put_unknown(out, results, claim, figure);
    static const FigureSource others[] = {SOURCE_WEFT, SOURCE_PUBLISHED};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!compare(results, claim, others[i], figure, &seen)) continue;
        fputs("; ", out);
        put_compared(out, claim, &seen, figure);
    }
}

Status claim_judge(const Results *results, const json_t *claim, Verdict *ret_verdict, char **ret_detail) {
    CLEANUP(text_done) Text text = {0};
    CLEANUP(mem_freep) char *detail = NULL;
    size_t size;
    TRY(text_open(&text));
    judge(text.out, results, claim, ret_verdict);
    TRY(text_take(&text, &detail, &size));
    return text_to_utf8(detail, size, ret_detail, &size); /* error messages need not be UTF-8 */
}

Status findings_json(const Results *results, json_t **ret_json) {
    CLEANUP(json_decrefp) json_t *list = json_array();
    const json_t *claim;
    size_t i;
    json_array_foreach(study_claims(results), i, claim) {
        CLEANUP(mem_freep) char *detail = NULL;
        Verdict verdict;
        TRY(claim_judge(results, claim, &verdict, &detail));
        json_array_append_new(list, json_pack("{s:O, s:s, s:s}", "text", json_object_get(claim, "text"),
                                              "verdict", verdict_name(verdict), "detail", detail));
    }
    if (json_array_size(list) != json_array_size(study_claims(results)))
        return FAILED("out of memory while collecting the findings");
    *ret_json = json_incref(list);
    return OK;
}

Status verdicts_text(const json_t *findings, const char *of, char **ret_text) {
    size_t i, all = json_array_size(findings), count[3] = {0};
    const json_t *finding;
    char text[160];
    json_array_foreach(findings, i, finding) for (Verdict v = 0; v < 3; v++) count[v] +=
        !strcmp(json_string_or(finding, "verdict", ""), verdict_name(v));
    if (!all) return str_dup("", ret_text);
    size_t holds = count[VERDICT_HOLDS], fails = count[VERDICT_FAILS], unknown = count[VERDICT_UNKNOWN];
    snprintf(text, sizeof text, "Of %s%zu conclusion%s, ", of, all, PLURAL(all));
    if (holds)
        text_append(text, sizeof text, "%zu hold%s", holds, holds == 1 ? "s" : "");
    else
        text_append(text, sizeof text, "none holds");
    if (fails)
        text_append(text, sizeof text, "%s%zu do%s not", unknown ? ", " : " and ", fails,
                    fails == 1 ? "es" : "");
    if (unknown)
        text_append(text, sizeof text, "%s%zu cannot be judged from these runs", fails ? ", and " : " and ",
                    unknown);
    return str_format(ret_text, "%s.", text);
}

Status findings_text(const Results *results, char **ret_text) {
    CLEANUP(json_decrefp) json_t *findings = NULL;
    TRY(findings_json(results, &findings));
    return verdicts_text(findings, "the study's ", ret_text);
}
