/* RMS norm, rotary position embedding and gated activations on a GPU: slots for rmsnorm.cu, rope.cu and
 * glu.cu. */
#include "kernels/cuda/cuda.h"

static CudaHeadRows rows_of(Tensor x, HeadRange heads) {
    HeadRows at = head_rows(x, heads);
    return (CudaHeadRows){at.heads, at.first, at.count, at.D, at.rows};
}

Status rmsnorm_forward_cuda(Stream *stream, Tensor y, Tensor rstd, Tensor x, Tensor gamma, float eps,
                            HeadRange heads) {
    LAUNCH(launch_rmsnorm_forward(cuda_stream(stream), x.dtype, y.data, rstd.data, x.data, gamma.data,
                                  rows_of(x, heads), eps));
    return OK;
}

Status dropout_add_rmsnorm_forward_cuda(Stream *stream, Tensor sum, Tensor out, Tensor rstd, Tensor res,
                                        Tensor y, Tensor gamma, float eps, Dropout dropout) {
    LAUNCH(launch_dropout_add_rmsnorm(cuda_stream(stream), y.dtype, sum.data, out.data, rstd.data, res.data,
                                      y.data, gamma.data, tensor_rows(y), tensor_cols(y), eps,
                                      dropout.p > 0 ? y.dim[1] : 1, cuda_dropout(&dropout)));
    return OK;
}

Status rmsnorm_backward_cuda(Stream *stream, Tensor dx, Tensor dgamma, Tensor dy, Tensor x, Tensor rstd,
                             Tensor gamma, Tensor dres, HeadRange heads) {
    void *partial;
    TRY(stream_workspace(stream, rmsnorm_backward_bytes(tensor_cols(x)), &partial));
    LAUNCH(launch_rmsnorm_backward(cuda_stream(stream), x.dtype, dx.data, dgamma.data, dy.data, x.data,
                                   rstd.data, gamma.data, dres.data, rows_of(x, heads), partial));
    return OK;
}

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

Status glu_forward_cuda(Stream *stream, Tensor y, Tensor x, Act act) {
    LAUNCH(launch_glu(cuda_stream(stream), y.dtype, y.data, x.data, (CudaAct)act, tensor_rows(y),
                      tensor_cols(y)));
    return OK;
}

Status glu_backward_cuda(Stream *stream, Tensor dx, Tensor y, Tensor dy, Tensor x, Act act) {
    LAUNCH(launch_glu_backward(cuda_stream(stream), dy.dtype, dx.data, y.data, dy.data, x.data, (CudaAct)act,
                               tensor_rows(dy), tensor_cols(dy)));
    return OK;
}
