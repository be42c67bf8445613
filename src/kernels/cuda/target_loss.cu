// Losses of independent outputs, one thread per element: these tensors are small.
#include "kernels/cuda/device.cuh"

namespace {

constexpr int threads = 256;

// A loss and its derivative with respect to the logit.
struct Loss {
    float value, slope;
};

struct Mse {
    __device__ Loss operator()(float logit, float target) const {
        float apart = logit - target;
        return {apart * apart, 2 * apart};
    }
};

struct Bce {
    __device__ Loss operator()(float logit, float target) const {
        float small = expf(-fabsf(logit)), sigmoid = (logit < 0 ? small : 1) / (1 + small);
        return {fmaxf(logit, 0) - logit * target + log1pf(small), sigmoid - target};
    }
};

template <typename T, typename Op>
__global__ void target_loss_kernel(float *losses, T *logits, const float *targets, int64_t count, float scale,
                                   bool gradient, Op op) {
    int64_t i = blockIdx.x * (int64_t)threads + threadIdx.x;
    if (i >= count) return;
    bool counted = !isnan(targets[i]);
    Loss loss = counted ? op(to_float(logits[i]), targets[i]) : Loss{0, 0};
    losses[i] = loss.value;
    if (gradient) logits[i] = from_float<T>(loss.slope * scale);
}

template <typename Op>
cudaError_t launch(cudaStream_t stream, DType type, float *losses, void *logits, const float *targets,
                   int64_t count, float scale, bool gradient, Op op) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        target_loss_kernel<<<blocks_for(count, threads), threads, 0, stream>>>(losses, (T *)logits, targets,
                                                                               count, scale, gradient, op);
        return cudaGetLastError();
    });
}

} // namespace

cudaError_t launch_mse_loss(cudaStream_t stream, DType type, float *losses, void *logits,
                            const float *targets, int64_t count, float scale, bool gradient) {
    return launch(stream, type, losses, logits, targets, count, scale, gradient, Mse{});
}

cudaError_t launch_bce_loss(cudaStream_t stream, DType type, float *losses, void *logits,
                            const float *targets, int64_t count, float scale, bool gradient) {
    return launch(stream, type, losses, logits, targets, count, scale, gradient, Bce{});
}
