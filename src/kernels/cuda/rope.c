/* Rotary position embedding on a GPU: slots for rope.cu. */
#include "kernels/cuda/cuda.h"

static Status rope(Stream *stream, Tensor x, Tensor table, Tensor positions, int64_t origin, HeadRange heads,
                   float sign) {
    CudaRope call = {
        .x = x.data,
        .table = table.data,
        .positions = positions.data,
        .each = positions.ndim == 2,
        .origin = origin,
        .tokens = x.dim[0] * x.dim[1],
        .T = x.dim[1],
        .heads = x.dim[2],
        .first = heads.first,
        .count = heads.count ? heads.count : x.dim[2],
        .D = x.dim[3],
        .R = tensor_cols(table),
        .table_rows = tensor_rows(table),
        .sign = sign,
    };
    LAUNCH(launch_rope(cuda_stream(stream), x.dtype, &call));
    return OK;
}

Status rope_forward_cuda(Stream *stream, Tensor x, Tensor table, Tensor positions, int64_t origin,
                         HeadRange heads) {
    return rope(stream, x, table, positions, origin, heads, 1);
}

Status rope_backward_cuda(Stream *stream, Tensor dx, Tensor table, Tensor positions, int64_t origin,
                          HeadRange heads) {
    return rope(stream, dx, table, positions, origin, heads, -1);
}
