/* Context parallelism in attention: ranks have T positions of each sequence and all heads of this
 * tensor-parallel rank ("own"); attention needs whole sequences.
 *
 *   heads   the ranks exchange rows for heads: each attends over whole sequences with 1/cp of the heads
 *           ("whole"), exactly as one rank would, and exchanges back
 */
#ifndef WEFT_MODEL_PARTS_CONTEXT_H
#define WEFT_MODEL_PARTS_CONTEXT_H

#include "model/model.h"

/* Heads of q, k and v, or 0, that follow one another in each row of a tensor. */
typedef struct HeadCounts {
    int64_t count[3];
} HeadCounts;

/* Memory for an exchange. */
typedef struct ContextBuffers {
    Tensor send, receive;
} ContextBuffers;

ContextBuffers context_buffers(Tensor own, Bump *scratch);
/* whole (B,T cp,N/cp,D) from own (B,T,N,D), and back. N heads, `heads` of all kinds; (B,T,3,H,D) is taken as
 * such. */
MUST_USE Status context_to_heads(const Pass *pass, ContextBuffers buffers, Tensor whole, Tensor own,
                                 HeadCounts heads);
MUST_USE Status context_to_rows(const Pass *pass, ContextBuffers buffers, Tensor own, Tensor whole,
                                HeadCounts heads);

#endif
