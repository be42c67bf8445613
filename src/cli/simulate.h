/* Predicts runs of a comparison that do not fit on this machine, for a cluster where they do. */
#ifndef WEFT_CLI_SIMULATE_H
#define WEFT_CLI_SIMULATE_H

#include "cli/command.h"

/* Whether a run (`train` with its options) exceeds this machine: it has more ranks than there are GPUs, or
 * its plan needs more memory than the machine has. */
MUST_USE Status simulate_needed(Invocation *train, bool *ret_needed);

/* How to predict a run. */
typedef struct Simulation {
    const char *cluster; /* a name from clusters/, or a file */
    double samples;      /* training samples per epoch; 0: unknown */
    bool weft;           /* predict weft, even if the cluster file describes another program */
    bool both;           /* predict that program and weft */
    bool any_device;     /* ignore the run's --device */
} Simulation;

/* Checks a run's options, layout and data before it starts. `cluster`: where it is simulated; NULL: it is
 * executed. Data that was not fetched is skipped in a simulation. *ret_samples is the number of training
 * samples per epoch; 0 if the data is not there. */
MUST_USE Status simulate_check(Invocation *train, const char *cluster, bool quiet, double *ret_samples);
/* Predicts the run's summary.json; "predicted" is the cluster's name, "program" the program if it is not
 * weft. Unless `dir` is NULL, creates it and writes the trace.json of a step to it. Fails if the run does not
 * fit the cluster's devices. */
MUST_USE Status simulate_run(Invocation *train, const Simulation *simulation, const char *dir,
                             json_t **ret_summary);

#endif
