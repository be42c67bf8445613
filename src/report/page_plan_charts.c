/* Charts of planned layouts: step time by phase, timeline of a step, memory by stage. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "report/boxes.h"
#include "report/page.h"
#include "report/page_plan.h"

enum {
    MAX_STAGES = 16,
    MAX_BOXES = 1000,  /* per stage */
    LABEL_PERCENT = 8, /* segments at least this wide have a label */
    COMM_COLOR = 6,
};

/* ---- step time by phase ---- */

static const int phase_colors[PHASE_COUNT] = {
    [PHASE_FORWARD] = 1, [PHASE_RECOMPUTE] = 4, [PHASE_BACKWARD] = 5, [PHASE_COMMUNICATION] = COMM_COLOR,
    [PHASE_BUBBLE] = 7,  [PHASE_OPTIMIZER] = 3};

static void put_time(FILE *out, const NamedResult *named, double longest) {
    const SearchResult *result = named->result;
    char text[32], title[96], grid[LAYOUT_TEXT], label[16];
    fprintf(out, "<div class=\"row\"><span>%s", layout_grid(&result->layout, grid));
    fprintf(out, "<small>%s</small></span><div class=\"bar\">", layout_rest(&result->layout, grid));
    for (TimePhase phase = 0; phase < PHASE_COUNT; phase++) {
        double seconds = result->time.phase_s[phase], percent = 100 * seconds / longest;
        double share = 100 * seconds / result->time.step_s;
        if (!(seconds > 0)) continue;
        snprintf(title, sizeof title, "%s %s, %.1f%%", time_phase(phase), time_text(seconds, text), share);
        *label = 0;
        if (percent >= LABEL_PERCENT) snprintf(label, sizeof label, "%.0f%%", share);
        put_segment(out, percent, phase_colors[phase], title, label);
    }
    fprintf(out, "</div><span>%s</span></div>\n", time_text(result->time.step_s, text));
}

static Status write_phases(const NamedResult *results, size_t count, Figures *drawn) {
    CLEANUP(boxes_done) BoxChart chart = {.name = "step-time", .x_label = "ms per step"};
    for (size_t i = 0; i < count; i++) {
        char grid[LAYOUT_TEXT];
        const StepEstimate *time = &results[i].result->time;
        double from = 0;
        TRY(boxes_row(&chart, layout_grid(&results[i].result->layout, grid), -1));
        for (TimePhase phase = 0; phase < PHASE_COUNT; from += 1e3 * time->phase_s[phase++])
            if (time->phase_s[phase] > 0)
                TRY(boxes_add(&chart, time_phase(phase), phase_colors[phase], from,
                              from + 1e3 * time->phase_s[phase]));
    }
    return boxes_write(&chart, drawn);
}

Status put_plan_phases(FILE *out, const NamedResult *results, size_t count, Figures *drawn) {
    double longest = 0;
    bool seen[PHASE_COUNT] = {0};
    char color[COLOR_TEXT];
    for (size_t i = 0; i < count; i++) {
        const StepEstimate *time = &results[i].result->time;
        longest = fmax(longest, time->step_s);
        for (TimePhase phase = 0; phase < PHASE_COUNT; phase++)
            seen[phase] |= time->phase_s[phase] > 0.002 * time->step_s;
    }
    put_section(
        out, "Step time by phase",
        "Averaged over the stages. Communication is what the device waits for; the rest of it overlaps "
        "with computation.");
    fputs("<div class=\"legend\">", out);
    for (TimePhase phase = 0; phase < PHASE_COUNT; phase++)
        if (seen[phase]) put_key(out, part_color(color, phase_colors[phase]), time_phase(phase));
    fputs("</div>\n", out);
    for (size_t i = 0; i < count; i++) put_time(out, &results[i], longest);
    fputs("</section>\n", out);
    return write_phases(results, count, drawn);
}

/* ---- timeline ---- */

typedef struct SpanLook {
    const char *class, *name;
    int color;
} SpanLook;

static const SpanLook looks[] = {[SPAN_FORWARD] = {"f", "forward", 1},
                                 [SPAN_BACKWARD] = {"b", "backward", 5},
                                 [SPAN_WEIGHT] = {"w", "weight gradients", 0},
                                 [SPAN_COMMUNICATION] = {"c", "communication", COMM_COLOR},
                                 [SPAN_OPTIMIZER] = {"u", "optimizer step", 3}};

enum { SPAN_KINDS = sizeof looks / sizeof *looks };

static bool computes(SpanKind kind) {
    return kind == SPAN_FORWARD || kind == SPAN_BACKWARD || kind == SPAN_WEIGHT;
}

static void put_part(FILE *out, const SimSpan *span, SpanKind kind, double start, double end, double step,
                     const char *of) {
    char text[32];
    double width = 100 * (end - start) / step;
    bool numbered = computes(kind);
    if (!(width > 0.01)) return;
    fprintf(out, "<i class=\"%s%s%s\" style=\"left:%.3f%%;width:%.3f%%\" title=\"%s%s", looks[kind].class,
            box_fit(width), width < 0.5 ? " thin" : "", 100 * start / step, fmax(width, 0.05),
            looks[kind].name, of);
    if (computes(span->kind)) fprintf(out, ", micro-batch %d", span->micro);
    if (span->chunk) fprintf(out, ", chunk %d", span->chunk);
    fprintf(out, ": %s\">", time_text(end - start, text));
    if (numbered) fprintf(out, "%d", span->micro);
    fputs("</i>", out);
}

/* Communication within a computation is drawn at its end. */
static void put_span(FILE *out, const SimSpan *span, double step) {
    char of[48] = "";
    bool only = span->kind == SPAN_COMMUNICATION;
    double turn = only ? span->start : span->end - span->communication;
    if (!only) snprintf(of, sizeof of, " in %s", looks[span->kind].name);
    if (!only) put_part(out, span, span->kind, span->start, turn, step, "");
    put_part(out, span, SPAN_COMMUNICATION, turn, span->end, step, of);
}

/* The stages that are shown: all, or some at equal distances. */
static int shown_stage(int stages, int row) {
    int rows = stages < MAX_STAGES ? stages : MAX_STAGES;
    return rows == 1 ? 0 : (int)((int64_t)row * (stages - 1) / (rows - 1));
}

static void stage_label(const Plan *plan, int stage, char text[64]) {
    int each = plan->mesh.dp * plan->mesh.tp;
    if (each > 1)
        snprintf(text, 64, "stage %d: ranks %d to %d", stage, stage * each, (stage + 1) * each - 1);
    else
        snprintf(text, 64, "stage %d", stage);
}

static void put_stage(FILE *out, const PlannedLayout *first, int stage) {
    const SimSpans *spans = &first->timeline->stage[stage];
    char label[64];
    stage_label(first->plan, stage, label);
    char *colon = strchr(label, ':');
    if (colon) *colon = 0;
    fprintf(out, "<div class=\"line\"><span>%s<span class=\"more\">%s%s</span></span><div class=\"track\">",
            label, colon ? "," : "", colon ? colon + 1 : "");
    for (size_t i = 0; i < spans->count && i < MAX_BOXES; i++)
        put_span(out, &spans->span[i], first->timeline->step_s);
    fputs("</div></div>\n", out);
}

static Status record_stage(BoxChart *chart, const PlannedLayout *first, int stage) {
    const SimSpans *spans = &first->timeline->stage[stage];
    char label[64];
    stage_label(first->plan, stage, label);
    TRY(boxes_row(chart, label, -1));
    for (size_t i = 0; i < spans->count && i < MAX_BOXES; i++) {
        const SimSpan *span = &spans->span[i];
        bool only = span->kind == SPAN_COMMUNICATION;
        double turn = only ? span->start : span->end - span->communication;
        if (turn > span->start)
            TRY(boxes_add(chart, looks[span->kind].name, looks[span->kind].color, 1e3 * span->start,
                          1e3 * turn));
        if (span->end > turn)
            TRY(boxes_add(chart, looks[SPAN_COMMUNICATION].name, COMM_COLOR, 1e3 * turn, 1e3 * span->end));
    }
    return OK;
}

Status put_plan_timeline(FILE *out, const PlannedLayout *first, Figures *drawn) {
    CLEANUP(boxes_done) BoxChart chart = {.name = "timeline", .x_label = "ms since the start of the step"};
    int stages = first->timeline->stages, rows = stages < MAX_STAGES ? stages : MAX_STAGES;
    bool seen[SPAN_KINDS] = {0};
    char color[COLOR_TEXT], grid[LAYOUT_TEXT], step[32];
    for (int s = 0; s < stages; s++)
        for (size_t i = 0; i < first->timeline->stage[s].count; i++) {
            const SimSpan *span = &first->timeline->stage[s].span[i];
            seen[span->kind] = true;
            seen[SPAN_COMMUNICATION] |= span->communication > 1e-4 * first->timeline->step_s;
        }
    put_section(out, "Timeline of a step",
                "One rank per stage; all ranks of a stage do the same. Numbers are micro-batches; backward "
                "includes recompute. Communication that the device waits for is drawn at the end of its "
                "computation. Gaps are the bubble.");
    fputs("<div class=\"legend\">", out);
    for (int kind = 0; kind < SPAN_KINDS; kind++)
        if (seen[kind]) put_key(out, part_color(color, looks[kind].color), looks[kind].name);
    put_key(out, "var(--track)", "bubble");
    fprintf(out, "</div>\n<div class=\"lines\">\n<div><h3>%s<small>%s</small></h3>\n",
            layout_grid(&first->result.layout, grid), time_text(first->timeline->step_s, step));
    for (int row = 0; row < rows; row++) {
        put_stage(out, first, shown_stage(stages, row));
        TRY(record_stage(&chart, first, shown_stage(stages, row)));
    }
    fputs("</div>\n</div>\n", out);
    if (rows < stages) fprintf(out, "<p class=\"note\">%d of %d stages are shown.</p>\n", rows, stages);
    fputs("</section>\n", out);
    return boxes_write(&chart, drawn);
}

/* ---- memory ---- */

static const char *const tag_names[MEM_TAGS] = {"parameters",  "gradients",     "optimizer state",
                                                "activations", "communication", "workspace"};
static const int tag_colors[MEM_TAGS] = {1, 4, 5, 0, 3, 2};

static double sum_of(const RankMemory *memory) {
    double sum = 0;
    for (MemTag tag = 0; tag < MEM_TAGS; tag++) sum += (double)memory->tag[tag];
    return sum;
}

static void put_stage_memory(FILE *out, const char *label, const RankMemory *memory, double longest,
                             double limit) {
    char text[FORMAT_SIZE], title[96];
    fprintf(out, "<div class=\"row\"><span>%s</span><div class=\"bar\">", label);
    for (MemTag tag = 0; tag < MEM_TAGS; tag++) {
        double bytes = (double)memory->tag[tag];
        snprintf(title, sizeof title, "%s %s", tag_names[tag], format_bytes(text, bytes));
        if (bytes > 0) put_segment(out, 100 * bytes / longest, tag_colors[tag], title, "");
    }
    fprintf(out, "<u style=\"left:calc(%.2f%% - 2px)\" title=\"available\"></u></div><span>%s</span></div>\n",
            100 * limit / longest, format_bytes(text, (double)memory->total));
}

/* Whether a stage needs the same as the one before it. */
static bool same_as_before(const Plan *plan, int stage) {
    return stage > 0 &&
           !memcmp(&plan->stage[stage].memory, &plan->stage[stage - 1].memory, sizeof(RankMemory));
}

Status put_plan_memory(FILE *out, const PlanFacts *facts, const PlannedLayout *first, double available,
                       Figures *drawn) {
    CLEANUP(boxes_done)
    BoxChart chart = {.name = "memory-stages", .x_label = "peak memory per rank", .format = AXIS_BYTES};
    const Plan *plan = first->plan;
    double longest = available;
    char color[COLOR_TEXT];
    for (int s = 0; s < plan->stages; s++) longest = fmax(longest, sum_of(&plan->stage[s].memory));
    put_section(
        out, "Memory per rank",
        facts->cluster->software.present
            ? "What weft needs, by category, during steps; the other figures of this page are for the "
              "program that the cluster describes. The marker is what is available."
            : "Peaks of each category during steps, which can occur at different times; the number is the "
              "peak of the total. The marker is what is available.");
    fputs("<div class=\"legend\">", out);
    for (MemTag tag = 0; tag < MEM_TAGS; tag++)
        put_key(out, part_color(color, tag_colors[tag]), tag_names[tag]);
    fputs("</div>\n", out);
    for (int s = 0, shown = 0, last; s < plan->stages && shown < MAX_STAGES; s = last + 1, shown++) {
        char label[64];
        double from = 0;
        for (last = s; last + 1 < plan->stages && same_as_before(plan, last + 1);) last++;
        snprintf(label, sizeof label,
                 plan->stages == 1 ? "every rank"
                 : last > s        ? "stages %d–%d"
                                   : "stage %d",
                 s, last);
        put_stage_memory(out, label, &plan->stage[s].memory, longest, available);
        TRY(boxes_row(&chart, label, -1));
        for (MemTag tag = 0; tag < MEM_TAGS; from += (double)plan->stage[s].memory.tag[tag++])
            if (plan->stage[s].memory.tag[tag])
                TRY(boxes_add(&chart, tag_names[tag], tag_colors[tag], from,
                              from + (double)plan->stage[s].memory.tag[tag]));
    }
    fputs("</section>\n", out);
    return boxes_write(&chart, drawn);
}
