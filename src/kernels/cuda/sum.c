/* Reductions on a GPU: slots for sum.cu and sketch.cu, which reduce in two steps through the workspace. */
#include "kernels/cuda/cuda.h"

static Status add_up(Stream *stream, Tensor total, Tensor x, bool squares) {
    void *partial;
    TRY(stream_workspace(stream, sum_partial_bytes(), &partial));
    LAUNCH(launch_sum(cuda_stream(stream), x.dtype, total.data, x.data, tensor_count(x), squares, partial));
    return OK;
}

Status sum_cuda(Stream *stream, Tensor total, Tensor x) {
    return add_up(stream, total, x, false);
}

Status sum_squares_cuda(Stream *stream, Tensor total, Tensor x) {
    return add_up(stream, total, x, true);
}

Status sum_squares_parts_cuda(Stream *stream, Tensor totals, Tensor x, int64_t skip, int64_t share) {
    void *partial;
    int64_t count = tensor_count(x);
    TRY(stream_workspace(stream, sum_parts_bytes(count, skip, share), &partial));
    LAUNCH(launch_sum_parts(cuda_stream(stream), totals.data, x.data, count, skip, share, partial));
    return OK;
}

Status sketch_cuda(Stream *stream, Tensor totals, Tensor x, SketchMap map) {
    void *partial;
    int64_t count = tensor_count(x), size = tensor_count(totals);
    TRY(stream_workspace(stream, sketch_partial_bytes(), &partial));
    LAUNCH(launch_sketch(cuda_stream(stream), totals.data, size, x.data, count, map, partial));
    return OK;
}
