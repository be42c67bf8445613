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
