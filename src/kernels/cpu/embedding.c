/* Embeddings. Forward: threads take rows. Backward: rows of the tables collide, so threads take columns
 * and each element is summed by one thread in the order of the rows.
 *
 * Legend: B sequences, T positions, C width, V vocabulary (local part) */
#include <string.h>

#include "kernels/cpu/variant.h"
#include "kernels/ref/ref.h"

static Status types_check(const char *kernel, Tensor types, Tensor wtype) {
    for (int64_t i = 0; types.data && wtype.data && i < tensor_count(types); i++)
        if (tensor_i32(types)[i] < 0 || tensor_i32(types)[i] >= tensor_rows(wtype))
            return FAILED("internal: %s: token type %d, expected 0 to %lld", kernel, tensor_i32(types)[i],
                          (long long)tensor_rows(wtype) - 1);
    return OK;
}

static void row_add(float *to, const float *from, int64_t n) {
#pragma omp simd
    for (int64_t c = 0; c < n; c++) to[c] += from[c];
}

static Status embedding_forward_cpu(Stream *stream, Tensor x, Tensor tokens, Tensor types, Tensor past,
                                    Tensor wte, Tensor wpe, Tensor wtype, VocabPart part) {
    FP32_ELSE(embedding_forward_ref(stream, x, tokens, types, past, wte, wpe, wtype, part), x, wte, wpe,
              wtype);
    TRY(types_check("embedding_forward", types, wtype));
    int64_t B = x.dim[0], T = x.dim[1], C = x.dim[2], V = tensor_rows(wte);
#pragma omp parallel num_threads(threads_for(stream, B *T *C))
    {
        Range mine = range_mine(B * T, 1);
        for (int64_t row = mine.from; row < mine.to; row++) {
            float *to = tensor_f32(x) + row * C;
            int64_t token = vocab_row(part, V, tensor_i32(tokens)[row]);
            if (token >= 0)
                memcpy(to, tensor_f32(wte) + token * C, (size_t)C * sizeof *to);
            else
                memset(to, 0, (size_t)C * sizeof *to);
            int64_t position = row % T + (past.data ? tensor_i32(past)[row / T] : 0);
            if (wpe.data && position >= 0 && position < tensor_rows(wpe))
                row_add(to, tensor_f32(wpe) + position * C, C);
            if (wtype.data) row_add(to, tensor_f32(wtype) + (types.data ? tensor_i32(types)[row] : 0) * C, C);
        }
    }
    return OK;
}

static Status embedding_backward_cpu(Stream *stream, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx,
                                     Tensor tokens, Tensor types, VocabPart part) {
    FP32_ELSE(embedding_backward_ref(stream, dwte, dwpe, dwtype, dx, tokens, types, part), dwte, dwpe, dwtype,
              dx);
    TRY(types_check("embedding_backward", types, dwtype));
    int64_t B = dx.dim[0], T = dx.dim[1], C = dx.dim[2];
    int64_t V = dwte.data ? tensor_rows(dwte) : 0;
#pragma omp parallel num_threads(threads_for(stream, B *T *C))
    {
        Range mine = range_mine(C, 16);
        int64_t n = mine.to - mine.from;
        for (int64_t row = 0; row < B * T && n > 0; row++) {
            const float *from = tensor_f32(dx) + row * C + mine.from;
            int64_t token = dwte.data ? vocab_row(part, V, tensor_i32(tokens)[row]) : -1;
            if (token >= 0) row_add(tensor_f32(dwte) + token * C + mine.from, from, n);
            if (dwpe.data) row_add(tensor_f32(dwpe) + row % T * C + mine.from, from, n);
            int64_t type = types.data ? tensor_i32(types)[row] : 0;
            if (dwtype.data) row_add(tensor_f32(dwtype) + type * C + mine.from, from, n);
        }
    }
    return OK;
}

void VARIANT(embedding_override)(KernelTable *table) {
    table->embedding_forward = embedding_forward_cpu;
    table->embedding_backward = embedding_backward_cpu;
}
