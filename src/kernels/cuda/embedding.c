/* Embeddings. For the gradient of the token table, rows of dx are sorted by token, so that every row of the
 * table has one owner and its sum a fixed order. So are they by position, if positions are given. */
#include "kernels/cuda/cuda.h"

Status embedding_forward_cuda(Stream *stream, Tensor x, Tensor tokens, Tensor types, Tensor positions,
                              Tensor wte, Tensor wpe, Tensor wtype, VocabPart part) {
    EmbeddingTables tables = {.wte = wte.data,
                              .wpe = wpe.data,
                              .wtype = wtype.data,
                              .start = part.start,
                              .tokens = vocab_columns(part, tensor_rows(wte)),
                              .positions = wpe.data ? tensor_rows(wpe) : 0,
                              .types = wtype.data ? tensor_rows(wtype) : 0};
    if (wte.dtype == DT_Q8 || wte.dtype == DT_Q4)
        return embedding_int8_cuda(stream, x, tokens, types, positions, wte, tables);
    /* With a position per row, every row is a sequence of its own. */
    int64_t T = positions.ndim > 1 ? 1 : x.dim[1];
    LAUNCH(launch_embedding_forward(cuda_stream(stream), x.dtype, x.data, tokens.data, types.data,
                                    positions.data, tables, x.dim[0] * x.dim[1], T, x.dim[2]));
    return OK;
}

/* table[index - start] += rows of dx, for the indices in its first `columns` rows. */
static Status add_by_index(Stream *stream, Tensor table, Tensor dx, Tensor index, int64_t start,
                           int64_t columns) {
    int64_t N = tensor_rows(dx), C = tensor_cols(dx);
    size_t partial = embedding_partial_bytes(N, C);
    RowOrder order;
    void *workspace;
    TRY(row_order(stream, N, columns, partial, &order, &workspace));
    LAUNCH(launch_row_keys(cuda_stream(stream), order, index.data, N, start, columns));
    LAUNCH(launch_sort(cuda_stream(stream), order, N, columns));
    LAUNCH(launch_token_gradient(cuda_stream(stream), dx.dtype, table.data, dx.data, order, N, C, columns,
                                 workspace));
    return OK;
}

static Status type_gradient(Stream *stream, Tensor dwtype, Tensor dx, Tensor types) {
    int64_t C = tensor_cols(dx), kinds = types.data ? tensor_rows(dwtype) : 1;
    void *workspace;
    TRY(stream_workspace(stream, type_partial_bytes(kinds, C), &workspace));
    LAUNCH(launch_type_gradient(cuda_stream(stream), dx.dtype, dwtype.data, dx.data, types.data,
                                tensor_rows(dx), C, kinds, workspace));
    return OK;
}

Status embedding_backward_cuda(Stream *stream, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx,
                               Tensor tokens, Tensor types, Tensor positions, VocabPart part) {
    if (dwte.data)
        TRY(add_by_index(stream, dwte, dx, tokens, part.start, vocab_columns(part, tensor_rows(dwte))));
    if (dwpe.data && positions.data)
        TRY(add_by_index(stream, dwpe, dx, positions, 0, tensor_rows(dwpe)));
    else if (dwpe.data)
        LAUNCH(launch_position_gradient(cuda_stream(stream), dx.dtype, dwpe.data, dx.data, dx.dim[0],
                                        dx.dim[1], dx.dim[2]));
    if (dwtype.data) TRY(type_gradient(stream, dwtype, dx, types));
    return OK;
}
