/* The cuda backend.
 *
 *   *.cu        device code and the slots that it implements
 *   *.c         slots that load libraries or choose among the kernels of several files
 *   launch.h    what files call of each other
 *   device.cuh  what .cu files share
 *
 * Everything is enqueued on the given stream and returns immediately; nothing here waits for the device.
 * Reductions run in an order that depends on shapes alone (no floating-point atomics), so the same call
 * returns the same bits. */
#ifndef WEFT_KERNELS_CUDA_CUDA_H
#define WEFT_KERNELS_CUDA_CUDA_H

#include "device/cuda/cuda.h"
#include "kernels/backend.h"
#include "kernels/cuda/launch.h"

/* The slots. */
#define KERNEL(id, name, phase, work, launches, backends, workspace, ...)                                    \
    Status name##_cuda(Stream *stream, __VA_ARGS__);
#include "kernels/ops.def"
Status int8_tile_cuda(int bits, Int8Tile *ret_tile);
bool fuses_linear_cuda(Tensor y, Tensor x, Tensor w, const LinearFusion *fusion);

/* Per-device state of the backend, created on first use. Each part belongs to the file named here. */
typedef struct CudaKernels {
    void *blas; /* blas.c */
    void (*blas_free)(void *blas);
    void *attention; /* attention.c, cudnn.c */
    void (*attention_free)(void *attention);
} CudaKernels;

MUST_USE Status cuda_kernels(Stream *stream, CudaKernels **ret_kernels);

/* Dropout in the form that device code uses. */
CudaDropout cuda_dropout(const Dropout *dropout);

/* Attention with cuDNN, if it supports the call. *ret_problem is NULL on success. Otherwise nothing was done
 * and *ret_problem says why; the string lives as long as the device. `kept` is cudnn.c's state between calls,
 * initially NULL. `forced` ignores the limit on scratch memory. */
MUST_USE Status attention_cudnn(Stream *stream, void **kept, DType type, const CudaAttention *call,
                                bool backward, bool forced, const char **ret_problem);
void attention_cudnn_free(void *kept);

#define LAUNCH(call) TRY(cuda_status((call), __func__))

#endif
