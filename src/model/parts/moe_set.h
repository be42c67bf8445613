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

/* Rows to and from each rank, from the first on. */
typedef struct Traffic {
    int64_t *out, *in;
    int64_t sent, arrived;
    int64_t *counts; /* (P,E/P) rows from each rank for each expert here; owns all memory */
} Traffic;

/* What this rank's experts have received; E experts here. */
typedef struct Received {
    Tensor chosen;  /* (N,1) int32: the expert of each row that arrived */
    Tensor place;   /* (N,1) int32 */
    Tensor slots;   /* (N) int32 */
    Tensor offsets; /* (E+1) int32 */
    Tensor weights; /* (N) fp32, by expert */
    Tensor inputs;  /* (N,C) rows, by expert */
    Tensor pre;     /* (N,2F), in backward its gradient */
    Tensor grads;   /* (N,C) gradients of outputs, by expert; deferred or scratch */
    Tensor act;     /* (N,F) likewise */
    Tensor arrived; /* (N,C) scratch, by rank */
    Tensor rows;    /* (N,C) scratch, by expert */
    Tensor each;    /* (N,1) fp32 scratch: weights, or their gradients, by rank */
    Tensor by_row;  /* (N) fp32 scratch: gradients of weights, by expert */
    Tensor rounded; /* (N, C or F, the larger) scratch: fake-quantized rows */
    Tensor largest; /* (N) fp32 scratch: the largest magnitudes of rows */
} Received;

/* y = x w^T for each expert, with fake quantization if the pass has it; `cut`: rows of x and w are split
 * across tensor-parallel ranks. The gradient of x. And that of parameter `id`, which is added or stored,
 * unless it is frozen. `received`: where the rows are; NULL: those of this rank. */
MUST_USE Status experts_run(const Block *block, Pass *pass, Tensor y, Tensor x, Tensor w, bool cut,
                            Tensor offsets, const Received *received);
MUST_USE Status experts_back(const Block *block, Pass *pass, Tensor dx, Tensor dy, Tensor w, bool cut,
                             Tensor offsets);
MUST_USE Status experts_gradient(const Block *block, Pass *pass, int id, Tensor dw, Tensor dy, Tensor x,
                                 Tensor offsets, const Received *received);

/* Rows on their way to their experts. */
typedef struct MoeSent {
    Traffic traffic;
    Received received;
    Ticket rows, weights;
} MoeSent;
void moe_sent_done(MoeSent *sent);

/* A set whose experts are on several ranks, as the functions of moe.h without `ranks_`: s->rows has the rows
 * of this rank's tokens, sorted by expert, and receives what the experts return for them; s->weights, and in
 * backward s->each, likewise. moe_ranks_send starts to send the rows, in forward with their weights; run,
 * rerun or back follows. */
MUST_USE Status moe_ranks_send(const Block *block, Pass *pass, const Experts *set, const MoeRows *s,
                               bool back, MoeSent *sent);
MUST_USE Status moe_ranks_run(const Block *block, Pass *pass, const Experts *set, const MoeRows *s,
                              MoeSent *sent);
MUST_USE Status moe_ranks_rerun(const Block *block, Pass *pass, const Experts *set, MoeSent *sent);
MUST_USE Status moe_ranks_back(const Block *block, Pass *pass, const Experts *set, MoeSent *sent);
MUST_USE Status moe_ranks_back_input(const Block *block, Pass *pass, const Experts *set, const MoeRows *s);
MUST_USE Status moe_ranks_weights(const Block *block, Pass *pass, const Experts *set, const MoeRows *s);

#endif
