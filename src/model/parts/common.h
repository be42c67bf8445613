/* Helpers shared by the blocks. */
#ifndef WEFT_MODEL_PARTS_COMMON_H
#define WEFT_MODEL_PARTS_COMMON_H

#include "model/model.h"

/* Append parameter descriptors. `id` is the number by which the block finds the parameter (block_param).
 * Matrices are subject to weight decay. Biases start at 0, without decay. c = 0 means two dims, b = 0 one. */
MUST_USE Status describe_matrix(ParamList *list, int id, InitKind init, float std, int split, int64_t a,
                                int64_t b, int64_t c, const char *fmt, ...) PRINTF_LIKE(9, 10);
MUST_USE Status describe_bias(ParamList *list, int id, int split, int64_t a, int64_t b, const char *fmt, ...)
    PRINTF_LIKE(6, 7);
/* Marks the last descriptor as split along the vocabulary. */
void describe_vocab(ParamList *list);

/* A parameter by its number; absent if the block does not have it, or without views. */
static inline Tensor block_param(const Block *block, const Tensor *views, int id) {
    return views && block->slot[id] >= 0 ? views[block->slot[id]] : TENSOR_NONE;
}

/* Whether the gradient of a parameter is to be stored, not added. */
static inline bool grad_is_unwritten(const Block *block, const Pass *pass, int id) {
    return pass->grad_unwritten && block->slot[id] >= 0 && pass->grad_unwritten[block->slot[id]];
}

/* What a tensor-parallel rank has of a split dim starts here; `part` is its extent. The only place where
 * blocks depend on their rank. */
int64_t local_start(const Pass *pass, int64_t part);
/* The rank's part of the vocabulary, for a matrix that holds `rows` of it, starting with row `first`. */
VocabPart local_vocab(const Block *block, const Pass *pass, int64_t rows, int64_t first);

static inline Tensor as_vector(Tensor t) {
    return tensor_1d(t.data, t.dtype, tensor_count(t));
}

/* Rows outside split regions: (B,T,width), or with sequence parallelism the local (1,B*T/tp,width). */
static inline Tensor rows_of(Shape shape, int64_t width) {
    if (!shape.sequence) return tensor_3d(NULL, shape.dtype, shape.B, shape.T, width);
    return tensor_3d(NULL, shape.dtype, 1, shape.B * shape.T / shape.tp, width);
}
/* Buffer for all rows (B,T,width) with sequence parallelism; otherwise empty. */
static inline Tensor whole_of(Shape shape, int64_t width) {
    if (!shape.sequence) return (Tensor){.dtype = shape.dtype, .ndim = 1};
    return tensor_3d(NULL, shape.dtype, shape.B, shape.T, width);
}
/* Number of positions of a whole sequence. */
static inline int64_t context_length(Shape shape) {
    return shape.cp > 1 ? shape.T * shape.cp : shape.T;
}
/* Number of local rows. */
static inline int64_t row_count(Shape shape) {
    return shape.B * shape.T / (shape.sequence ? shape.tp : 1);
}
/* The local rows of (N,C): all of them without sequence parallelism. */
Tensor own_rows(const Pass *pass, Tensor whole);

/* Dropout of local rows at a named site; off outside training. */
Dropout dropout_at(const Pass *pass, float p, int64_t width, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* Dropout of one row per sequence (B,width), as output heads on the first token use it. Every tensor-parallel
 * rank has all of these rows, with and without sequence parallelism. */
Dropout dropout_of_sequences(const Pass *pass, float p, int64_t width, const char *site);

static inline Bump bump_over(Buffer buffer) {
    return (Bump){.base = buffer.data, .size = buffer.bytes};
}

/* Output heads need all rows. head_rows_buffer takes a buffer for them from `bump`. With sequence
 * parallelism, head_input gathers the rows into it; otherwise it returns x. */
Tensor head_rows_buffer(const Block *block, Shape shape, Bump *bump);
MUST_USE Status head_input(Pass *pass, Tensor buffer, Tensor x, Tensor *ret_rows);
/* Output heads compute their gradient in forward: head_saved is where it is kept, (B*T,C); output_backward
 * passes it on. */
Tensor head_saved(const Block *block, Shape shape, Bump *bump);
MUST_USE Status output_backward(const Block *block, Pass *pass, Tensor dx, Tensor dy, Tensor x);
/* Adds losses (M) to their sum and, if hits are counted, the correct predictions found in the complete stats
 * (M,3). Counting hits overwrites the losses. */
MUST_USE Status head_sum(Pass *pass, LossId loss, Tensor losses, Tensor stats, Tensor labels, int64_t valid);

/* Local part of the vocabulary, including padding. */
static inline int64_t vocab_local(const ModelConfig *config, int tp) {
    return vocab_padded(config->vocab, tp) / tp;
}
/* With pieces of the vocabulary matrix: whether the logits of all pieces are kept until their gradients are
 * computed. Otherwise only those of one piece exist at a time and are recomputed, because every chunk of rows
 * gathers the matrix again. */
bool loss_keeps_logits(Shape shape, int64_t vocab);
/* Number of rows per chunk of logits, of `rows` in total. */
int64_t loss_chunk_rows(Shape shape, int64_t vocab, int64_t rows);
/* Rows over which a token loss loops: this micro-batch's or, with pieces of the vocabulary matrix, those of
 * the replica that has most. The last chunks may then be empty. */
int64_t head_loop_rows(const Pass *pass, int64_t rows);

#endif
