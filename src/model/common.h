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
/* `per_row`: it works on rows that tensor ranks may have cut among them. */
MUST_USE Status describe_norm(ParamList *list, int64_t width, bool per_row, const char *prefix);
/* Marks the parameter described last as split over a vocabulary. */
void describe_vocab(ParamList *list);

/* A (3, C, K) or (3, C) parameter seen as the matrix or vector that a linear layer takes. */
static inline Tensor as_matrix(Tensor t) {
    return tensor_matrix(t);
}
static inline Tensor as_vector(Tensor t) {
    return tensor_1d(t.data, t.dtype, tensor_count(t));
}

/* Rows between split parts, `width` wide: (B,T,width), or a tensor rank's share (1,B*T/tp,width). */
static inline Tensor rows_of(Shape shape, int64_t width) {
    if (!shape.sequence) return tensor_3d(NULL, shape.dtype, shape.B, shape.T, width);
    return tensor_3d(NULL, shape.dtype, 1, shape.B * shape.T / shape.tp, width);
}
/* All of them, where `rows_of` is a share; else none. */
static inline Tensor whole_of(Shape shape, int64_t width) {
    if (!shape.sequence) return (Tensor){.dtype = shape.dtype, .ndim = 1};
    return tensor_3d(NULL, shape.dtype, shape.B, shape.T, width);
}
/* One fp32 number for each row. */
static inline Tensor row_stats(Shape shape) {
    return tensor_1d(NULL, DT_F32, shape.B * shape.T / (shape.sequence ? shape.tp : 1));
}
/* This rank's share of whole rows (N,C): all of them where rows are not cut. */
Tensor own_rows(const Pass *pass, Tensor whole);

/* Dropout of rows at a named site; off outside training. */
Dropout dropout_at(const Pass *pass, float p, int64_t width, const char *fmt, ...) PRINTF_LIKE(4, 5);

static inline Bump bump_over(Buffer buffer) {
    return (Bump){.base = buffer.data, .size = buffer.bytes};
}

/* Heads work on all rows: gathers them into scratch where they are cut. Whoever calls it lays out its own
 * scratch from `bump` afterwards. */
Tensor head_room(const Block *block, Shape shape, Bump *bump);
MUST_USE Status head_input(Pass *pass, Tensor room, Tensor x, Tensor *ret_rows);
/* Heads compute their gradient during forward: the place where it waits, (B*T,C), and the backward that
 * hands it on. */
Tensor head_saved(const Block *block, Shape shape, Bump *bump);
MUST_USE Status output_backward(const Block *block, Pass *pass, Tensor dx, Tensor dy, Tensor x);
/* Adds a head's losses (M) to their sum and, where hits are counted, those that complete stats (M,3) tell;
 * the losses are overwritten then. */
MUST_USE Status head_sum(Pass *pass, LossId loss, Tensor losses, Tensor stats, Tensor labels, int64_t valid);

/* The vocabulary as a tensor rank holds it, padding included. */
static inline int64_t vocab_local(const ModelConfig *config, int tp) {
    return vocab_padded(config->vocab, tp) / tp;
}
/* Rows of logits that are held at once. */
int64_t loss_chunk_rows(Shape shape, int64_t vocab);

#endif
