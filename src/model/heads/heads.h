/* What the heads of encoders share. A batch has B sequences of T positions; C is the hidden size, K the
 * number of a head's logits. */
#ifndef WEFT_MODEL_HEADS_HEADS_H
#define WEFT_MODEL_HEADS_HEADS_H

#include "model/head.h"
#include "model/parts/common.h"
#include "model/parts/linear.h"

/* Numbers of parameters: the pooler's weight and bias, then those of each head; a weight is followed by its
 * bias. */
enum { POOLER_W, HEAD_FIRST = 2, HEAD_PARAMS = 6 };
#define HEAD_PARAM(head) (HEAD_FIRST + HEAD_PARAMS * (head))
_Static_assert(HEAD_PARAM(HEAD_COUNT) <= BLOCK_SLOTS, "the block's slots have room for all heads");

/* A linear layer from C: a matrix (out,C), numbered `id`, and its bias. */
MUST_USE Status describe_linear(const Block *block, ParamList *list, int id, int64_t out, const char *name);
/* The slot `describe` of a head that is a linear layer from C to K: "head.NAME", its first parameter. */
MUST_USE Status linear_head_describe(const Block *block, HeadId id, ParamList *list);
/* A head's scratch follows the gathered rows. */
Bump head_scratch(const Block *block, const Pass *pass);
/* Cross-entropy of complete logits: fills stats (M,3) and losses (M); in training, logits (M,K) become their
 * gradient. */
MUST_USE Status head_cross_entropy(Pass *pass, LossId loss, Tensor logits, Tensor stats, Tensor losses,
                                   Tensor labels);

/* A pooled head: tanh(dense(first token of each sequence)), dropout, and a linear layer, the head's first
 * parameter. */
typedef struct PoolScratch {
    Tensor x, pre, pooled, dropped, d; /* (B,C) */
    Tensor logits;                     /* (B,K) */
    Tensor stats, losses;              /* (B,3) (B), or (B,K) with targets */
} PoolScratch;

/* Computes w->logits; a loss leaves their gradient there for pooled_backward, which adds to dx. */
MUST_USE Status pooled_forward(const Block *block, Pass *pass, HeadId id, Dropout dropout, Tensor x,
                               PoolScratch *ret_scratch);
MUST_USE Status pooled_backward(const Block *block, Pass *pass, HeadId id, Dropout dropout, Tensor dx,
                                const PoolScratch *w);
/* The slots of a pooled head. */
void pooled_measure(const Block *block, HeadId id, Shape shape, Bump *scratch);
MUST_USE Status pooled_logits(const Block *block, Pass *pass, HeadId id, Tensor out, Tensor rows);
void pooled_logits_scratch(const Block *block, HeadId id, Shape shape, int64_t rows, Bump *scratch);

#endif
