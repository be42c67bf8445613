/* A run's directory: its configuration, a line of metrics a step, its summary. */
#ifndef WEFT_TRAIN_RUNDIR_H
#define WEFT_TRAIN_RUNDIR_H

#include "base/json.h"

typedef struct RunDir RunDir;

/* `path` NULL: a run that writes nothing. Metrics of steps after `step` (a resumed run's last
 * checkpoint; 0 for a fresh one) are dropped: they will be written again. */
MUST_USE Status rundir_open(RunDir **ret_dir, const char *path, const json_t *config, int64_t step);
void rundir_free(RunDir *dir);
DEFINE_FREEP(RunDir, rundir)

/* Appends a line to metrics.jsonl; takes the reference. */
MUST_USE Status rundir_metrics(RunDir *dir, json_t *line);
MUST_USE Status rundir_summary(RunDir *dir, const json_t *summary);

#endif
