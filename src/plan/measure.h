/* A cluster's description, measured: of the machine that it runs on.
 *
 * Kernels are timed where they are used: in training steps of small models of several widths, every call with
 * its work (plan/kernel_curve.h). Ranks measure at the same time, so what they share, memory above all, is
 * shared out as in a run. */
#ifndef WEFT_PLAN_MEASURE_H
#define WEFT_PLAN_MEASURE_H

#include "comm/group.h"
#include "plan/cluster.h"

typedef struct MeasureSpec {
    const char *device;    /* "cpu" or "cuda" */
    const char *precision; /* the only one to measure; NULL: all that the device is good at */
    const char *name;      /* the device's, for people */
    int threads;
    Device *on;            /* the device; NULL: the CPU's own is made */
    Group *world;          /* ranks that measure together */
    FILE *log;             /* where progress shows; NULL: nowhere */
    double start, seconds; /* when it began, by clock_wall, and about how long it may take */
} MeasureSpec;

/* Collective. The same on every rank: what the first has measured. */
MUST_USE Status measure_cluster(const MeasureSpec *spec, json_t **ret_json);

#endif
