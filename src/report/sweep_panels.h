/* The curves of a scaling sweep (plan/sweep.h), as plots. */
#ifndef WEFT_REPORT_SWEEP_PANELS_H
#define WEFT_REPORT_SWEEP_PANELS_H

#include "plan/sweep.h"
#include "report/plot.h"

enum { SWEEP_PANELS = 4, SWEEP_TICS = 9 };

/* Strong, weak and ideal scaling, without points that do not fit. */
typedef struct SweepPanel {
    Plot plot; /* refers to the rest */
    const char *title;
    double *x[SCALING_COUNT + 1], *y[SCALING_COUNT + 1];
    double tics[SWEEP_TICS];
    Series series[SCALING_COUNT + 1];
    size_t count;
} SweepPanel;

/* Panel `index`: tokens/s (goodput included), efficiency, MFU, memory. Must not be moved afterwards. */
MUST_USE Status sweep_panel_init(SweepPanel *panel, const Sweep *sweep, int index);
void sweep_panel_done(SweepPanel *panel);

#endif
