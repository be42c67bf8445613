/* Linear layers with sparse weights; see sparse.h for the format. */
#include "kernels/ref/ref.h"
#include "kernels/sparse.h"

Status linear_sparse_forward_ref(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor b) {
    (void)stream;
    SparseView view = sparse_view(w);
    int64_t N = view.header->outputs, K = view.header->inputs;
    for (int64_t i = 0; i < tensor_count(y); i++) {
        const float *row = tensor_f32(x) + i / N * K;
        double sum = b.data ? tensor_f32(b)[i % N] : 0;
        for (int64_t block = 0; block < view.header->blocks; block++) {
            const uint32_t *start = view.start + block * N + i % N;
            for (int64_t at = (int64_t)start[0] * 4; at < (int64_t)start[1] * 4; at++)
                sum += (double)view.value[at] * row[block * SPARSE_BLOCK + view.index[at]];
        }
        tensor_f32(y)[i] = (float)sum;
    }
    return OK;
}
