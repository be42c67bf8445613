/* Self-attention: q, k and v from one matmul, attention, output projection. Heads are split across
 * tensor-parallel ranks. */
#ifndef WEFT_MODEL_PARTS_ATTENTION_H
#define WEFT_MODEL_PARTS_ATTENTION_H

#include "model/parts/layer.h"

typedef struct AttentionSaved {
    Tensor qkv;                  /* (B,T,3,H,D) */
    Tensor att;                  /* (B,T,H,D) */
    Tensor lse;                  /* (B,H,T) */
    Fp8Input into_qkv, into_out; /* fp8: quantized inputs; absent where they are quantized again */
} AttentionSaved;

MUST_USE Status describe_attention(const Block *block, ParamList *list);
/* `keep`: inputs are saved quantized. */
AttentionSaved attention_saved(const Block *block, Shape shape, bool keep, Bump *saved);
/* Shape of the gradient of qkv, which backward needs memory for. */
Tensor attention_dqkv(const Block *block, Shape shape);
/* FLOPs per token at sequence length T, forward. */
double attention_flops(const ModelConfig *config, int64_t T);

/* y: the output projection's partial sums, from the rows x. */
MUST_USE Status attention_run(const Block *block, Pass *pass, const AttentionSaved *s, Tensor y, Tensor x);
/* The same against a KV cache. */
MUST_USE Status attention_run_decode(const Block *block, Pass *pass, const AttentionSaved *s, Tensor y,
                                     Tensor x);
/* dqkv from dy, the gradient of y. datt (as att) is workspace. */
MUST_USE Status attention_back(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dqkv,
                               Tensor datt, Tensor dy);
/* dx, partial sums, from dqkv; x is needed unless weight gradients are deferred. */
MUST_USE Status attention_back_input(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dx,
                                     Tensor dqkv, Tensor x);
/* Deferred weight gradients: first of the output projection, then of qkv. */
MUST_USE Status attention_weight_out(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dy);
MUST_USE Status attention_weight_qkv(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dqkv,
                                     Tensor x);

#endif
