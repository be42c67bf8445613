/* Enumerates all valid layouts. */
#ifndef WEFT_PLAN_SEARCH_SPACE_H
#define WEFT_PLAN_SEARCH_SPACE_H

#include "plan/search.h"

typedef struct SearchSpace {
    SearchLayout *layout;
    size_t count, capacity;
    bool parts;    /* some layouts have context parallelism */
    bool divided;  /* some divide experts */
    int divisions; /* numbers of ranks that the model's experts can be divided among */
    SearchGrids grids;
} SearchSpace;

/* `model` and `seq` with defaults resolved. Fails with a usage error if there are too many layouts. */
MUST_USE Status search_space_init(SearchSpace *ret_space, const SearchSpec *spec, const ModelConfig *model,
                                  int64_t seq);
void search_space_done(SearchSpace *space);
/* The base spec with this layout. */
PlanSpec search_plan_spec(const SearchSpec *spec, const SearchLayout *layout);

#endif
