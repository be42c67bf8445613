/* Array arithmetic on a GPU: slots for elementwise.cu. */
#include "kernels/cuda/cuda.h"

Status fill_cuda(Stream *stream, Tensor x, float value) {
    LAUNCH(launch_fill(cuda_stream(stream), x.dtype, x.data, tensor_count(x), value));
    return OK;
}

Status convert_cuda(Stream *stream, Tensor y, Tensor x) {
    LAUNCH(launch_convert(cuda_stream(stream), y.dtype, y.data, x.dtype, x.data, tensor_count(x)));
    return OK;
}

Status add_cuda(Stream *stream, Tensor y, Tensor x) {
    LAUNCH(launch_add(cuda_stream(stream), y.dtype, y.data, x.dtype, x.data, tensor_count(x)));
    return OK;
}

Status scale_cuda(Stream *stream, Tensor y, float factor) {
    LAUNCH(launch_scale(cuda_stream(stream), y.dtype, y.data, tensor_count(y), factor));
    return OK;
}
