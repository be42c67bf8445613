/* Fast estimates of a layout's time and memory, composed from the costs of single layers. */
#ifndef WEFT_PLAN_SEARCH_COST_H
#define WEFT_PLAN_SEARCH_COST_H

#include "plan/search_space.h"
#include "plan/software.h"

/* The cost on one rank of a layer, and of the ends (embedding and output head), for one micro-batch. The
 * fields up to `recompute` are the key. */
typedef struct LayerCost {
    int tp, cp, cp_heads, ep;
    ContextMode cp_mode;
    bool sequence;
    int64_t micro_batch;
    Recompute recompute;
    double forward_s, backward_s, ends_forward_s, ends_backward_s; /* backward includes recompute */
    double kept, ends_kept;       /* bytes stored between forward and backward */
    double scratch;               /* workspace bytes */
    double params, ends_params;   /* elements */
    double experts;               /* the part of `params` in experts */
    double state, ends_state;     /* bytes of optimizer state on the device */
    ActivationMemory activations; /* if the plan is for other software; `kept` is per layer */
} LayerCost;

typedef struct SearchCosts {
    const SearchSpec *spec;
    const Cluster *cluster;
    const Model *model;
    int64_t seq;
    LayerCost *layer; /* cache */
    size_t layers, capacity;
    /* [layers + 1], indexed by number of parts: the first block of each part; NULL: not computed yet */
    int **partition;
} SearchCosts;

/* The arguments must outlive *ret_costs. */
MUST_USE Status search_costs_init(SearchCosts *ret_costs, const SearchSpec *spec, const Cluster *cluster,
                                  const Model *model, int64_t seq);
void search_costs_done(SearchCosts *costs);
/* Sets layout->seconds and layout->bytes. */
MUST_USE Status search_estimate(SearchCosts *costs, SearchLayout *layout);

#endif
