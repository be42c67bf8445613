/* Runs of consecutive elements of a tensor as fp32: fp32 tensors in place, 16-bit types through a buffer
 * that stays in the L1 cache. A kernel written for floats reads from run_in, writes to run_out and then
 * calls run_end:
 *
 *   const float *from = run_in(x, at, n, buffer);
 *   float *to = run_out(y, at, buffer);
 *   ... to[i] = f(from[i]) ...
 *   run_end(y, at, n, to);
 *
 * Both may share a buffer if each element is read before it is written. */
#ifndef WEFT_KERNELS_CPU_RUNS_H
#define WEFT_KERNELS_CPU_RUNS_H

#include "kernels/cpu/half.h"
#include "tensor/tensor.h"

/* The address of element `at`; NULL for an absent tensor. */
static inline void *run_at(Tensor tensor, int64_t at) {
    return tensor.data ? (char *)tensor.data + (size_t)at * dtype_size(tensor.dtype) : NULL;
}

/* n elements from `at`; NULL for an absent tensor. */
static inline const float *run_in(Tensor tensor, int64_t at, int64_t n, float *buffer) {
    if (!tensor.data) return NULL;
    if (tensor.dtype == DT_F32) return tensor_f32(tensor) + at;
    half_load(buffer, tensor.data, tensor.dtype, at, n);
    return buffer;
}

static inline float *run_out(Tensor tensor, int64_t at, float *buffer) {
    return tensor.dtype == DT_F32 ? tensor_f32(tensor) + at : buffer;
}

static inline void run_end(Tensor tensor, int64_t at, int64_t n, const float *from) {
    if (tensor.dtype != DT_F32) half_store(tensor.data, tensor.dtype, at, from, n);
}

#endif
