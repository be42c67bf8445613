/* Linear layers with what surrounds them in generation on a GPU: slots for linear_fused.cu and
 * linear_stream.cu. WEFT_CUDA_FUSE=off makes generation use separate kernels, WEFT_CUDA_FUSE=stream the
 * kernel for large layers. */
#include "kernels/cuda/linear_fused.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/int8.h"

/* From this number of weights on, streaming them is faster than a block for every few columns; in int8 and
 * int4 also from this number of inputs and outputs on. In bf16, that was slower with several sequences. */
enum { STREAM_WEIGHTS = 8 << 20, STREAM_WIDTH = 2048 };

static bool is_requested(const char *how) {
    const char *requested = getenv("WEFT_CUDA_FUSE");
    return requested && !strcmp(requested, how);
}

static CudaFused fused_call(Tensor y, Tensor x, Tensor w, const LinearFusion *fusion) {
    CudaFused call = {
        .rows = (int)tensor_rows(x),
        .cols = (int)tensor_cols(y),
        .inner = (int)tensor_cols(x),
        .type = x.dtype,
        .x = x.data,
        .y = y.data,
        .res = fusion->res.data,
        .gated = fusion->gated,
        .gamma = fusion->gamma.data,
        .beta = fusion->beta.data,
        .eps = fusion->eps,
        .bits = 16,
        .w = w.data,
    };
    bool wide = call.inner >= STREAM_WIDTH && tensor_rows(w) >= STREAM_WIDTH;
    bool quantized = w.dtype == DT_Q8 || w.dtype == DT_Q4;
    call.streamed = (int64_t)tensor_rows(w) * call.inner >= STREAM_WEIGHTS || (quantized && wide) ||
                    is_requested("stream");
    if (!quantized) return call;
    Int8View view = int8_view(w);
    const char *host = w.data, *base = view.header->device ? view.header->device : host;
    call.bits = view.header->bits;
    call.w = base + ((const char *)view.panels - host);
    call.scale = (const float *)(const void *)(base + ((const char *)view.scale - host));
    if (view.factor) call.factor = (const float *)(const void *)(base + ((const char *)view.factor - host));
    return call;
}

bool fuses_linear_cuda(Tensor y, Tensor x, Tensor w, const LinearFusion *fusion) {
    int64_t largest = INT32_MAX / (4 * CUDA_FUSED_ROWS), longest = 1 << 16;
    if (is_requested("off")) return false;
    if (w.dtype != x.dtype && w.dtype != DT_Q8 && w.dtype != DT_Q4) return false;
    if (tensor_rows(x) > CUDA_FUSED_ROWS || tensor_cols(x) > longest || tensor_cols(y) > largest)
        return false;
    CudaFused call = fused_call(y, x, w, fusion);
    return linear_fused_runs(&call);
}

Status linear_fused_forward_cuda(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor b, Act act,
                                 LinearFusion fusion) {
    CudaFused call = fused_call(y, x, w, &fusion);
    call.bias = b.data;
    call.act = act;
    LAUNCH(launch_linear_fused(cuda_stream(stream), &call));
    return OK;
}
