/* Chooses the kernels of experts' linear layers, see cuda.h. */
#include "kernels/cuda/grouped.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/grouped_hopper.h"
#include "kernels/gpu_workspace.h"

static Status run(Stream *stream, const char *kernel, const CudaGrouped *call) {
    cudaStream_t on = cuda_stream(stream);
    void *workspace = NULL;
    size_t bytes = call->kind == GROUPED_WEIGHT ? grouped_weight_bytes(call->dtype) : 0;
    if (bytes) TRY(stream_workspace(stream, bytes, &workspace));
    if (grouped_few_serves(call)) return cuda_status(launch_grouped_few(on, call), kernel);
    if (grouped_hopper_serves(call)) return cuda_status(grouped_hopper(on, call, workspace), kernel);
    return cuda_status(launch_grouped(on, call), kernel);
}

Status grouped_forward_cuda(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor offsets) {
    if (w.dtype == DT_Q8 || w.dtype == DT_Q4) return grouped_int8_cuda(stream, y, x, w, offsets);
    CudaGrouped call = {.kind = GROUPED_FORWARD,
                        .dtype = x.dtype,
                        .out = y.data,
                        .a = x.data,
                        .b = w.data,
                        .offsets = offsets.data,
                        .rows = tensor_rows(x),
                        .N = w.dim[1],
                        .K = w.dim[2],
                        .E = w.dim[0]};
    return run(stream, __func__, &call);
}

Status grouped_backward_input_cuda(Stream *stream, Tensor dx, Tensor dy, Tensor w, Tensor offsets) {
    CudaGrouped call = {.kind = GROUPED_INPUT,
                        .dtype = dy.dtype,
                        .out = dx.data,
                        .a = dy.data,
                        .b = w.data,
                        .offsets = offsets.data,
                        .rows = tensor_rows(dy),
                        .N = w.dim[1],
                        .K = w.dim[2],
                        .E = w.dim[0]};
    return run(stream, __func__, &call);
}

Status grouped_backward_weight_cuda(Stream *stream, Tensor dw, Tensor dy, Tensor x, Tensor offsets,
                                    bool accumulate) {
    CudaGrouped call = {.kind = GROUPED_WEIGHT,
                        .dtype = x.dtype,
                        .out = dw.data,
                        .a = dy.data,
                        .b = x.data,
                        .offsets = offsets.data,
                        .rows = tensor_rows(dy),
                        .N = dw.dim[1],
                        .K = dw.dim[2],
                        .E = dw.dim[0],
                        .accumulate = accumulate};
    return run(stream, __func__, &call);
}
