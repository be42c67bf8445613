/* Scaling sweep: the best layout for each of several numbers of devices.
 *
 * Strong scaling keeps the total batch; weak scaling keeps the batch per device, starting from the batch of
 * the first size. Efficiency is the throughput per device relative to the first size that fits. */
#ifndef WEFT_PLAN_SWEEP_H
#define WEFT_PLAN_SWEEP_H

#include "plan/search.h"

typedef enum { SCALING_STRONG, SCALING_WEAK, SCALING_COUNT } Scaling;
const char *scaling_name(Scaling scaling); /* "strong" ... */

typedef struct SweepPoint {
    int ranks;
    int64_t batch;
    bool fits;         /* false: only `why` is set */
    char *why;         /* why no layout fits; NULL if one does */
    SearchResult plan; /* the fastest layout that fits */
    double efficiency;
    double goodput; /* 1; the caller may set it to account for failures */
} SweepPoint;

typedef struct Sweep {
    SweepPoint *point[SCALING_COUNT]; /* [count] */
    int count;
    ModelConfig model;
    int64_t seq;
    int64_t params_total; /* 0: no size has a valid layout */
} Sweep;

/* Parses "1,2,4,...,16384": ascending numbers; "..." repeatedly doubles the number before it up to the one
 * after it. The caller frees *ret_ranks. */
MUST_USE Status sweep_parse(const char *text, int **ret_ranks, int *ret_count);
/* `spec` has the batch of the first size; its ranks are ignored. Fails if no size has a valid layout. */
MUST_USE Status sweep_find(Sweep *ret_sweep, const SearchSpec *spec, const Cluster *cluster, const int *ranks,
                           int count);
void sweep_done(Sweep *sweep);
/* {"strong": [{"ranks", "batch", ...}], "weak": [...]} */
MUST_USE Status sweep_json(const Sweep *sweep, json_t **ret_json);

#endif
