/* Quick estimates of a layout's time and memory, put together from those of single layers. */
#ifndef WEFT_PLAN_SEARCH_COST_H
#define WEFT_PLAN_SEARCH_COST_H

#include "plan/search_space.h"
#include "plan/software.h"

/* What a layer, and all that is not layers (embedding and head: the ends), take of a rank for one
 * micro-batch. Found by planning models of two and of three layers. */
typedef struct LayerCost {
    int tp;
    bool sequence;
    int64_t micro_batch;
    Recompute recompute;
    double forward_s, backward_s, ends_forward_s, ends_backward_s; /* recomputation is backward's */
    double kept, ends_kept;                                        /* bytes between forward and backward */
    double scratch;
    double params, ends_params; /* elements */
    Held held;                  /* of another program, where plans are of one: `kept` of a layer */
} LayerCost;

typedef struct SearchCosts {
    const SearchSpec *spec;
    const Cluster *cluster;
    const Model *model;
    int64_t seq;
    LayerCost *layer; /* found so far */
    size_t layers, capacity;
    int **cut; /* by the number of parts: the first block of each part; NULL: not found yet */
} SearchCosts;

MUST_USE Status search_costs_init(SearchCosts *ret_costs, const SearchSpec *spec, const Cluster *cluster,
                                  const Model *model, int64_t seq);
void search_costs_done(SearchCosts *costs);
/* Fills in the estimates of a layout. */
MUST_USE Status search_estimate(SearchCosts *costs, SearchLayout *layout);

#endif
