/* A run's directory: its configuration, a line of metrics a step, for TensorBoard too, its summary. */
#ifndef WEFT_TRAIN_RUNDIR_H
#define WEFT_TRAIN_RUNDIR_H

#include "base/json.h"

typedef struct RunDir RunDir;

/* Makes the directory, or takes one that is empty or a run's already, and locks it against a second
 * process. `path` NULL: a run that writes nothing. */
MUST_USE Status rundir_open(RunDir **ret_dir, const char *path);
/* Writes config.json and opens the metrics. Those of steps after `step` (a resumed run's last checkpoint;
 * 0: a fresh run) are dropped: they will be written again. */
MUST_USE Status rundir_begin(RunDir *dir, const json_t *config, int64_t step);
void rundir_free(RunDir *dir);
DEFINE_FREEP(RunDir, rundir)

/* Appends a line to metrics.jsonl and its numbers to the event file; takes the reference. */
MUST_USE Status rundir_metrics(RunDir *dir, json_t *line);
MUST_USE Status rundir_summary(RunDir *dir, const json_t *summary);

/* Whether a process of this machine runs the run in a directory now. */
bool rundir_held(const char *path);

#endif
