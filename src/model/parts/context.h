/* Context parallelism in attention: ranks have T positions of each sequence and all heads of this
 * tensor-parallel rank ("own"), and attend over whole sequences.
 *
 *   heads    ranks swap rows for heads: each attends over whole sequences with some of the heads,
 *            exactly as one rank would, and swaps back
 *   gather   each gathers the keys and values of all positions and attends with its own queries; the
 *            gradients of keys and values are reduced and scattered
 *   ring     keys and values travel from rank to rank, and results over those of one rank are
 *            combined. Gradients of keys and values travel with them and arrive where they belong
 *   both     adjacent ranks swap rows for heads, and keys and values of these heads travel from one
 *            such group to the next (heads+ring)
 *
 * Unless all ranks swap, a rank of a causal model has a chunk from the head of each sequence and one from its
 * tail, so that all ranks attend to equally many keys. */
#ifndef WEFT_MODEL_PARTS_CONTEXT_H
#define WEFT_MODEL_PARTS_CONTEXT_H

#include "model/model.h"

/* Memory of attention on parts of sequences, with G key heads on this tensor-parallel rank. */
typedef struct ContextSaved {
    Tensor lse;            /* of the rows and heads with which this rank attends */
    struct {               /* after swapping rows for heads */
        Tensor qkv, att;   /* qkv as attention reads it */
        Tensor dqkv, datt; /* scratch */
    } whole;
    /* The rest is scratch. */
    Tensor send, receive;  /* swap and gather: rows of this rank and of all, by rank */
    Tensor kv[2], dkv[2];  /* gather: [0] is of all positions; ring: of two ranks (B,T,2G,D) */
    Tensor part, part_lse; /* ring: results over the keys of one rank */
} ContextSaved;

/* Whether ranks swap rows for heads. */
bool context_swaps(Shape shape);
/* For attention of qkv; att is its output. */
ContextSaved context_saved(const ModelConfig *config, Shape shape, Tensor qkv, Tensor att, Bump *saved,
                           Bump *scratch);
/* att from qkv. `spec` is that of whole sequences with the own heads. */
MUST_USE Status context_attend(const Block *block, const Pass *pass, const ContextSaved *s, Tensor att,
                               Tensor qkv, Attention spec);
/* Starts what context_attend_back waits for, if qkv is there before: to gather keys. */
MUST_USE Status context_start_back(Pass *pass, const ContextSaved *s, Tensor qkv);
/* dqkv from datt. After swaps, qkv is not read. */
MUST_USE Status context_attend_back(const Block *block, Pass *pass, const ContextSaved *s, Tensor dqkv,
                                    Tensor datt, Tensor att, Tensor qkv, Attention spec);

#endif
