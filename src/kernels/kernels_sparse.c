/* The functions of kernels.h, continued: packing of sparse weights and linear layers that use them. See
 * sparse.h for the format. */
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/sparse.h"

static bool is_set(const uint8_t *mask, int64_t cols, int64_t row, int64_t col) {
    return mask[row * ((cols + 7) / 8) + col / 8] >> (col % 8) & 1;
}

static int64_t blocks_of(int64_t K) {
    return (K + SPARSE_BLOCK - 1) / SPARSE_BLOCK;
}

/* Quads (groups of four values) that an output needs for a block of inputs. */
static int64_t quads_of(const uint8_t *mask, int64_t K, int64_t row, int64_t block) {
    int64_t count = 0, from = block * SPARSE_BLOCK, to = from + SPARSE_BLOCK < K ? from + SPARSE_BLOCK : K;
    for (int64_t k = from; k < to; k++) count += is_set(mask, K, row, k);
    return (count + 3) / 4;
}

static Status check_mask(const Exec *exec, Tensor mask, int64_t N, int64_t K) {
    if (!exec->table->linear_sparse_forward || !device_is_host(exec->stream->device))
        return FAILED("internal: sparse weights are only supported on a CPU");
    return check_matrix(__func__, "mask", mask, DT_U8, N, (K + 7) / 8);
}

Status sparse_bytes(const Exec *exec, Tensor mask, int64_t N, int64_t K, size_t *ret_bytes) {
    TRY(check_mask(exec, mask, N, K));
    int64_t quads = 0, blocks = blocks_of(K);
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t row = 0; row < N; row++) quads += quads_of(mask.data, K, row, block);
    if (quads > INT32_MAX || blocks * N >= INT32_MAX)
        return FAILED("sparse weights with %lld outputs and %lld inputs are too large", (long long)N,
                      (long long)K);
    *ret_bytes = sparse_align(sizeof(SparseHeader)) +
                 sparse_align((size_t)(blocks * N + 1) * sizeof(uint32_t)) +
                 sparse_align((size_t)quads * 4 * sizeof(float)) + (size_t)quads * 4 * sizeof(uint16_t);
    return OK;
}

/* Packs one output in one block. `from` points at its first value in that block. */
static void pack_part(const SparseView *view, const uint8_t *mask, const float *from, int64_t row,
                      int64_t block, uint32_t first) {
    int64_t K = view->header->inputs, start = block * SPARSE_BLOCK, at = (int64_t)first * 4;
    int64_t end = start + SPARSE_BLOCK < K ? start + SPARSE_BLOCK : K;
    for (int64_t k = start; k < end; k++) {
        if (!is_set(mask, K, row, k)) continue;
        view->value[at] = *from++;
        view->index[at++] = (uint16_t)(k - start);
    }
    for (; at % 4; at++) view->value[at] = 0, view->index[at] = 0;
}

/* Number of nonzero values of an output in all blocks before this one. */
static int64_t nonzeros_before(const uint8_t *mask, int64_t K, int64_t row, int64_t block) {
    int64_t count = 0;
    for (int64_t k = 0; k < block * SPARSE_BLOCK; k++) count += is_set(mask, K, row, k);
    return count;
}

Status sparse_pack(const Exec *exec, Tensor packed, Tensor mask, const int64_t *first, Tensor values) {
    int64_t N = tensor_rows(packed), K = tensor_cols(packed), blocks = blocks_of(K);
    TRY(check_mask(exec, mask, N, K));
    CHECK_COUNT(values, DT_F32, first[N]);
    SparseHeader header = {.mark = SPARSE_MARK, .outputs = N, .inputs = K, .blocks = blocks};
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t row = 0; row < N; row++) header.quads += (uint32_t)quads_of(mask.data, K, row, block);
    memcpy(packed.data, &header, sizeof header);
    SparseView view = sparse_view(packed);
    uint32_t at = 0;
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t row = 0; row < N; row++) {
            view.start[block * N + row] = at;
            const float *from = tensor_f32(values) + first[row] + nonzeros_before(mask.data, K, row, block);
            pack_part(&view, mask.data, from, row, block, at);
            at += (uint32_t)quads_of(mask.data, K, row, block);
        }
    view.start[blocks * N] = at;
    return OK;
}

Status linear_sparse_forward(Exec *exec, Tensor y, Tensor x, Tensor w, Tensor b) {
    const SparseHeader *header = w.data;
    double count = 4.0 * header->quads;
    RUN(KERNEL_LINEAR_SPARSE_FORWARD, 2 * count * (double)tensor_rows(x), BYTES(y, x, b) + 6 * count,
        linear_sparse_forward, y, x, w, b);
}

Status linear_sparse_act_forward(Exec *exec, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act) {
    int64_t M = tensor_rows(x), N = tensor_rows(w), K = tensor_cols(w);
    const SparseHeader *header = w.data;
    if (header->mark != SPARSE_MARK || header->outputs != N || header->inputs != K)
        return FAILED("internal: %s: w was not packed by sparse_pack", __func__);
    TRY(check_act(__func__, act));
    CHECK_MATRIX(x, DT_F32, M, K);
    CHECK_MATRIX(y, DT_F32, M, N);
    if (b.data) CHECK_COUNT(b, DT_F32, N);
    if (pre.data) CHECK_MATRIX(pre, DT_F32, M, N);
    if (M == 0) return OK;
    if (act == ACT_NONE) return linear_sparse_forward(exec, y, x, w, b);
    Tensor sums = pre.data ? pre : y;
    TRY(linear_sparse_forward(exec, sums, x, w, b));
    return act_forward(exec, y, sums, act);
}
