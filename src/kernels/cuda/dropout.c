#include "kernels/cuda/cuda.h"

/* Rows per sequence. Without dropout any shape is allowed and the value is not used. */
static int64_t positions_of(Tensor x, const Dropout *dropout) {
    return dropout->p > 0 ? x.dim[1] : 1;
}

Status dropout_add_forward_cuda(Stream *stream, Tensor out, Tensor res, Tensor y, Dropout dropout) {
    LAUNCH(launch_dropout_add(cuda_stream(stream), y.dtype, out.data, res.data, y.data, tensor_rows(y),
                              tensor_cols(y), positions_of(y, &dropout), cuda_dropout(&dropout)));
    return OK;
}

Status dropout_backward_cuda(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Dropout dropout) {
    int64_t rows = tensor_rows(dy), C = tensor_cols(dy);
    if (sums.data) {
        void *scratch;
        TRY(stream_workspace(stream, column_sums_bytes(rows, C), &scratch));
        LAUNCH(launch_dropout_sums(cuda_stream(stream), dy.dtype, dx.data, sums.data, dy.data, rows, C,
                                   positions_of(dy, &dropout), cuda_dropout(&dropout), scratch));
        return OK;
    }
    LAUNCH(launch_dropout_add(cuda_stream(stream), dy.dtype, dx.data, NULL, dy.data, rows, C,
                              positions_of(dy, &dropout), cuda_dropout(&dropout)));
    return OK;
}

Status dropout_add_norm_forward_cuda(Stream *stream, Tensor sum, Tensor out, Tensor mean, Tensor rstd,
                                     Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps,
                                     Dropout dropout) {
    LAUNCH(launch_dropout_add_norm(cuda_stream(stream), y.dtype, sum.data, out.data, mean.data, rstd.data,
                                   res.data, y.data, gamma.data, beta.data, tensor_rows(y), tensor_cols(y),
                                   eps, positions_of(y, &dropout), cuda_dropout(&dropout)));
    return OK;
}
