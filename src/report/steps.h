/* Losses that a study published after certain steps of a run, beside those of the run. */
#ifndef WEFT_REPORT_STEPS_H
#define WEFT_REPORT_STEPS_H

#include "report/grid.h"

/* A row per run and published step; empty without any. `grid` starts as {0}. */
MUST_USE Status steps_grid(const Results *results, Grid *grid);
/* Checks a run's list of published losses, [{"step", "loss", "val_loss"}]; NULL: there is none. */
MUST_USE Status steps_check(const json_t *list, const char *from);

#endif
