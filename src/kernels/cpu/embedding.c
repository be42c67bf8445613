/* Embeddings. Forward: threads take rows. Backward: rows of the tables collide, so threads take columns
 * and each element is summed by one thread in the order of the rows.
 *
 * Legend: B sequences, T positions, C width, V vocabulary (local part) */
#include <string.h>

#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

static Status types_check(const char *kernel, Tensor types, Tensor wtype) {
    for (int64_t i = 0; types.data && wtype.data && i < tensor_count(types); i++)
        if (tensor_i32(types)[i] < 0 || tensor_i32(types)[i] >= tensor_rows(wtype))
            return FAILED("internal: %s: token type %d, expected 0 to %lld", kernel, tensor_i32(types)[i],
                          (long long)tensor_rows(wtype) - 1);
    return OK;
}

/* to += from, n elements from `at` on. */
static void run_add(float *to, Tensor from, int64_t at, int64_t n) {
    float buffer[RUN];
    const float *more = run_in(from, at, n, buffer);
#pragma omp simd
    for (int64_t c = 0; c < n; c++) to[c] += more[c];
}

static Status embedding_forward_cpu(Stream *stream, Tensor x, Tensor tokens, Tensor types, Tensor past,
                                    Tensor wte, Tensor wpe, Tensor wtype, VocabPart part) {
    TRY(types_check("embedding_forward", types, wtype));
    int64_t B = x.dim[0], T = x.dim[1], C = x.dim[2], V = tensor_rows(wte);
#pragma omp parallel num_threads(threads_for(stream, B *T *C))
    {
        Range mine = range_mine(B * T, 1);
        float buffer[RUN];
        for (int64_t row = mine.from; row < mine.to; row++) {
            int64_t token = vocab_row(part, V, tensor_i32(tokens)[row]);
            int64_t position = row % T + (past.data ? tensor_i32(past)[row / T] : 0);
            bool placed = wpe.data && position >= 0 && position < tensor_rows(wpe);
            int64_t type = types.data ? tensor_i32(types)[row] : 0;
            for (int64_t c = 0; c < C; c += RUN) {
                int64_t n = run_length(C - c);
                float *to = run_out(x, row * C + c, buffer);
                if (token >= 0)
                    half_load(to, wte.data, wte.dtype, token * C + c, n);
                else
                    memset(to, 0, (size_t)n * sizeof *to);
                if (placed) run_add(to, wpe, position * C + c, n);
                if (wtype.data) run_add(to, wtype, type * C + c, n);
                run_end(x, row * C + c, n, to);
            }
        }
    }
    return OK;
}

static Status embedding_backward_cpu(Stream *stream, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx,
                                     Tensor tokens, Tensor types, VocabPart part) {
    TRY(types_check("embedding_backward", types, dwtype));
    int64_t B = dx.dim[0], T = dx.dim[1], C = dx.dim[2];
    int64_t V = dwte.data ? tensor_rows(dwte) : 0;
#pragma omp parallel num_threads(threads_for(stream, B *T *C))
    {
        Range mine = range_mine(C, 16);
        for (int64_t row = 0; row < B * T; row++) {
            int64_t token = dwte.data ? vocab_row(part, V, tensor_i32(tokens)[row]) : -1;
            int64_t type = types.data ? tensor_i32(types)[row] : 0;
            for (int64_t c = mine.from; c < mine.to; c += RUN) {
                int64_t n = run_length(mine.to - c), at = row * C + c;
                if (token >= 0) run_add(tensor_f32(dwte) + token * C + c, dx, at, n);
                if (dwpe.data) run_add(tensor_f32(dwpe) + row % T * C + c, dx, at, n);
                if (dwtype.data) run_add(tensor_f32(dwtype) + type * C + c, dx, at, n);
            }
        }
    }
    return OK;
}

void VARIANT(embedding_override)(KernelTable *table) {
    table->embedding_forward = embedding_forward_cpu;
    table->embedding_backward = embedding_backward_cpu;
}
