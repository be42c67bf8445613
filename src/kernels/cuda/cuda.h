/* The cuda backend.
 *
 *   *.cu        device code and the slots that it implements
 *   *.c         slots that load libraries or choose among the kernels of several files
 *   launch.h    what files call of each other
 *   device.cuh  what .cu files share
 *
 * Where an operation has several kernels, the first that serves a call runs it. Without a remark they serve
 * all shapes and types of the operation. "16 bits" are bf16, from compute capability 8.0 on, and fp16; their
 * kernels with tensor cores, named "mma" or for up to 16 rows, need 7.5. On code for older GPUs, see
 * ptx_old.cuh.
 *
 *   attention_forward, attention_backward (attention.c)
 *     attention_hopper*     9.0; 16 bits, heads of width 64 or 128, from 96 positions
 *     cudnn.c               8.0, cuDNN 9.10; 16 bits, widths up to 128 in eights, from 128 positions, as many
 * key heads as query heads, without dropout, windows and documents attention_mma*        7.5; 16 bits, widths
 * up to 128 in eights, before 8.0 up to 64 attention_plain.cu    widths up to 256, before 8.0 up to 160
 *   attention_decode (attention.c)
 *     attention_cluster.cu  9.0 and later; one new position, 16 bits and caches alike, widths of 32, 64, 128
 *                           and 256, up to 4096 keys
 *     attention_decode.cu   one new position; appends more, for attention_mma.cu and attention_plain.cu
 *   linear_forward and its backward (linear.c)
 *     linear_few.cu         forward of up to 16 rows in 16 bits, inputs in eights
 *     blas.c                whatever cuBLASLt supports
 *     linear.cu
 *   linear_int8_forward (linear_int8.c)
 *     linear_int8.cu        up to 16 rows, and what cuBLASLt does not support
 *     blas.c                more rows; int4 weights in two parts
 *   linear_fp8_forward, linear_fp8_backward (linear_fp8.c): 8.9 and later
 *     blas.c                whatever cuBLASLt supports
 *     linear.cu
 *   linear_fused_forward (linear_fused.c): up to 16 rows in 16 bits, weights of 16, 8 or 4 bits
 *     linear_stream.cu      8.0; from 8 Mi weights; int8 and int4 weights also from 2048 x 2048
 *     linear_fused.cu
 *   grouped_forward and its backward (grouped.c)
 *     linear_int8.cu        packed weights, up to 256 rows
 *     grouped_few.cu        forward of up to 256 rows, and 16 per expert, in 16 bits, inputs in eights
 *     grouped_hopper.cu     9.0; 16 bits, inputs and outputs in eights, from 2^30 multiplications
 *     grouped.cu
 *
 * Most other kernels have a version for 16-byte accesses and one for single elements. Norms and cross-entropy
 * keep rows in registers unless they are too long.
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
bool groups_packed_cuda(Tensor y, Tensor x, Tensor w);
/* linear_int8.c: grouped_forward with such weights. */
MUST_USE Status grouped_int8_cuda(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor offsets);

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
