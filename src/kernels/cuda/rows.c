/* Row operations on a GPU, and sorting of row indices: slots for rows.cu and sort.cu. */
#include "kernels/cuda/argmax.h"
#include "kernels/cuda/cuda.h"

Status row_order(Stream *stream, int64_t count, int64_t largest, size_t more, RowOrder *ret_order,
                 void **ret_more) {
    if (count > INT32_MAX || largest >= UINT32_MAX)
        return FAILED("internal: %s: %lld indices into %lld rows; expected fewer than 2^31", __func__,
                      (long long)count, (long long)largest);
    size_t list = row_list_bytes(count), sort_bytes = 0;
    LAUNCH(launch_sort_bytes(count, largest, &sort_bytes));
    void *workspace;
    TRY(stream_workspace(stream, ROW_LISTS * list + gpu_align(sort_bytes) + more, &workspace));
    char *at = workspace;
    *ret_order = (RowOrder){.key = (uint32_t *)at,
                            .position = (uint32_t *)(at + list),
                            .sorted = (uint32_t *)(at + 2 * list),
                            .from = (uint32_t *)(at + 3 * list),
                            .scratch = at + 4 * list,
                            .scratch_bytes = sort_bytes};
    *ret_more = at + ROW_LISTS * list + gpu_align(sort_bytes);
    return OK;
}

Status argmax_cuda(Stream *stream, Tensor index, Tensor x) {
    LAUNCH(launch_argmax(cuda_stream(stream), x.dtype, index.data, x.data, tensor_rows(x), tensor_cols(x)));
    return OK;
}

Status argmax_advance_cuda(Stream *stream, Tensor chosen, Tensor tokens, Tensor past, Tensor x) {
    ArgmaxAdvance advance = {
        .past = past.data, .chosen = chosen.data, .columns = (int32_t)tensor_cols(chosen)};
    LAUNCH(launch_argmax_advance(cuda_stream(stream), x.dtype, tokens.data, x.data, tensor_rows(x),
                                 tensor_cols(x), advance));
    return OK;
}

Status gather_rows_cuda(Stream *stream, Tensor out, Tensor x, Tensor index) {
    LAUNCH(launch_gather_rows(cuda_stream(stream), out.dtype, out.data, x.data, index.data, tensor_rows(out),
                              tensor_cols(out), tensor_rows(x)));
    return OK;
}

/* With few rows, the kernel scans the index for duplicates; many rows are sorted first. */
Status scatter_add_rows_cuda(Stream *stream, Tensor x, Tensor y, Tensor index) {
    enum { SCAN_MAX_ROWS = 2048 };
    int64_t M = tensor_rows(y), C = tensor_cols(y), rows = tensor_rows(x);
    if (M <= SCAN_MAX_ROWS) {
        LAUNCH(launch_scatter_scan(cuda_stream(stream), y.dtype, x.data, y.data, index.data, M, C, rows));
        return OK;
    }
    RowOrder order;
    void *no_more;
    TRY(row_order(stream, M, rows, 0, &order, &no_more));
    LAUNCH(launch_row_keys(cuda_stream(stream), order, index.data, M, 0, rows));
    LAUNCH(launch_sort(cuda_stream(stream), order, M, rows));
    LAUNCH(launch_scatter_sorted(cuda_stream(stream), y.dtype, x.data, y.data, order, M, C, rows));
    return OK;
}

Status transpose_cuda(Stream *stream, Tensor y, Tensor x) {
    LAUNCH(launch_transpose(cuda_stream(stream), x.dtype, y.data, x.data, tensor_rows(x), tensor_cols(x)));
    return OK;
}
