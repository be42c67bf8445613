/* Fake quantization and int8 gradients on a GPU: slots for round.cu. */
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

Status quantize_blocks_cuda(Stream *stream, Tensor q, Tensor scales, Tensor residual, Tensor x) {
    LAUNCH(launch_quantize_blocks(cuda_stream(stream), q.data, scales.data, residual.data, x.data,
                                  tensor_count(x)));
    return OK;
}

Status dequantize_blocks_cuda(Stream *stream, Tensor y, Tensor q, Tensor scales, bool accumulate) {
    LAUNCH(launch_dequantize_blocks(cuda_stream(stream), y.data, q.data, scales.data, tensor_count(y),
                                    accumulate));
    return OK;
}
