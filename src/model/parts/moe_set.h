/* A set of experts, for the files that compute mixtures. */
#ifndef WEFT_MODEL_PARTS_MOE_SET_H
#define WEFT_MODEL_PARTS_MOE_SET_H

#include "model/parts/moe.h"

/* A set of experts and its router. */
typedef struct Experts {
    LayerParam router, up, down;
    const char *name; /* of its parameters */
    int64_t count, top, inner;
    int ranks; /* which have count / ranks of them each */
    Route route;
} Experts;

/* Parameters of a set, or their gradients: up as (E,2F,C), down (E,C,F), with the experts of this rank. */
Tensor experts_up(const Block *block, const Tensor *views, const Experts *set);
Tensor experts_down(const Block *block, const Tensor *views, const Experts *set);
/* Adds a weight gradient, or stores it, unless the parameter is frozen. */
MUST_USE Status experts_gradient(const Block *block, const Pass *pass, int id, Tensor dw, Tensor dy, Tensor x,
                                 Tensor offsets);

/* A set whose experts are on several ranks, as the functions of moe.h without `ranks_`: s->rows has the rows
 * of this rank's tokens, sorted by expert, and receives what the experts return for them; s->weights, and in
 * backward s->each, likewise. */
MUST_USE Status moe_ranks_run(const Block *block, Pass *pass, const Experts *set, const MoeRows *s);
MUST_USE Status moe_ranks_rerun(const Block *block, Pass *pass, const Experts *set, const MoeRows *s);
MUST_USE Status moe_ranks_back(const Block *block, Pass *pass, const Experts *set, const MoeRows *s);
MUST_USE Status moe_ranks_back_input(const Block *block, Pass *pass, const Experts *set, const MoeRows *s);
MUST_USE Status moe_ranks_weights(const Block *block, Pass *pass, const Experts *set, const MoeRows *s);

#endif
