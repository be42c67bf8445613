/* Predicts runs of a comparison that do not fit on this machine, for a cluster where they do. */
#ifndef WEFT_CLI_SIMULATE_H
#define WEFT_CLI_SIMULATE_H

#include "cli/command.h"

/* Whether a run (`train` with its options) exceeds this machine: it has more ranks than there are GPUs, or
 * its plan needs more memory than the machine has. */
MUST_USE Status simulate_needed(Invocation *train, bool *ret_needed);
/* Predicts the run's summary.json for a cluster (a name from clusters/, or a file); "predicted" is the
 * cluster's name. Creates `dir` and writes the trace.json of a step to it. Fails if the run does not fit the
 * cluster's devices. */
MUST_USE Status simulate_run(Invocation *train, const char *cluster, const char *dir, json_t **ret_summary);

#endif
