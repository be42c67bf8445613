/* Fake quantization on a GPU: slots for round.cu. */
#include "kernels/cuda/cuda.h"

Status row_largest_cuda(Stream *stream, Tensor largest, Tensor x) {
    LAUNCH(launch_row_largest(cuda_stream(stream), x.dtype, largest.data, x.data, tensor_rows(x),
                              tensor_cols(x)));
    return OK;
}

static Status round_rows(Stream *stream, int bits, Tensor y, Tensor x, Tensor largest) {
    LAUNCH(launch_round_rows(cuda_stream(stream), x.dtype, bits, y.data, x.data, largest.data, tensor_rows(x),
                             tensor_cols(x)));
    return OK;
}

Status round_int8_cuda(Stream *stream, Tensor y, Tensor x, Tensor largest) {
    return round_rows(stream, 8, y, x, largest);
}

Status round_int4_cuda(Stream *stream, Tensor y, Tensor x, Tensor largest) {
    return round_rows(stream, 4, y, x, largest);
}
