/* Predicts runs of a comparison that do not fit on this machine, for a cluster where they do. */
#ifndef WEFT_COMPARE_PREDICT_H
#define WEFT_COMPARE_PREDICT_H

#include "plan/plan.h"

/* A run before it starts: what train would execute. */
typedef struct RunSpec {
    Settings config;
    MeshSpec mesh;
    bool device_given; /* the device was chosen, not the default */
} RunSpec;

/* Whether a run exceeds this machine: it has more ranks than there are GPUs and they may not share them, or
 * its plan needs more memory than the machine has. */
MUST_USE Status predict_needed(const RunSpec *run, bool share_gpus, bool *ret_needed);

/* How to predict a run. */
typedef struct Prediction {
    const char *cluster; /* a name from clusters/, or a file */
    double samples;      /* training samples per epoch; 0: unknown */
    bool weft;           /* predict weft, even if the cluster file describes another program */
    bool both;           /* predict that program and weft */
    bool any_device;     /* ignore the run's device */
} Prediction;

/* Checks a run's model, layout and data before it starts. `cluster`: where it is predicted; NULL: it is
 * executed. Data that was not fetched is not checked; *ret_lacks says so. *ret_samples is the number of
 * training samples per epoch; 0 if the data is not there. `log` shows progress, unless `quiet`. */
MUST_USE Status predict_check(const RunSpec *run, const char *cluster, FILE *log, bool quiet, bool *ret_lacks,
                              double *ret_samples);
/* Predicts the run's summary.json; "predicted" is the cluster's name, "program" the program if it is not
 * weft. Unless `dir` is NULL, creates it and writes the trace.json of a step to it. Fails if the run does not
 * fit the cluster's devices. */
MUST_USE Status predict_run(const RunSpec *run, const Prediction *prediction, const char *dir,
                            json_t **ret_summary);

#endif
