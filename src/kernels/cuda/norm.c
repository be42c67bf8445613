/* Norms on a GPU: slots for norm.cu, rmsnorm.cu and, with results in fp8, norm_fp8.cu. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/norm_fp8.h"

Status layernorm_forward_cuda(Stream *stream, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor gamma,
                              Tensor beta, float eps) {
    LAUNCH(launch_norm_forward(cuda_stream(stream), x.dtype, y.data, mean.data, rstd.data, x.data, gamma.data,
                               beta.data, tensor_rows(x), tensor_cols(x), eps));
    return OK;
}

Status layernorm_backward_cuda(Stream *stream, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy, Tensor x,
                               Tensor mean, Tensor rstd, Tensor gamma, Tensor dres, NormSums sums) {
    int64_t rows = tensor_rows(x), C = tensor_cols(x);
    void *partial;
    TRY(stream_workspace(stream, norm_backward_bytes(rows, C, sums.dx.data || sums.dres.data), &partial));
    LAUNCH(launch_norm_backward(cuda_stream(stream), x.dtype, dx.data, dgamma.data, dbeta.data, dy.data,
                                x.data, mean.data, rstd.data, gamma.data, dres.data, rows, C,
                                (CudaNormSums){sums.dx.data, sums.dres.data}, partial));
    return OK;
}

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

Status norm_fp8_forward_cuda(Stream *stream, Tensor sum, Tensor out, Fp8Input quantized, Tensor mean,
                             Tensor rstd, Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps,
                             Dropout dropout, Fp8Scale scale) {
    CudaNormFp8 norm = {
        .plain = quantized.plain.data,
        .transposed = quantized.transposed.data,
        .y = out.data,
        .sum = sum.data,
        .mean = mean.data,
        .rstd = rstd.data,
        .res = res.data,
        .x = y.data,
        .gamma = gamma.data,
        .beta = beta.data,
        .rows = tensor_rows(res),
        .C = tensor_cols(res),
        .eps = eps,
        .positions = y.data && dropout.p > 0 ? y.dim[1] : 1,
        .dropout = cuda_dropout(&dropout),
        .given = scale.scale.data,
        .scale = quantized.scale.data,
        .record = scale.amax.data,
    };
    LAUNCH(launch_norm_fp8(cuda_stream(stream), &norm));
    return OK;
}
