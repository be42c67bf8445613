/* Charts of planned layouts: step time by phase, timeline of a step, memory by stage. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "report/bars.h"
#include "report/page.h"
#include "report/page_plan.h"

enum { MAX_STAGES = 16, MAX_BOXES = 1000 /* per stage */ };

/* ---- step time by phase ---- */

static const int phase_colors[TIME_COUNT] = {
    [TIME_FORWARD] = 1,       [TIME_RECOMPUTE] = 4, [TIME_BACKWARD] = 5,
    [TIME_COMMUNICATION] = 6, [TIME_BUBBLE] = 7,    [TIME_OPTIMIZER] = 3};

static Status add_times(BarChart *chart, const SearchResult *result) {
    char text[FORMAT_SIZE], title[96], grid[LAYOUT_TEXT], rest[LAYOUT_TEXT], label[16];
    TRY(bars_row(chart, (BarRow){.name = layout_grid(&result->layout, grid),
                                 .detail = layout_rest(&result->layout, rest),
                                 .value = time_text(text, result->time.step_s)}));
    for (TimePhase phase = 0; phase < TIME_COUNT; phase++) {
        double seconds = result->time.phase_s[phase], share = 100 * seconds / result->time.step_s;
        snprintf(title, sizeof title, "%s %s, %.1f%%", time_phase(phase), time_text(text, seconds), share);
        snprintf(label, sizeof label, "%.0f%%", share);
        TRY(bars_add(chart, (int)phase, 1e3 * seconds, title, label));
    }
    return OK;
}

Status put_plan_phases(Page *page, const NamedResult *results, size_t count) {
    BarCategory phases[TIME_COUNT];
    CLEANUP(bars_done)
    BarChart chart = {
        .name = "step-time", .x_label = "ms per step", .categories = phases, .legend = TIME_COUNT};
    for (TimePhase phase = 0; phase < TIME_COUNT; phase++)
        phases[phase] = (BarCategory){time_phase(phase), COLOR_PART + phase_colors[phase]};
    for (size_t i = 0; i < count; i++) TRY(add_times(&chart, results[i].result));
    page_section(
        page, "Step time by phase",
        "Averaged over the stages. Communication is what the device waits for; the rest of it overlaps "
        "with computation.");
    return put_bars(page, &chart);
}

/* ---- timeline ---- */

const BarCategory span_parts[SPAN_PARTS] = {[SPAN_FORWARD] = {"forward", COLOR_PART + 1},
                                            [SPAN_BACKWARD] = {"backward", COLOR_PART + 5},
                                            [SPAN_WEIGHT] = {"weight gradients", COLOR_PART},
                                            [SPAN_COMMUNICATION] = {"communication", COLOR_PART + 6},
                                            [SPAN_OPTIMIZER] = {"optimizer step", COLOR_PART + 3}};

static bool computes(SpanKind kind) {
    return kind == SPAN_FORWARD || kind == SPAN_BACKWARD || kind == SPAN_WEIGHT;
}

/* Adds a bar for a part of a span, in the color and with the name of `kind`. */
static Status add_part(BarChart *chart, const SimSpan *span, SpanKind kind, double start, double end) {
    char title[160], label[16], micro[32] = "", chunk[32] = "", text[FORMAT_SIZE];
    const char *name = span_parts[span->kind].name;
    if (!(end > start)) return OK;
    if (computes(span->kind)) snprintf(micro, sizeof micro, ", micro-batch %d", span->micro);
    if (span->chunk) snprintf(chunk, sizeof chunk, ", chunk %d", span->chunk);
    snprintf(title, sizeof title, "%s%s%s%s%s: %s", span_parts[kind].name, kind == span->kind ? "" : " in ",
             kind == span->kind ? "" : name, micro, chunk, time_text(text, end - start));
    snprintf(label, sizeof label, "%d", span->micro);
    return bars_box(chart, (int)kind, 1e3 * start, 1e3 * end, title, computes(kind) ? label : NULL);
}

/* The stages that are shown: all, or some at equal distances. */
static int shown_stage(int stages, int row) {
    int rows = stages < MAX_STAGES ? stages : MAX_STAGES;
    return rows == 1 ? 0 : (int)((int64_t)row * (stages - 1) / (rows - 1));
}

/* Communication within a computation is drawn at its end. */
static Status add_stage(BarChart *chart, const PlannedLayout *first, int stage, const char *note) {
    const SimSpans *spans = &first->timeline->stage[stage];
    int each = mesh_stride(first->plan->mesh, AXIS_PP);
    char grid[LAYOUT_TEXT], step[FORMAT_SIZE], name[32], ranks[64];
    snprintf(name, sizeof name, "stage %d", stage);
    snprintf(ranks, sizeof ranks, "ranks %d to %d", stage * each, (stage + 1) * each - 1);
    TRY(bars_row(chart, (BarRow){.group = layout_grid(&first->result.layout, grid),
                                 .group_detail = time_text(step, first->timeline->step_s),
                                 .name = name,
                                 .more = each > 1 ? ranks : NULL,
                                 .note = note,
                                 .full = 1e3 * first->timeline->step_s}));
    for (size_t i = 0; i < spans->count && i < MAX_BOXES; i++) {
        const SimSpan *span = &spans->span[i];
        double turn = span->kind == SPAN_COMMUNICATION ? span->start : span->end - span->communication;
        TRY(add_part(chart, span, span->kind, span->start, turn));
        TRY(add_part(chart, span, SPAN_COMMUNICATION, turn, span->end));
    }
    return OK;
}

Status put_plan_timeline(Page *page, const PlannedLayout *first) {
    CLEANUP(bars_done)
    BarChart chart = {.name = "timeline",
                      .x_label = "ms since the start of the step",
                      .timeline = true,
                      .gaps = "bubble",
                      .categories = span_parts,
                      .legend = SPAN_PARTS};
    int stages = first->timeline->stages, rows = stages < MAX_STAGES ? stages : MAX_STAGES;
    char note[64];
    snprintf(note, sizeof note, "%d of %d stages are shown.", rows, stages);
    for (int row = 0; row < rows; row++)
        TRY(add_stage(&chart, first, shown_stage(stages, row),
                      row + 1 == rows && rows < stages ? note : NULL));
    page_section(page, "Timeline of a step",
                 "One rank per stage; all ranks of a stage do the same. Numbers are micro-batches; backward "
                 "includes recompute. Communication that the device waits for is drawn at the end of its "
                 "computation. Gaps are the bubble.");
    return put_bars(page, &chart);
}

/* ---- memory ---- */

/* Whether a stage needs the same as the one before it. */
static bool same_as_before(const Plan *plan, int stage) {
    return stage > 0 &&
           !memcmp(&plan->stage[stage].memory, &plan->stage[stage - 1].memory, sizeof(RankMemory));
}

Status put_plan_memory(Page *page, const PlanFacts *facts, const PlannedLayout *first, double available) {
    CLEANUP(bars_done)
    BarChart chart = {.name = "memory-stages",
                      .x_label = "peak memory per rank",
                      .format = AXIS_BYTES,
                      .marks = "available",
                      .categories = memory_parts,
                      .legend = MEMORY_PARTS};
    const Plan *plan = first->plan;
    for (int s = 0, shown = 0, last; s < plan->stages && shown < MAX_STAGES; s = last + 1, shown++) {
        char label[64], text[FORMAT_SIZE];
        for (last = s; last + 1 < plan->stages && same_as_before(plan, last + 1);) last++;
        snprintf(label, sizeof label,
                 plan->stages == 1 ? "every rank"
                 : last > s        ? "stages %d–%d"
                                   : "stage %d",
                 s, last);
        format_bytes(text, (double)plan->stage[s].memory.total);
        TRY(bars_row(&chart, (BarRow){.name = label, .value = text, .mark = available}));
        for (MemTag tag = 0; tag < MEM_TAGS; tag++)
            TRY(bars_add_bytes(&chart, (int)tag, (double)plan->stage[s].memory.tag[tag]));
    }
    page_section(
        page, "Memory per rank",
        facts->cluster->software.present
            ? "What weft needs, by category, during steps; the other figures of this page are for the "
              "program that the cluster describes. The marker is what is available."
            : "Peaks of each category during steps, which can occur at different times; the number is the "
              "peak of the total. The marker is what is available.");
    return put_bars(page, &chart);
}
