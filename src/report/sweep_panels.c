#include "report/sweep_panels.h"

#include <stdlib.h>

#include "base/memory.h"

typedef struct Kind {
    const char *name, *label, *title;
    double (*value)(const SweepPoint *point);
    AxisFormat format;
} Kind;

static double rate_of(const SweepPoint *point) {
    return point->goodput * point->plan.time.tokens_per_s;
}
static double efficiency_of(const SweepPoint *point) {
    return 100 * point->efficiency;
}
static double mfu_of(const SweepPoint *point) {
    return 100 * point->plan.time.mfu;
}
static double memory_of(const SweepPoint *point) {
    return (double)point->plan.bytes;
}

static const Kind kinds[SWEEP_PANELS] = {
    {"tokens", "tokens/s", "Throughput", rate_of, AXIS_POWERS},
    {"efficiency", "scaling efficiency", "Efficiency", efficiency_of, AXIS_PERCENT},
    {"mfu", "model FLOPs utilization", "MFU", mfu_of, AXIS_PERCENT},
    {"memory", "memory per device", "Memory", memory_of, AXIS_BYTES},
};

void sweep_panel_done(SweepPanel *panel) {
    for (int i = 0; i <= SCALING_COUNT; i++) {
        free(panel->x[i]);
        free(panel->y[i]);
    }
}

static Status add_curve(SweepPanel *panel, const Sweep *sweep, Scaling scaling, const Kind *kind) {
    size_t at = panel->count, points = 0;
    TRY(mem_new((size_t)sweep->count, sizeof(double), &panel->x[at]));
    TRY(mem_new((size_t)sweep->count, sizeof(double), &panel->y[at]));
    for (int i = 0; i < sweep->count; i++) {
        const SweepPoint *point = &sweep->point[scaling][i];
        if (!point->fits) continue;
        panel->x[at][points] = point->ranks;
        panel->y[at][points++] = kind->value(point);
    }
    panel->series[panel->count++] =
        (Series){.label = scaling == SCALING_WEAK ? "weak scaling" : "strong scaling",
                 .x = panel->x[at],
                 .y = panel->y[at],
                 .count = points,
                 .color = (int)scaling,
                 .width = 2,
                 .points = true};
    return OK;
}

/* Linear scaling from the first point. */
static Status add_ideal(SweepPanel *panel) {
    const Series *real = &panel->series[panel->count - 1];
    size_t at = panel->count;
    TRY(mem_new(2, sizeof(double), &panel->x[at]));
    TRY(mem_new(2, sizeof(double), &panel->y[at]));
    for (size_t i = 0; real->count && i < 2; i++) {
        panel->x[at][i] = real->x[i ? real->count - 1 : 0];
        panel->y[at][i] = real->y[0] * panel->x[at][i] / real->x[0];
    }
    panel->series[panel->count++] = (Series){.label = "ideal",
                                             .x = panel->x[at],
                                             .y = panel->y[at],
                                             .count = real->count ? 2 : 0,
                                             .color = PLOT_GRAY,
                                             .width = 1,
                                             .gap = 6};
    return OK;
}

Status sweep_panel_init(SweepPanel *panel, const Sweep *sweep, int index) {
    const Kind *kind = &kinds[index];
    int stride = (sweep->count + SWEEP_TICS - 1) / SWEEP_TICS, tic_count = 0;
    *panel = (SweepPanel){.title = kind->title};
    for (int i = 0; i < sweep->count; i += stride)
        panel->tics[tic_count++] = (1 - 1e-9) * sweep->point[0][i].ranks; /* within the axis */
    for (Scaling s = 0; s < SCALING_COUNT; s++) TRY(add_curve(panel, sweep, s, kind));
    if (kind->format == AXIS_POWERS) TRY(add_ideal(panel));
    panel->plot = (Plot){.name = kind->name,
                         .x_label = "devices",
                         .y_label = kind->label,
                         .series = panel->series,
                         .count = panel->count,
                         .x_format = AXIS_WHOLE,
                         .y_format = kind->format,
                         .x_log = true,
                         .from_zero = kind->format != AXIS_POWERS,
                         .x_tics = panel->tics,
                         .x_tic_count = (size_t)tic_count};
    return OK;
}
