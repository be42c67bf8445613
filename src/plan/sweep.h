/* How a model's training scales: the best layout at each of several numbers of devices.
 *
 * Strong scaling keeps the batch as it is, weak scaling the batch of a device: it grows with the devices from
 * that of the first size. Efficiency is the rate of a device against that of the first size that fits. */
#ifndef WEFT_PLAN_SWEEP_H
#define WEFT_PLAN_SWEEP_H

#include "plan/search.h"

typedef enum { SCALING_STRONG, SCALING_WEAK, SCALING_COUNT } Scaling;
const char *scaling_name(Scaling scaling); /* "strong" ... */

typedef struct SweepPoint {
    int ranks;
    int64_t batch;
    bool fits;         /* what follows is there */
    char *why;         /* where not: a sentence */
    SearchResult plan; /* the fastest that fits */
    double efficiency;
    double goodput; /* the caller's to set, where devices fail; 1 until then */
} SweepPoint;

typedef struct Sweep {
    SweepPoint *point[SCALING_COUNT]; /* [count] */
    int count;
    ModelConfig model;
    int64_t params_total; /* 0: no size had a legal layout */
} Sweep;

/* "1,2,4,...,16384": numbers in rising order; dots double the number before them up to the one after. To
 * free.
 */
MUST_USE Status sweep_parse(const char *text, int **ret_ranks, int *ret_count);
/* `spec` has the batch of the first size. Fails where no size has a legal layout. */
MUST_USE Status sweep_find(Sweep *ret_sweep, const SearchSpec *spec, const Cluster *cluster, const int *ranks,
                           int count);
void sweep_done(Sweep *sweep);
/* {"strong": [{"ranks", "batch", ...}], "weak": [...]} */
MUST_USE Status sweep_json(const Sweep *sweep, json_t **ret_json);

#endif
