/* Whether a plan fits the memory of a cluster and, if not, which small changes of the options make it fit.
 * Every change is verified by planning it. */
#ifndef WEFT_PLAN_FIT_H
#define WEFT_PLAN_FIT_H

#include "plan/cluster.h"
#include "plan/plan.h"

enum { FIT_CHANGES = 8, FIT_TEXT = 400 };

typedef struct FitChange {
    char options[FIT_TEXT]; /* as users write them */
    size_t total; /* device memory per rank with this change, in bytes, including checkpoint writing */
} FitChange;

typedef struct Fit {
    double available, host_available; /* bytes per rank: device memory, share of the node's host memory */
    double needed;                    /* device memory of the rank that needs the most, in bytes */
    bool fits;
    FitChange change[FIT_CHANGES]; /* if it does not fit: single changes, else pairs, else all together */
    int changes;
    bool incomplete; /* the search for changes stopped early, because planning at this size takes too long */
} Fit;

/* Fills in device, precision and software from the cluster. Fails with a usage error if the cluster lacks the
 * device or precision that the spec requests. */
MUST_USE Status fit_settle(PlanSpec *spec, const Cluster *cluster);
/* Whether every stage fits both device and host memory. */
bool fit_fits(const Plan *plan, const Cluster *cluster);
/* Checks `plan`, made from `spec`, and searches for changes if it does not fit. */
MUST_USE Status fit_find(Fit *ret_fit, const Plan *plan, const PlanSpec *spec, const Cluster *cluster);
/* Adds "cluster", "memory_needed", "memory_available", "host_memory_available", "fits", "would_fit" and
 * "all_tried" to a plan. */
MUST_USE Status fit_json(const Fit *fit, const Cluster *cluster, json_t *json);

#endif
