// AdamW: a thread takes two packs of four elements of param, m, v and grad, all loaded before the first is
// used, and also writes the copy in the compute type. A launch updates several parts; those of a block are
// found by bisection.
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/device.cuh"

namespace {

constexpr int threads = 256, batch = 2; // packs per thread

__device__ inline void step_one(float &param, float &m, float &v, float grad, const CudaAdamWPart &part,
                                const CudaAdamW &spec) {
    if (part.keep_zeros && param == 0) {
        m = v = 0;
        return;
    }
    float g = grad * spec.grad_scale;
    m = spec.beta1 * m + spec.rest1 * g;
    v = spec.beta2 * v + spec.rest2 * g * g;
    float step = m * spec.correct1 / (sqrtf(v * spec.correct2) + spec.eps);
    param -= part.lr * (part.decay * param + step);
}

// The part that a block belongs to.
__device__ inline int part_at(const CudaAdamWParts &all, int block) {
    int at = 0;
#pragma unroll
    for (int step = 32; step > 0; step /= 2)
        if (at + step < all.parts && all.part[at + step].first <= block) at += step;
    return at;
}

// Copies may be NULL. A block takes threads * batch packs of N.
template <typename T, int N>
__global__ void __launch_bounds__(threads, 4)
    adamw_kernel(const __grid_constant__ CudaAdamWParts all, const __grid_constant__ CudaAdamW spec) {
    static_assert(CUDA_ADAMW_PARTS <= 64, "part_at finds at most 64 parts");
    const CudaAdamWPart &own = all.part[part_at(all, blockIdx.x)];
    float *param = own.param, *m = own.m, *v = own.v;
    const float *grad = own.grad;
    T *copy = (T *)own.copy;
    const int64_t count = own.count, block = blockIdx.x - own.first;
    const int64_t first = (block * (threads * batch) + threadIdx.x) * N;
    Pack<float, N> p[batch], g[batch], ms[batch], vs[batch];
    chain_next();
    chain_wait();
#pragma unroll
    for (int b = 0; b < batch; b++) {
        int64_t i = first + b * threads * N;
        if (i + N > count) continue;
        p[b] = load_pack<float, N>(param + i);
        g[b] = load_pack<float, N>(grad + i);
        ms[b] = load_pack<float, N>(m + i);
        vs[b] = load_pack<float, N>(v + i);
    }
#pragma unroll
    for (int b = 0; b < batch; b++) {
        int64_t i = first + b * threads * N;
        if (i + N > count) continue;
        Pack<T, N> out;
#pragma unroll
        for (int j = 0; j < N; j++) {
            step_one(p[b].at[j], ms[b].at[j], vs[b].at[j], g[b].at[j], own, spec);
            out.at[j] = from_float<T>(p[b].at[j]);
        }
        store_pack(param + i, p[b]);
        store_pack(m + i, ms[b]);
        store_pack(v + i, vs[b]);
        if (copy) store_pack(copy + i, out);
    }
    // The tail: fewer than N elements, one for each of the first threads of the part's first block.
    int64_t i = count / N * N + threadIdx.x;
    if (block != 0 || i >= count) return;
    step_one(param[i], m[i], v[i], grad[i], own, spec);
    if (copy) copy[i] = from_float<T>(param[i]);
}

template <typename T, int N>
cudaError_t start(cudaStream_t stream, CudaAdamWParts *all, const CudaAdamW &spec) {
    int64_t blocks = 0;
    for (int i = 0; i < all->parts; i++) {
        all->part[i].first = (int)blocks;
        blocks += blocks_for(all->part[i].count, threads * batch * N);
    }
    if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
    return launch_chained(stream, adamw_kernel<T, N>, (unsigned)blocks, threads, 0, *all, spec);
}

} // namespace

cudaError_t launch_adamw(cudaStream_t stream, DType type, CudaAdamWParts *all, CudaAdamW spec) {
    bool aligned = true;
    for (int i = 0; i < all->parts; i++) {
        const CudaAdamWPart &part = all->part[i];
        aligned = aligned && aligned_16(part.param, part.m, part.v, part.grad, part.copy);
    }
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        return aligned ? start<T, 4>(stream, all, spec) : start<T, 1>(stream, all, spec);
    });
}
