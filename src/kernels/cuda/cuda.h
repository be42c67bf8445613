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

/* The slots; see kernels.h. */
Status linear_forward_cuda(Stream *, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act);
Status linear_backward_input_cuda(Stream *, Tensor dx, Tensor dy, Tensor w, Act, Tensor pre, bool accumulate);
Status linear_backward_weight_cuda(Stream *, Tensor dw, Tensor db, Tensor dy, Tensor x);
Status linear_fp8_forward_cuda(Stream *, Tensor y, Fp8Input kept, Tensor x, Act, Tensor w, Tensor b);
Status linear_fp8_backward_cuda(Stream *, Tensor dx, Fp8Stats dx_stats, Tensor dw, Tensor db, Tensor dy,
                                Tensor amax, Tensor w, Fp8Input kept, Tensor x, Act);
Status linear_int8_forward_cuda(Stream *, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act);
Status int8_tile_cuda(int bits, Int8Tile *ret_tile);
Status act_forward_cuda(Stream *, Tensor y, Tensor x, Act);
Status act_backward_cuda(Stream *, Tensor dx, Tensor dy, Tensor x, Act);
Status layernorm_forward_cuda(Stream *, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor gamma,
                              Tensor beta, float eps);
Status layernorm_backward_cuda(Stream *, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy, Tensor x,
                               Tensor mean, Tensor rstd, Tensor gamma, Tensor dres);
Status dropout_add_forward_cuda(Stream *, Tensor out, Tensor res, Tensor y, Dropout);
Status dropout_backward_cuda(Stream *, Tensor dx, Tensor dy, Dropout);
Status dropout_add_norm_forward_cuda(Stream *, Tensor sum, Tensor out, Tensor mean, Tensor rstd, Tensor res,
                                     Tensor y, Tensor gamma, Tensor beta, float eps, Dropout);
Status attention_forward_cuda(Stream *, Tensor out, Tensor lse, Tensor qkv, Tensor lens, Attention);
Status attention_backward_cuda(Stream *, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                               Tensor lens, Attention);
Status attention_decode_cuda(Stream *, Tensor out, Tensor kcache, Tensor vcache, Tensor qkv, Tensor past,
                             Tensor fresh, float scale);
Status embedding_forward_cuda(Stream *, Tensor x, Tensor tokens, Tensor types, Tensor past, Tensor wte,
                              Tensor wpe, Tensor wtype, VocabPart);
Status embedding_backward_cuda(Stream *, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx, Tensor tokens,
                               Tensor types, VocabPart);
Status xent_partial_cuda(Stream *, Tensor stats, Tensor logits, Tensor labels, VocabPart);
Status xent_combine_cuda(Stream *, Tensor stats, Tensor parts);
Status xent_finish_cuda(Stream *, Tensor losses, Tensor logits, Tensor stats, Tensor labels, VocabPart,
                        float scale, bool gradient);
Status mse_loss_cuda(Stream *, Tensor losses, Tensor logits, Tensor targets, float scale, bool gradient);
Status bce_loss_cuda(Stream *, Tensor losses, Tensor logits, Tensor targets, float scale, bool gradient);
Status xent_hits_cuda(Stream *, Tensor hits, Tensor stats, Tensor labels, int64_t valid);
Status xent_loss_cuda(Stream *, Tensor losses, Tensor stats, Tensor logits, Tensor labels, VocabPart,
                      float scale, bool gradient);
Status row_largest_cuda(Stream *, Tensor largest, Tensor x);
Status round_int8_cuda(Stream *, Tensor y, Tensor x, Tensor largest);
Status round_int4_cuda(Stream *, Tensor y, Tensor x, Tensor largest);
Status argmax_cuda(Stream *, Tensor index, Tensor x);
Status gather_rows_cuda(Stream *, Tensor out, Tensor x, Tensor index);
Status scatter_add_rows_cuda(Stream *, Tensor x, Tensor y, Tensor index);
Status transpose_cuda(Stream *, Tensor y, Tensor x);
Status fill_cuda(Stream *, Tensor x, float value);
Status convert_cuda(Stream *, Tensor y, Tensor x);
Status add_cuda(Stream *, Tensor y, Tensor x);
Status scale_cuda(Stream *, Tensor y, float factor);
Status sum_cuda(Stream *, Tensor total, Tensor x);
Status sum_squares_cuda(Stream *, Tensor total, Tensor x);
Status sum_squares_parts_cuda(Stream *, Tensor totals, Tensor x, int64_t skip, int64_t share);
Status sketch_cuda(Stream *, Tensor totals, Tensor x, SketchMap map);
Status adamw_step_cuda(Stream *, Tensor param, Tensor m, Tensor v, Tensor copy, Tensor grad, AdamW);

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
MUST_USE Status embedding_int8_cuda(Stream *stream, Tensor x, Tensor tokens, Tensor types, Tensor past,
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
