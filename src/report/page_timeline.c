/* Timelines of one step per run, from trace.json: a row per rank, and a box per computation labeled with its
 * micro-batch. Gaps are idle time. A missing or damaged trace only omits that run's timeline. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "report/boxes.h"
#include "report/page.h"

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

/* The CSS class of an event's box; NULL if the event is not shown. */
static const char *class_of(const json_t *event) {
    static const char *const classes[][2] = {{"forward", "f"},
                                             {"backward", "b"},
                                             {"backward-input", "b"},
                                             {"backward-weight", "w"},
                                             {"optimizer", "u"}};
    const char *category = json_string_or(event, "cat", "");
    if (strcmp(json_string_or(event, "ph", ""), "X") || json_int_at(event, "tid") != 0) return NULL;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (!strcmp(category, classes[i][0])) return classes[i][1];
    return NULL;
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

const char *box_fit(double percent) {
    return percent < 1.8 ? " tiny" : percent < 3.5 ? " small" : percent < 6 ? " tight" : "";
}

static void put_box(FILE *out, const Step *step, const json_t *event, const char *class) {
    double length = step->end - step->start, start = json_number_or(event, "ts", NAN),
           end = start + json_number_or(event, "dur", NAN);
    if (!isfinite(end) || start < step->start || end > step->end + 1) return;
    double width = 100 * (end - start) / length;
    const char *name = json_string_or(event, "name", "");
    fprintf(out, "<i class=\"%s%s\" style=\"left:%.3f%%;width:%.3f%%\" title=\"", class, box_fit(width),
            100 * (start - step->start) / length, fmax(width, 0.05));
    put_html(out, name);
    fprintf(out, ", %.3g ms\">", 1e-3 * (end - start));
    if (*class != 'u') put_html(out, name + (name[0] != 0));
    fputs("</i>", out);
}

/* The rank's label from the trace, such as "rank 0: stage 1, replica 0"; phones hide what follows the colon.
 */
static void put_label(FILE *out, const Step *step, int rank) {
    char name[32];
    const char *label = "", *colon;
    const json_t *event;
    size_t i;
    json_array_foreach(step->events, i, event) {
        if (rank_of(event) == rank && !strcmp(json_string_or(event, "name", ""), "process_name"))
            label = json_string_or(json_object_get(event, "args"), "name", "");
    }
    colon = strchr(label, ':');
    snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - label) : (int)strlen(label), label);
    if (!*name) snprintf(name, sizeof name, "rank %d", rank);
    fputs("<span>", out);
    put_html(out, name);
    fprintf(out, "<span class=\"more\">%s", colon ? "," : "");
    put_html(out, colon ? colon + 1 : "");
    fputs("</span></span>", out);
}

static void put_rank(FILE *out, const Step *step, int rank) {
    const json_t *event;
    size_t i, boxes = 0;
    fputs("<div class=\"line\">", out);
    put_label(out, step, rank);
    fputs("<div class=\"track\">", out);
    json_array_foreach(step->events, i, event) {
        const char *class = rank_of(event) == rank ? class_of(event) : NULL;
        if (class && boxes++ < MAX_BOXES) put_box(out, step, event, class);
    }
    fputs("</div></div>\n", out);
}

static void put_step(FILE *out, const Run *run, const Step *step) {
    double ms = 1e-3 * (step->end - step->start);
    fputs("<div><h3>", out);
    put_run_name(out, run);
    if (run_predicted(run))
        fprintf(out, "<small>predicted, %.*f ms</small></h3>\n", ms < 100 ? 1 : 0, ms);
    else
        fprintf(out, "<small>step %lld, %.*f ms</small></h3>\n", (long long)step->number, ms < 100 ? 1 : 0,
                ms);
    for (int rank = 0; rank < step->ranks; rank++) put_rank(out, step, rank);
    fputs("</div>\n", out);
}

static void put_note(FILE *notes, const Run *run, const char *text) {
    fputs("<p class=\"note\">", notes);
    put_html(notes, run->name);
    fputs(": ", notes);
    put_html(notes, text);
    fputs("</p>\n", notes);
}

/* Predicted runs are worth a timeline only if one of them has pipeline stages; measured runs always are. */
static bool worth_showing(const Results *results) {
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (!run_predicted(run) || json_number_at(run->summary.layout, "pp") > 1) return true;
    }
    return false;
}

static bool any_predicted(const Results *results) {
    for (size_t i = 0; i < results->count; i++)
        if (run_predicted(&results->runs[i])) return true;
    return false;
}

static void put_head(FILE *out, const Results *results) {
    put_section(
        out, "Timeline of a step",
        any_predicted(results)
            ? "One step of each run, from its trace.json. Predicted runs show one rank per stage. Numbers "
              "are "
              "micro-batches; gaps are idle time."
            : "One step of each run, from its trace.json. Numbers are micro-batches; gaps are idle time.");
    fputs("<div class=\"legend\">", out);
    put_key(out, "var(--p1)", "forward");
    put_key(out, "var(--p5)", "backward");
    put_key(out, "var(--p0)", "weight gradients");
    put_key(out, "var(--p3)", "optimizer step");
    put_key(out, "var(--track)", "idle");
    fputs("</div>\n<div class=\"lines\">\n", out);
}

/* The boxes of a rank, in milliseconds since the start of the step. */
static Status record_rank(BoxChart *chart, const Step *step, int rank) {
    static const struct {
        char class;
        const char *name;
        int color;
    } kinds[] = {
        {'f', "forward", 1}, {'b', "backward", 5}, {'w', "weight gradients", 0}, {'u', "optimizer step", 3}};
    const json_t *event;
    size_t i, boxes = 0;
    json_array_foreach(step->events, i, event) {
        const char *class = rank_of(event) == rank ? class_of(event) : NULL;
        double start = json_number_or(event, "ts", NAN), end = start + json_number_or(event, "dur", NAN);
        if (!class || !(start >= step->start && end <= step->end + 1) || boxes++ >= MAX_BOXES) continue;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            if (kinds[k].class == *class)
                TRY(boxes_add(chart, kinds[k].name, kinds[k].color, 1e-3 * (start - step->start),
                              1e-3 * (end - step->start)));
    }
    return OK;
}

static Status record_step(BoxChart *chart, const Run *run, const Step *step) {
    for (int rank = 0; rank < step->ranks; rank++) {
        TRY(boxes_row(chart, run->name, rank));
        TRY(record_rank(chart, step, rank));
    }
    return OK;
}

static Status put_steps(FILE *out, FILE *notes, const Results *results, BoxChart *chart, bool *ret_any) {
    *ret_any = false;
    for (size_t i = 0; i < results->count; i++) {
        CLEANUP(json_decrefp) json_t *trace = NULL;
        /* Errors are reported by run_look and shown below the table. */
        CLEANUP(status_freep) Status damaged = run_trace(&results->runs[i], &trace);
        Step step;
        if (!trace) continue;
        if (!find_step(trace, &step)) {
            put_note(notes, &results->runs[i], "trace.json: no complete step");
            continue;
        }
        if (!*ret_any) put_head(out, results);
        *ret_any = true;
        put_step(out, &results->runs[i], &step);
        TRY(record_step(chart, &results->runs[i], &step));
    }
    if (*ret_any) fputs("</div>\n", out);
    return OK;
}

Status put_timelines(FILE *out, const Results *results, Figures *drawn) {
    CLEANUP(mem_freep) char *text = NULL;
    CLEANUP(boxes_done) BoxChart chart = {.name = "timeline", .x_label = "ms since the start of the step"};
    size_t size = 0;
    bool any;
    if (!worth_showing(results)) return OK;
    FILE *notes = open_memstream(&text, &size);
    if (!notes) return FAILED("out of memory while writing the page");
    Status status = put_steps(out, notes, results, &chart, &any);
    bool closed = fclose(notes) == 0;
    TRY(status);
    if (closed && size) fputs(text, out);
    if (any) fputs("</section>\n", out);
    return boxes_write(&chart, drawn);
}
