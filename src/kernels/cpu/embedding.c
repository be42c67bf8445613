/* Embeddings. In forward, threads take rows. In backward, rows of the tables collide, so threads take
 * columns, and each element is accumulated by one thread in the order of the rows.
 *
 * B sequences, T positions, C hidden size, V vocabulary size (of this rank's part) */
#include <string.h>

#include "kernels/cpu/map.h"
#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

/* The row's position in a table; -1 if it is not there, or there is no table. */
static inline int64_t position_in(Tensor table, Tensor positions, int64_t T, int64_t row) {
    return table.data ? row_position(positions, 0, T, row / T, row % T, tensor_rows(table)) : -1;
}

static inline VecF tail_or_zero(const void *from, DType dtype, int64_t at, int64_t n) {
    return from ? vec_get_some(from, dtype, at, n) : vec_set(0.0f);
}

/* to (n) = the sum of up to three rows; any of them may be NULL. */
static ALWAYS_INLINE void rows_sum(DType dtype, void *to, const void *token, const void *position,
                                   const void *type, int64_t n) {
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        VecF sum = token ? vec_get(token, dtype, i) : vec_set(0.0f);
        if (position) sum += vec_get(position, dtype, i);
        if (type) sum += vec_get(type, dtype, i);
        vec_put(to, dtype, i, sum);
    }
    if (i == n) return;
    VecF sum = tail_or_zero(token, dtype, i, n - i) + tail_or_zero(position, dtype, i, n - i);
    vec_put_some(to, dtype, i, sum + tail_or_zero(type, dtype, i, n - i), n - i);
}

/* The arguments of both kernels; x is dx in backward, and the tables are gradients. */
typedef struct Embedding {
    Tensor x, tokens, types, positions, wte, wpe, wtype;
    VocabPart part;
} Embedding;

static void forward_rows(const void *context, Range mine) {
    const Embedding *f = context;
    int64_t T = f->x.dim[1], C = f->x.dim[2], V = tensor_rows(f->wte);
    for (int64_t row = mine.from; row < mine.to; row++) {
        int64_t token = vocab_row(f->part, V, tensor_i32(f->tokens)[row]);
        int64_t position = position_in(f->wpe, f->positions, T, row);
        int64_t type = f->types.data ? tensor_i32(f->types)[row] : 0;
        BY_TYPE(f->x.dtype, rows_sum, run_at(f->x, row * C), token >= 0 ? run_at(f->wte, token * C) : NULL,
                position >= 0 ? run_at(f->wpe, position * C) : NULL, run_at(f->wtype, type * C), C);
    }
}

static Status embedding_forward_cpu(Stream *stream, Tensor x, Tensor tokens, Tensor types, Tensor positions,
                                    Tensor wte, Tensor wpe, Tensor wtype, VocabPart part) {
    TRY(kernels_check_rows("embedding_forward", "token type", types, wtype));
    Embedding context = {x, tokens, types, positions, wte, wpe, wtype, part};
    ranges_run(stream, tensor_rows(x), 1, tensor_count(x), forward_rows, &context);
    return OK;
}

/* table[row] += n elements of dx from column `col`; does nothing if the table is absent or row is negative.
 */
static ALWAYS_INLINE void table_add(DType dtype, Tensor table, int64_t row, int64_t col, const void *from,
                                    int64_t n) {
    if (!table.data || row < 0) return;
    map_add(DT_F32, tensor_f32(table) + row * tensor_cols(table) + col, dtype, from, n);
}

/* The row of wte that belongs to a row of x; -1 if there is none. */
static inline int64_t token_row(const Embedding *f, int64_t row) {
    return f->wte.data ? vocab_row(f->part, tensor_rows(f->wte), tensor_i32(f->tokens)[row]) : -1;
}

static inline void table_prefetch(Tensor table, int64_t row, Range columns) {
    if (!table.data || row < 0) return;
    const float *at = tensor_f32(table) + row * tensor_cols(table);
    for (int64_t c = columns.from; c < columns.to; c += 16) __builtin_prefetch(at + c, 1, 3);
}

/* Prefetches what a row needs: tokens are in no order, and some columns of consecutive rows are too far apart
 * for a CPU to predict them. */
static void backward_prefetch(const Embedding *f, int64_t row, Range columns) {
    int64_t T = f->x.dim[1], C = f->x.dim[2];
    if (row >= tensor_rows(f->x)) return;
    table_prefetch(f->wte, token_row(f, row), columns);
    table_prefetch(f->wpe, position_in(f->wpe, f->positions, T, row), columns);
    for (int64_t c = columns.from; c < columns.to; c += 16)
        __builtin_prefetch(run_at(f->x, row * C + c), 0, 3);
}

static void backward_columns(const void *context, Range mine) {
    enum { AHEAD = 16 };
    const Embedding *f = context;
    int64_t T = f->x.dim[1], C = f->x.dim[2], rows = tensor_rows(f->x), n = mine.to - mine.from;
    DType dtype = f->x.dtype;
    for (int64_t row = 0; row < rows; row++) {
        const void *from = run_at(f->x, row * C + mine.from);
        int64_t token = token_row(f, row);
        backward_prefetch(f, row + AHEAD, mine);
        int64_t position = position_in(f->wpe, f->positions, T, row);
        BY_TYPE(dtype, table_add, f->wte, token, mine.from, from, n);
        BY_TYPE(dtype, table_add, f->wpe, position, mine.from, from, n);
        BY_TYPE(dtype, table_add, f->wtype, f->types.data ? tensor_i32(f->types)[row] : 0, mine.from, from,
                n);
    }
}

static Status embedding_backward_cpu(Stream *stream, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx,
                                     Tensor tokens, Tensor types, Tensor positions, VocabPart part) {
    TRY(kernels_check_rows("embedding_backward", "token type", types, dwtype));
    Embedding context = {dx, tokens, types, positions, dwte, dwpe, dwtype, part};
    ranges_run(stream, dx.dim[2], 16, tensor_count(dx), backward_columns, &context);
    return OK;
}

void VARIANT(embedding_override)(KernelTable *table) {
    table->embedding_forward = embedding_forward_cpu;
    table->embedding_backward = embedding_backward_cpu;
}
