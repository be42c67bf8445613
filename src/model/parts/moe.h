/* A mixture of experts, in place of an MLP: a router gives every expert a score for each token, the token
 * uses the `top_k` best, and the result is the sum of theirs, weighted by the scores. Nothing is dropped: an
 * expert computes all tokens that chose it. A shared expert is a set of one, which every token uses, with a
 * sigmoid of its own as the weight.
 *
 * Tokens are sorted by expert, stably, so that each matmul is one over groups of rows. An expert's weight
 * multiplies the input of down, so that backward needs no outputs, and sums over a token's experts are in the
 * order of their scores. With expert parallelism, rows travel to the ranks of their experts (moe_ranks.c).
 *
 * Tensor parallelism splits the inner size of every expert. All ranks route alike. Backward of the router is
 * linear in the gradients of the weights. Each rank has a part of these, so its gradients are partial sums;
 * the gradients of the balancing losses are added on the first rank. */
#ifndef WEFT_MODEL_PARTS_MOE_H
#define WEFT_MODEL_PARTS_MOE_H

#include "model/parts/layer.h"

enum { EXPERT_SETS = 2 }; /* the experts and the shared one */

/* Tensors of a set of E experts with inner size F, K per token: R = B * T * K rows. */
typedef struct MoeRows {
    Tensor logits;  /* (B,T,E) fp32; in backward, their gradient */
    Tensor chosen;  /* (B,T,K) int32: experts, -1 for padding */
    Tensor place;   /* (B,T,K) int32: the row of each */
    Tensor slots;   /* (R) int32: what is in each row, token * K + k */
    Tensor offsets; /* (E+1) int32: the first row of each expert */
    Tensor weights; /* (R) fp32 */
    Tensor tally;   /* (2E) int32, on several ranks: rows for each expert, and of each rank for those here */
    Tensor pre;     /* (R,2F) input of the activation */
    Tensor act;     /* (R,F) scratch: its output, and in backward the gradient of that before */
    Tensor rows;    /* (R,C) scratch */
    Tensor each;    /* (B,T,K) fp32 scratch: the weights by token; in backward, their gradients by row */
} MoeRows;

typedef struct MoeSaved {
    MoeRows set[EXPERT_SETS];
} MoeSaved;

/* Whether the block's MLP is a mixture; only then are the others called. */
bool moe_in(const Block *block);
MUST_USE Status describe_moe(const Block *block, ParamList *list);
/* Elements of the inputs of activations (B,T,2F) of all sets: those of set i follow those of set i - 1. */
int64_t moe_pre_count(const Block *block, Shape shape);
/* `pre` is the memory for these. */
MoeSaved moe_saved(const Block *block, Shape shape, Tensor pre, Bump *saved, Bump *scratch);
double moe_flops(const ModelConfig *config); /* per token, forward */

/* As the functions of mlp.h with these names. */
MUST_USE Status moe_run(const Block *block, Pass *pass, const MoeSaved *s, Tensor y, Tensor x);
MUST_USE Status moe_rerun(const Block *block, Pass *pass, const MoeSaved *s, Tensor x);
MUST_USE Status moe_back(const Block *block, Pass *pass, const MoeSaved *s, Tensor dpre, Tensor dy);
MUST_USE Status moe_back_input(const Block *block, Pass *pass, const MoeSaved *s, Tensor dx, bool add,
                               Tensor dpre, Tensor x);
MUST_USE Status moe_weight_down(const Block *block, Pass *pass, const MoeSaved *s, Tensor dy);
MUST_USE Status moe_weight_up(const Block *block, Pass *pass, const MoeSaved *s, Tensor dpre, Tensor x);

#endif
