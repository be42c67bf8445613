/* Measures the cluster that the program runs on and writes its description.
 *
 * Kernels are timed as they are used: in training steps of small models of several sizes, where every call is
 * recorded with its work (plan/kernel_curve.h). All ranks measure at the same time, so shared resources such
 * as memory bandwidth are divided among them as in a real run. */
#ifndef WEFT_PLAN_MEASURE_H
#define WEFT_PLAN_MEASURE_H

#include "comm/group.h"
#include "plan/cluster.h"

typedef struct MeasureSpec {
    const char *device;    /* "cpu" or "cuda" */
    const char *precision; /* measure only this precision; NULL: all that the device supports well */
    const char *name;      /* human-readable name of the device */
    int threads;
    Device *on;            /* the device; NULL: create one */
    Group *world;          /* all ranks that take part */
    FILE *log;             /* progress messages; NULL: none */
    double start, seconds; /* clock_wall at the start, and the approximate time limit */
} MeasureSpec;

/* Collective. Every rank gets the description that rank 0 measured. */
MUST_USE Status measure_cluster(const MeasureSpec *spec, json_t **ret_json);

/* Kernels in training steps of small models; measure_models.c. */
typedef struct MeasuredModels {
    KernelCurves kernels[RATE_COUNT];
    double peak[RATE_COUNT];   /* FLOP/s; 0: not measured */
    double launch_s, kernel_s; /* as in Cluster */
} MeasuredModels;

/* Collective. `memory` is the measured memory bandwidth in bytes/s. */
MUST_USE Status measure_models(const MeasureSpec *spec, Device *device, double memory,
                               MeasuredModels *models);

#endif
