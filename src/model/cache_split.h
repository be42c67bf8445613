/* Generation with a KV cache that is split over ranks: each has the keys and values of some positions
 * (CachePart) and attends to these. What the ranks compute for a query is merged in their order, so that all
 * get the same bits.
 *
 *   a step    all ranks have the same new rows, and each sends its results to all
 *   a prompt  the ranks have a block of new rows each, as many positions as a block of the cache: q, k and v
 *             are gathered, each rank attends with all queries, and the results go to the ranks that have the
 *             rows. So everything but attention is computed once */
#ifndef WEFT_MODEL_CACHE_SPLIT_H
#define WEFT_MODEL_CACHE_SPLIT_H

#include "model/model.h"

struct CacheSplit {
    Group *group; /* NULL: one rank, which has all positions */
    CachePart part;
    bool own_rows;      /* this pass has a block of rows, of one sequence, on each rank */
    Tensor past, fresh; /* with own_rows: (N) int32, of the rows of each of the N ranks */
    Tensor qkv;         /* with own_rows: that of all ranks */
    Tensor send, receive;
};

/* The part of a rank for sequences of up to `context` positions, in blocks of at most `block`, so that all
 * parts are about as large. Without a group, all positions. */
CachePart cache_part(const Group *group, int64_t context, int64_t block);
/* Sets the tensors for passes with up to `same` rows that all ranks have, or `own` rows on each. */
void cache_split_take(CacheSplit *split, const ModelConfig *config, DType dtype, int64_t same, int64_t own,
                      Bump *bump);
/* attention_decode over all ranks. */
MUST_USE Status cache_split_attend(Pass *pass, Tensor out, const KvCache *cache, Tensor qkv, Attention spec);

#endif
