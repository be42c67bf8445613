/* Chooses the kernels of experts' linear layers, see cuda.h. */
#include "kernels/cuda/grouped.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/grouped_hopper.h"
#include "kernels/gpu_workspace.h"

/* `rows` is the operand whose rows belong to experts, `w` the matrices or their gradient. */
static Status run(Stream *stream, const char *kernel, CudaGroupedKind kind, Tensor out, Tensor rows, Tensor b,
                  Tensor w, Tensor offsets, bool accumulate) {
    CudaGrouped call = {.kind = kind,
                        .dtype = rows.dtype,
                        .out = out.data,
                        .a = rows.data,
                        .b = b.data,
                        .offsets = offsets.data,
                        .rows = tensor_rows(rows),
                        .N = w.dim[1],
                        .K = w.dim[2],
                        .E = w.dim[0],
                        .accumulate = accumulate};
    cudaStream_t on = cuda_stream(stream);
    void *workspace = NULL;
    size_t bytes = kind == GROUPED_WEIGHT ? grouped_weight_bytes(call.dtype) : 0;
    if (bytes) TRY(stream_workspace(stream, bytes, &workspace));
    if (grouped_few_serves(&call)) return cuda_status(launch_grouped_few(on, &call), kernel);
    if (grouped_hopper_serves(&call)) return cuda_status(grouped_hopper(on, &call, workspace), kernel);
    return cuda_status(launch_grouped(on, &call), kernel);
}

Status grouped_forward_cuda(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor offsets) {
    if (w.dtype == DT_Q8 || w.dtype == DT_Q4) return grouped_int8_cuda(stream, y, x, w, offsets);
    return run(stream, __func__, GROUPED_FORWARD, y, x, w, w, offsets, false);
}

Status grouped_backward_input_cuda(Stream *stream, Tensor dx, Tensor dy, Tensor w, Tensor offsets) {
    return run(stream, __func__, GROUPED_INPUT, dx, dy, w, w, offsets, false);
}

Status grouped_backward_weight_cuda(Stream *stream, Tensor dw, Tensor dy, Tensor x, Tensor offsets,
                                    bool accumulate) {
    return run(stream, __func__, GROUPED_WEIGHT, dw, dy, x, dw, offsets, accumulate);
}
