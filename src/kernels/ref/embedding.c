/* Embeddings: sums of rows of the token, position and type tables. Absent types are all 0. */
#include "kernels/ref/ref.h"

Status embedding_forward_ref(Stream *stream, Tensor x, Tensor tokens, Tensor types, Tensor positions,
                             Tensor wte, Tensor wpe, Tensor wtype, VocabPart part) {
    (void)stream;
    TRY(kernels_check_rows("embedding_forward", "token type", types, wtype));
    int64_t T = x.dim[1], C = x.dim[2];
    for (int64_t i = 0; i < x.dim[0] * T; i++) {
        int64_t row = vocab_row(part, tensor_rows(wte), tensor_i32(tokens)[i]);
        int64_t position = wpe.data ? row_position(positions, 0, T, i / T, i % T, tensor_rows(wpe)) : -1;
        int64_t type = types.data ? tensor_i32(types)[i] : 0;
        for (int64_t c = 0; c < C; c++) {
            double total = row < 0 ? 0 : tensor_get(wte, row * C + c);
            if (position >= 0) total += tensor_get(wpe, position * C + c);
            if (wtype.data) total += tensor_get(wtype, type * C + c);
            tensor_put(x, i * C + c, total);
        }
    }
    return OK;
}

/* table[row] += dx[from] */
static void add_row(Tensor table, int64_t row, Tensor dx, int64_t from) {
    int64_t C = tensor_cols(table);
    for (int64_t c = 0; c < C; c++) tensor_f32(table)[row * C + c] += (float)tensor_get(dx, from * C + c);
}

/* Rows are added in the order of the tokens, so the result is deterministic. */
Status embedding_backward_ref(Stream *stream, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx,
                              Tensor tokens, Tensor types, Tensor positions, VocabPart part) {
    (void)stream;
    TRY(kernels_check_rows("embedding_backward", "token type", types, dwtype));
    int64_t T = dx.dim[1];
    for (int64_t i = 0; i < dx.dim[0] * T; i++) {
        int64_t row = dwte.data ? vocab_row(part, tensor_rows(dwte), tensor_i32(tokens)[i]) : -1;
        if (row >= 0) add_row(dwte, row, dx, i);
        int64_t position = dwpe.data ? row_position(positions, 0, T, i / T, i % T, tensor_rows(dwpe)) : -1;
        if (position >= 0) add_row(dwpe, position, dx, i);
        if (dwtype.data) add_row(dwtype, types.data ? tensor_i32(types)[i] : 0, dx, i);
    }
    return OK;
}
