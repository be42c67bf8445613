// Work around cuDNN's handling of sequence lengths: it takes separate, nonzero lengths of queries and keys,
// and leaves results past them undefined.
#include "kernels/cuda/attention.cuh"

namespace {

__global__ void lengths_kernel(CudaAttention call, int32_t *lengths) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= call.B) return;
    lengths[b] = call.queries;
    lengths[call.B + b] = max(span_of(call, b).keys, 1);
}

// A block handles position t of sequence b. A sequence without keys has output 0, lse -infinity and gradient
// 0; the gradient of keys past the end of a sequence is also 0.
template <typename T> __global__ void blank_kernel(CudaAttention call, bool backward) {
    int b = blockIdx.x / call.queries, t = blockIdx.x % call.queries, keys = span_of(call, b).keys;
    if (backward ? t < keys : keys > 0) return;
    for (int i = threadIdx.x; i < call.H * call.D; i += blockDim.x) {
        int h = i / call.D, d = i % call.D;
        T zero = from_float<T>(0);
        if (!backward) {
            head_rows<T>(call.out, b, h)[t * call.out.row + d] = zero;
            if (d == 0) call.lse[((int64_t)b * call.H + h) * call.queries + t] = -infinity;
            continue;
        }
        head_rows<T>(call.dk, b, h)[t * call.dk.row + d] = zero;
        head_rows<T>(call.dv, b, h)[t * call.dv.row + d] = zero;
        if (keys == 0) head_rows<T>(call.dq, b, h)[t * call.dq.row + d] = zero;
    }
}

} // namespace

cudaError_t launch_attention_lengths(cudaStream_t stream, const CudaAttention *call, int32_t *lengths) {
    lengths_kernel<<<blocks_for(call->B, 128), 128, 0, stream>>>(*call, lengths);
    return cudaGetLastError();
}

cudaError_t launch_attention_blank(cudaStream_t stream, DType type, const CudaAttention *call,
                                   bool backward) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        blank_kernel<T><<<(unsigned)((int64_t)call->B * call->queries), 128, 0, stream>>>(*call, backward);
        return cudaGetLastError();
    });
}
