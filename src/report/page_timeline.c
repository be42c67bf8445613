/* Timelines of one step per run, from trace.json: a row per rank, and a box per computation labeled with its
 * micro-batch. Gaps are idle time. A missing or damaged trace only omits that run's timeline. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "plan/simulate.h"
#include "report/bars.h"
#include "report/page.h"
#include "report/spread.h"

#define MAX_STEP_US 1e12 /* a longer step means a damaged trace */
enum { MAX_RANKS = 16, MAX_BOXES = 1000 };

/* One step of a run; times are in microseconds, as in the trace. */
typedef struct Step {
    const json_t *events;
    double start, end;
    json_int_t number;
    int ranks;
} Step;

static json_int_t rank_of(const json_t *event) {
    return json_int_at(event, "pid");
}

/* False if the event is not shown. */
static bool find_kind(const json_t *event, SpanKind *ret_kind) {
    static const struct {
        const char *category;
        SpanKind kind;
    } kinds[] = {{"forward", SPAN_FORWARD},
                 {"backward", SPAN_BACKWARD},
                 {"backward-input", SPAN_BACKWARD},
                 {"backward-weight", SPAN_WEIGHT},
                 {"optimizer", SPAN_OPTIMIZER}};
    const char *category = json_string_or(event, "cat", "");
    if (strcmp(json_string_or(event, "ph", ""), "X") || json_int_at(event, "tid") != 0) return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        *ret_kind = kinds[i].kind;
        if (!strcmp(category, kinds[i].category)) return true;
    }
    return false;
}

/* Finds the last step in the trace; the first steps of a run are atypical. False if the trace has no valid
 * step. */
static bool find_step(const json_t *trace, Step *ret_step) {
    Step step = {.events = json_object_get(trace, "traceEvents"), .start = INFINITY, .end = -INFINITY};
    const json_t *event;
    size_t i;
    step.number = -1;
    json_array_foreach(step.events, i, event) {
        if (strcmp(json_string_or(event, "cat", ""), "step")) continue;
        json_int_t number = json_int_at(json_object_get(event, "args"), "step");
        if (number > step.number) step.number = number;
    }
    json_array_foreach(step.events, i, event) {
        if (strcmp(json_string_or(event, "cat", ""), "step")) continue;
        if (json_int_at(json_object_get(event, "args"), "step") != step.number) continue;
        double start = json_number_or(event, "ts", NAN), end = start + json_number_or(event, "dur", NAN);
        if (!isfinite(end)) continue;
        step.start = fmin(step.start, start);
        step.end = fmax(step.end, end);
        if (rank_of(event) >= 0 && rank_of(event) < MAX_RANKS && rank_of(event) >= step.ranks)
            step.ranks = (int)rank_of(event) + 1;
    }
    *ret_step = step;
    return step.ranks > 0 && step.end > step.start && step.end - step.start < MAX_STEP_US;
}

/* The rank's label from the trace, such as "rank 0: stage 1, replica 0", in two parts. */
static Status find_label(const Step *step, int rank, char **ret_name, char **ret_more) {
    const char *label = "", *colon;
    const json_t *event;
    size_t i;
    json_array_foreach(step->events, i, event) {
        if (rank_of(event) == rank && !strcmp(json_string_or(event, "name", ""), "process_name"))
            label = json_string_or(json_object_get(event, "args"), "name", "");
    }
    colon = strchr(label, ':');
    if (colon) TRY(str_dup(colon + 1 + strspn(colon + 1, " "), ret_more));
    if (!*label || colon == label) return str_format(ret_name, "rank %d", rank);
    return str_format(ret_name, "%.*s", colon ? (int)(colon - label) : (int)strlen(label), label);
}

/* Times are in milliseconds since the start of the step. */
static Status add_box(BarChart *chart, const Step *step, const json_t *event, SpanKind kind) {
    CLEANUP(mem_freep) char *title = NULL;
    double start = 1e-3 * (json_number_or(event, "ts", NAN) - step->start),
           length = 1e-3 * json_number_or(event, "dur", NAN);
    const char *name = json_string_or(event, "name", "");
    if (!(start >= 0 && start + length <= 1e-3 * (step->end - step->start + 1))) return OK;
    TRY(str_format(&title, "%s, %.3g ms", name, length));
    return bars_box(chart, (int)kind, start, start + length, title,
                    kind != SPAN_OPTIMIZER && *name ? name + 1 : NULL);
}

static Status add_step(BarChart *chart, const Run *run, const Step *step) {
    double ms = 1e-3 * (step->end - step->start);
    char detail[64], number[32] = "predicted";
    if (!run_predicted(run)) snprintf(number, sizeof number, "step %lld", (long long)step->number);
    snprintf(detail, sizeof detail, "%s, %.*f ms", number, ms < 100 ? 1 : 0, ms);
    for (int rank = 0; rank < step->ranks; rank++) {
        CLEANUP(mem_freep) char *name = NULL, *more = NULL;
        const json_t *event;
        size_t i, boxes = 0;
        SpanKind kind;
        TRY(find_label(step, rank, &name, &more));
        TRY(bars_row(chart, (BarRow){.group = run->name,
                                     .group_more = run_remark(run),
                                     .group_detail = detail,
                                     .name = name,
                                     .more = more,
                                     .full = ms}));
        json_array_foreach(step->events, i, event) {
            if (rank_of(event) == rank && find_kind(event, &kind) && boxes++ < MAX_BOXES)
                TRY(add_box(chart, step, event, kind));
        }
    }
    return OK;
}

static bool is_predicted(const Run *run) {
    return run_predicted(run) != NULL;
}

/* Predicted runs are worth a timeline only if one of them has pipeline stages; measured runs always are. */
static bool is_worth_showing(const Run *run) {
    return !is_predicted(run) || json_number_at(run->summary.layout, "pp") > 1;
}

/* Names the runs whose traces have no step. */
static Status add_steps(BarChart *chart, TextList *empty, const Results *results) {
    results_foreach(results, run) {
        CLEANUP(json_decrefp) json_t *trace = NULL;
        /* Errors are reported by run_look and shown below the table. */
        CLEANUP(status_freep) Status damaged = run_trace(run, &trace);
        const char *name = run->name;
        Step step;
        if (!trace) continue;
        TRY(find_step(trace, &step) ? add_step(chart, run, &step) : texts_keep(empty, &name));
    }
    return OK;
}

Status put_timelines(Page *page, const Results *results) {
    CLEANUP(texts_done) TextList empty = {0};
    CLEANUP(bars_done)
    BarChart chart = {.name = "timeline",
                      .x_label = "ms since the start of the step",
                      .timeline = true,
                      .gaps = "idle",
                      .categories = span_parts,
                      .legend = SPAN_PARTS};
    if (!results_count(results, is_worth_showing)) return OK;
    TRY(add_steps(&chart, &empty, results));
    if (chart.row_count)
        page_section(
            page, "Timeline of a step",
            results_count(results, is_predicted)
                ? "One step of each run, from its trace.json. Predicted runs show one rank per stage. "
                  "Numbers are micro-batches; gaps are idle time."
                : "One step of each run, from its trace.json. Numbers are micro-batches; gaps are idle "
                  "time.");
    if (chart.row_count)
        TRY(put_bars(page, &chart));
    else
        page_section_end(page);
    for (size_t i = 0; i < empty.count; i++) put_note(page, empty.texts[i], "trace.json: no complete step");
    return OK;
}
