/* Small things that the blocks share. */
#ifndef WEFT_MODEL_COMMON_H
#define WEFT_MODEL_COMMON_H

#include "model/model.h"

/* Descriptors. Matrices are drawn from a normal distribution (BERT: a truncated one) and decay; biases
 * start at 0, norms at 1 and 0, and neither decays. `c` 0: two dims; `b` 0: one. */
MUST_USE Status describe_matrix(ParamList *list, Family family, float std, int split, int64_t a, int64_t b,
                                int64_t c, const char *fmt, ...) PRINTF_LIKE(8, 9);
MUST_USE Status describe_bias(ParamList *list, int split, int64_t a, int64_t b, const char *fmt, ...)
    PRINTF_LIKE(5, 6);
MUST_USE Status describe_norm(ParamList *list, int64_t width, const char *prefix);

/* A (3, C, K) or (3, C) parameter seen as the matrix or vector that a linear layer takes. */
static inline Tensor as_matrix(Tensor t) {
    return tensor_matrix(t);
}
static inline Tensor as_vector(Tensor t) {
    return tensor_1d(t.data, t.dtype, tensor_count(t));
}

/* Dropout of a (B,T,C) activation at a named site; off outside training. */
Dropout dropout_at(const Pass *pass, float p, int64_t width, const char *fmt, ...) PRINTF_LIKE(4, 5);

static inline Bump bump_over(Buffer buffer) {
    return (Bump){.base = buffer.data, .size = buffer.bytes};
}

/* Heads compute their gradient during forward: the place where it waits, (B*T,C), and the backward that
 * hands it on. */
Tensor head_saved(const Block *block, Shape shape, Bump *bump);
MUST_USE Status head_backward(const Block *block, Pass *pass, Tensor dx, Tensor dy, Tensor x);

/* Rows of logits that are held at once. */
int64_t loss_chunk_rows(int64_t rows, int64_t vocab);

#endif
