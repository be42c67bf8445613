/* Runs of a comparison that this machine cannot hold, carried out on paper for one that can. */
#ifndef WEFT_CLI_SIMULATE_H
#define WEFT_CLI_SIMULATE_H

#include "cli/command.h"

/* Whether a run, `train` with its options, is more than this machine can hold: it has fewer GPUs than the run
 * has ranks, or less memory than the plan says. */
MUST_USE Status simulate_needed(Invocation *train, bool *ret_needed);
/* What the run's summary.json would say, as predicted for a cluster (clusters/, or a file); "predicted" is
 * its name. Its directory, which is made, gets the trace.json of a step. Fails where the run does not fit its
 * devices. */
MUST_USE Status simulate_run(Invocation *train, const char *cluster, const char *dir, json_t **ret_summary);

#endif
