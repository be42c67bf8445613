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
    bool kept = rng_u16(dropout->key, index) >= dropout_threshold(dropout->p);
    return kept ? dropout_scale(dropout->p) : 0;
}

/* The same for an attention weight. */
static inline double dropout_weight(const Dropout *dropout, int64_t b, int64_t h, int64_t q, int64_t k) {
    if (dropout->p == 0) return 1;
    uint32_t kept = rng_kept(dropout->key, dropout_word(dropout, b, h, q, k), dropout_threshold(dropout->p));
    return kept >> dropout_bit(k) & 1 ? dropout_scale(dropout->p) : 0;
}

/* sums (C) += column sums of x (...,C). Either may be absent. */
void add_column_sums(Tensor sums, Tensor x);

/* A parameter, see AdamWPart. Its copy is rounded from fp32. */
float ref_param(Tensor param, Tensor copy, int64_t i);
void ref_put_param(Tensor param, Tensor copy, int64_t i, float value);

/* What argmax_advance does with the argmax, which is in `tokens`. */
void advance_tokens(Tensor chosen, Tensor tokens, Tensor past);

/* x as an input of linear_fp8_forward, in both orientations. */
void quantize_input_ref(Fp8Input ret_input, Tensor x, Fp8Scale scale);

/* The slots. */
#define KERNEL(id, name, phase, work, launches, backends, workspace, ...)                                    \
    Status name##_ref(Stream *stream, __VA_ARGS__);
#include "kernels/ops.def"
Status int8_tile_ref(int bits, Int8Tile *ret_tile);

#endif
