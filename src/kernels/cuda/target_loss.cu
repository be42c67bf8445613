// Regression and multi-label losses, of independent outputs, one thread per element: these tensors are small.
#include "kernels/cuda/chain.cuh"

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
Status target_loss(Stream *stream, Tensor losses, Tensor logits, Tensor targets, float scale, bool gradient,
                   Op op) {
    const int64_t count = tensor_count(logits);
    cudaError_t error = with_type(logits.dtype, [&](auto t) {
        using T = decltype(t);
        return launch_kernel(stream, target_loss_kernel<T, Op>, blocks_for(count, threads), threads, 0,
                             data<float>(losses), data<T>(logits), data<float>(targets), count, scale,
                             gradient, op);
    });
    return cuda_status(error, __func__);
}

} // namespace

Status mse_loss_cuda(Stream *stream, Tensor losses, Tensor logits, Tensor targets, float scale,
                     bool gradient) {
    return target_loss(stream, losses, logits, targets, scale, gradient, Mse{});
}

Status bce_loss_cuda(Stream *stream, Tensor losses, Tensor logits, Tensor targets, float scale,
                     bool gradient) {
    return target_loss(stream, losses, logits, targets, scale, gradient, Bce{});
}
