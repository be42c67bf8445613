/* Whether a plan fits a cluster's devices and, if not, what would make it fit: the smallest changes of the
 * layout that do, each found by planning it. */
#ifndef WEFT_PLAN_FIT_H
#define WEFT_PLAN_FIT_H

#include "plan/cluster.h"
#include "plan/plan.h"

enum { FIT_CHANGES = 8, FIT_TEXT = 400 };

typedef struct FitChange {
    char options[FIT_TEXT]; /* as one would type them: "--recompute block --zero 1" */
    size_t total;           /* what a rank then needs of its device, also to write a checkpoint */
} FitChange;

typedef struct Fit {
    double available, host_available; /* bytes for a rank, of its device and of its node's memory */
    double needed;                    /* of its device, by the rank that needs most */
    bool fits;
    FitChange change[FIT_CHANGES]; /* where it does not; by one option each, else by two, else by all */
    int changes;
    bool short_of_work; /* not all changes were tried: each of so large a plan takes long */
} Fit;

/* Takes device and precision from the cluster where they are not given; refuses what it has not. */
MUST_USE Status fit_settle(PlanSpec *spec, const Cluster *cluster);
/* Whether every stage's memory suffices, the device's and the host's. A CPU's are the same. */
bool fit_fits(const Plan *plan, const Cluster *cluster);
MUST_USE Status fit_find(Fit *ret_fit, const Plan *plan, const PlanSpec *spec, const Cluster *cluster);
/* Adds "cluster", "memory_needed", "memory_available", "host_memory_available", "fits", "would_fit" and
 * "all_tried" to a plan. */
MUST_USE Status fit_json(const Fit *fit, const Cluster *cluster, json_t *json);

#endif
