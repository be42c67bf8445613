/* The cuda backend.
 *
 *   *.c       the slots: they take tensors, return a Status, open libraries and choose kernels
 *   *.cu      device code and its launchers, which know pointers, sizes and types only
 *   launch.h  what the first call of the second
 *   device.cuh  what device code shares
 *
 * Everything runs on the stream it is given and returns at once; nothing here waits for the device. Sums run
 * in an order that depends on shapes alone (no atomic additions of floating numbers), so the same call gives
 * the same bits.
 */
#ifndef WEFT_KERNELS_CUDA_CUDA_H
#define WEFT_KERNELS_CUDA_CUDA_H

#include "device/cuda/cuda.h"
#include "kernels/backend.h"
#include "kernels/cuda/launch.h"

/* Slots, as kernels.h has them. */
Status linear_forward_cuda(Stream *, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act);
Status linear_backward_input_cuda(Stream *, Tensor dx, Tensor dy, Tensor w, Act, Tensor pre, bool accumulate);
Status linear_backward_weight_cuda(Stream *, Tensor dw, Tensor db, Tensor dy, Tensor x);
Status linear_fp8_forward_cuda(Stream *, Tensor y, Fp8Input kept, Tensor x, Act, Tensor w, Tensor b);
Status linear_fp8_backward_cuda(Stream *, Tensor dx, Fp8Found found, Tensor dw, Tensor db, Tensor dy,
                                Tensor peaks, Tensor w, Fp8Input kept, Tensor x, Act);
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
Status adamw_step_cuda(Stream *, Tensor param, Tensor m, Tensor v, Tensor copy, Tensor grad, AdamW);

/* What the backend keeps with a device, made when first needed. Each part is its file's own. */
typedef struct CudaKernels {
    void *blas; /* blas.c */
    void (*blas_free)(void *blas);
    void *attention; /* attention.c, cudnn.c */
    void (*attention_free)(void *attention);
} CudaKernels;

MUST_USE Status cuda_kernels(Stream *stream, CudaKernels **ret_kernels);

/* Workspace for the order of `count` rows by number (see RowOrder; numbers are 0 to `largest`) and for `more`
 * bytes beside it. */
MUST_USE Status row_order(Stream *stream, int64_t count, int64_t largest, size_t more, RowOrder *ret_order,
                          void **ret_more);

/* linear_int8.c: embedding_forward with a packed token table. */
MUST_USE Status embedding_int8_cuda(Stream *stream, Tensor x, Tensor tokens, Tensor types, Tensor past,
                                    Tensor wte, EmbeddingTables tables);

/* A dropout as device code takes it. */
CudaDropout cuda_dropout(const Dropout *dropout);

/* Attention by cuDNN, where it takes the call. *ret_problem becomes NULL, or, where nothing was done, why:
 * words that live as long as the device. `kept` is what cudnn.c keeps between calls, NULL at first; forced:
 * whatever scratch it takes. */
MUST_USE Status attention_cudnn(Stream *stream, void **kept, DType type, const CudaAttention *call,
                                bool backward, bool forced, const char **ret_problem);
void attention_cudnn_free(void *kept);
/* What the last forward or backward attention on the stream's device ran by: "cudnn", or "own: " and why. */
const char *attention_choice(Stream *stream, bool backward);

#define LAUNCH(call) TRY(cuda_status((call), __func__))

#endif
