/* A run directory: config.json, metrics.jsonl (one line per logged step), TensorBoard event files,
 * summary.json. */
#ifndef WEFT_TRAIN_RUNDIR_H
#define WEFT_TRAIN_RUNDIR_H

#include "base/json.h"
#include "base/progress.h"
#include "comm/group.h"

typedef struct RunDir RunDir;

/* Creates the directory or opens an existing one, and locks it against a second process. Refuses a directory
 * whose config.json is not a run's. `path` NULL: nothing will be written. */
MUST_USE Status rundir_open(RunDir **ret_dir, const char *path);
/* Refuses a directory that not all hosts share: they must see a file that rank 0 creates there. Collective;
 * rank 0 has opened the directory. `path` NULL: nothing is checked. */
MUST_USE Status rundir_check_shared(const char *path, Group *world);
/* Writes config.json and opens the metrics. Metrics after `step` (the checkpoint of a resumed run; 0: a new
 * run) are dropped, because those steps will run again. Metrics that cannot be written are reported through
 * `progress`, which must outlive the directory, and written later. */
MUST_USE Status rundir_begin(RunDir *dir, const json_t *config, int64_t step, Progress *progress);
/* Drops the metrics after `step`, because the run has gone back to it. On a full disk they stay. */
void rundir_rewind(RunDir *dir, int64_t step);
/* Before a checkpoint is saved after `step`: writes metrics that are kept in memory, and creates a directory
 * again that was moved or deleted, with logs in it. Problems are reported like those of the metrics. */
void rundir_restore(RunDir *dir, int64_t step);
void rundir_free(RunDir *dir);
DEFINE_FREEP(RunDir, rundir)

/* Appends a line to metrics.jsonl and its values to the event file; takes ownership of `line`. */
MUST_USE Status rundir_metrics(RunDir *dir, json_t *line);
MUST_USE Status rundir_summary(RunDir *dir, const json_t *summary);

/* Whether the directory contains a run that has started. */
MUST_USE Status rundir_has_run(const char *path, bool *ret_run);
/* Whether the contents of a config.json are a run's settings, not those of a model or another program. */
bool rundir_is_config(const json_t *config);
/* Whether a process on this host currently holds the directory's lock. */
bool rundir_held(const char *path);
/* The same, but gives a killed process the time that rundir_open gives it to release the lock. */
bool rundir_stays_held(const char *path);

#endif
