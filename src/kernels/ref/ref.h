/* The reference backend: every slot, for every compute type, with arithmetic and accumulation in double.
 * Other backends are tested against it, so it favors exactness and simplicity over speed, and runs on a
 * single thread. Elements are read and written one at a time (tensor_get, tensor_put). Only where each
 * element is read many times, as in a matmul, is the tensor first converted to fp32 (ref_f32). */
#ifndef WEFT_KERNELS_REF_REF_H
#define WEFT_KERNELS_REF_REF_H

#include "kernels/backend.h"

double act_value(Act act, double x);
double act_derivative(Act act, double x);

/* The elements in fp32: the tensor itself if it is fp32, otherwise a copy at *workspace, which is advanced
 * past it. NULL for an absent tensor. */
const float *ref_f32(Tensor tensor, float **workspace);
/* Bytes of workspace that ref_f32 needs for these tensors. */
size_t ref_f32_bytes(size_t count, const Tensor *tensors);
#define REF_F32_BYTES(...)                                                                                   \
    ref_f32_bytes(sizeof((Tensor[]){__VA_ARGS__}) / sizeof(Tensor), (Tensor[]){__VA_ARGS__})

/* The factor of inverted dropout for an element with this draw index: 0 or 1 / (1 - p). */
static inline double dropout_factor(const Dropout *dropout, uint64_t index) {
    if (dropout->p == 0) return 1;
    bool kept = rng_u32(dropout->key, index) >= dropout_threshold(dropout->p);
    return kept ? dropout_scale(dropout->p) : 0;
}

Status linear_forward_ref(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act);
Status linear_backward_input_ref(Stream *stream, Tensor dx, Tensor dy, Tensor w, Act act, Tensor pre,
                                 bool accumulate);
Status linear_backward_weight_ref(Stream *stream, Tensor dw, Tensor db, Tensor dy, Tensor x);
Status linear_fp8_forward_ref(Stream *stream, Tensor y, Fp8Input kept, Tensor x, Act act, Tensor w, Tensor b);
Status linear_fp8_backward_ref(Stream *stream, Tensor dx, Fp8Stats dx_stats, Tensor dw, Tensor db, Tensor dy,
                               Tensor amax, Tensor w, Fp8Input kept, Tensor x, Act act);
Status linear_int8_forward_ref(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act);
Status int8_tile_ref(int bits, Int8Tile *ret_tile);
Status act_forward_ref(Stream *stream, Tensor y, Tensor x, Act act);
Status act_backward_ref(Stream *stream, Tensor dx, Tensor dy, Tensor x, Act act);
Status layernorm_forward_ref(Stream *stream, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor gamma,
                             Tensor beta, float eps);
Status layernorm_backward_ref(Stream *stream, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy, Tensor x,
                              Tensor mean, Tensor rstd, Tensor gamma, Tensor dres);
Status dropout_add_forward_ref(Stream *stream, Tensor out, Tensor res, Tensor y, Dropout dropout);
Status dropout_backward_ref(Stream *stream, Tensor dx, Tensor dy, Dropout dropout);
Status dropout_add_norm_forward_ref(Stream *stream, Tensor sum, Tensor out, Tensor mean, Tensor rstd,
                                    Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps,
                                    Dropout dropout);
Status attention_forward_ref(Stream *stream, Tensor out, Tensor lse, Tensor qkv, Tensor lens, Attention spec);
Status attention_backward_ref(Stream *stream, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                              Tensor lens, Attention spec);
Status attention_decode_ref(Stream *stream, Tensor out, Tensor kcache, Tensor vcache, Tensor qkv, Tensor past,
                            Tensor fresh, float scale);
Status embedding_forward_ref(Stream *stream, Tensor x, Tensor tokens, Tensor types, Tensor past, Tensor wte,
                             Tensor wpe, Tensor wtype, VocabPart part);
Status embedding_backward_ref(Stream *stream, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx,
                              Tensor tokens, Tensor types, VocabPart part);
Status xent_partial_ref(Stream *stream, Tensor stats, Tensor logits, Tensor labels, VocabPart part);
Status xent_combine_ref(Stream *stream, Tensor stats, Tensor parts);
Status xent_finish_ref(Stream *stream, Tensor losses, Tensor logits, Tensor stats, Tensor labels,
                       VocabPart part, float scale, bool gradient);
Status xent_hits_ref(Stream *stream, Tensor hits, Tensor stats, Tensor labels, int64_t valid);
Status xent_loss_ref(Stream *stream, Tensor losses, Tensor stats, Tensor logits, Tensor labels,
                     VocabPart part, float scale, bool gradient);
Status mse_loss_ref(Stream *stream, Tensor losses, Tensor logits, Tensor targets, float scale, bool gradient);
Status bce_loss_ref(Stream *stream, Tensor losses, Tensor logits, Tensor targets, float scale, bool gradient);
Status linear_sparse_forward_ref(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor b);
Status row_largest_ref(Stream *stream, Tensor largest, Tensor x);
Status round_int8_ref(Stream *stream, Tensor y, Tensor x, Tensor largest);
Status round_int4_ref(Stream *stream, Tensor y, Tensor x, Tensor largest);
Status argmax_ref(Stream *stream, Tensor index, Tensor x);
Status gather_rows_ref(Stream *stream, Tensor out, Tensor x, Tensor index);
Status scatter_add_rows_ref(Stream *stream, Tensor x, Tensor y, Tensor index);
Status transpose_ref(Stream *stream, Tensor y, Tensor x);
Status fill_ref(Stream *stream, Tensor x, float value);
Status convert_ref(Stream *stream, Tensor y, Tensor x);
Status add_ref(Stream *stream, Tensor y, Tensor x);
Status scale_ref(Stream *stream, Tensor y, float factor);
Status sum_ref(Stream *stream, Tensor total, Tensor x);
Status sum_squares_ref(Stream *stream, Tensor total, Tensor x);
Status sum_squares_parts_ref(Stream *stream, Tensor totals, Tensor x, int64_t skip, int64_t share);
Status sketch_ref(Stream *stream, Tensor totals, Tensor x, SketchMap map);
Status adamw_step_ref(Stream *stream, Tensor param, Tensor m, Tensor v, Tensor copy, Tensor grad, AdamW spec);

#endif
