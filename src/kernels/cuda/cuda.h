/* The cuda backend.
 *
 *   *.c         the slots: they take tensors, return a Status, load libraries and choose kernels
 *   *.cu        device code and its launchers, which only see pointers, sizes and types
 *   launch.h    the launchers that the slots call
 *   device.cuh  what device code shares
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

/* Workspace for sorting `count` rows by index (see RowOrder; indices are 0 to `largest`), followed by
 * `more` bytes for the caller. */
MUST_USE Status row_order(Stream *stream, int64_t count, int64_t largest, size_t more, RowOrder *ret_order,
                          void **ret_more);

/* linear_int8.c: embedding_forward with a packed token table. */
MUST_USE Status embedding_int8_cuda(Stream *stream, Tensor x, Tensor tokens, Tensor types, Tensor positions,
                                    Tensor wte, EmbeddingTables tables);

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
