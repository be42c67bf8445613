/* Self-attention: q, k and v from one matmul, attention, output projection. Heads are split across
 * tensor-parallel ranks.
 *
 * With grouped heads (config_grouped), q has a matrix of its own and k and v have another, since they are
 * split differently: a rank has at least one key-value head. In a rank's memory the two follow each other, so
 * that they are one matrix there. With more ranks than key-value heads, every rank holds all of k and v, and
 * copies the head that it needs next to q; the gradients of all ranks are summed (ParamDesc.partial). */
#ifndef WEFT_MODEL_PARTS_ATTENTION_H
#define WEFT_MODEL_PARTS_ATTENTION_H

#include "model/parts/context.h"
#include "model/parts/layer.h"

typedef struct AttentionSaved {
    Tensor qkv;            /* (B,T,3,H,D), or grouped (B,T,H+2G,D): heads of q, k and v; with RoPE, rotated */
    Tensor att;            /* (B,T,H,D) */
    Tensor lse;            /* (B,H,T) */
    ContextSaved context;  /* with context parallelism, instead of lse */
    Tensor q_rstd, k_rstd; /* QK norm: statistics, one per head */
    Fp8Input into_qkv, into_out; /* fp8: quantized inputs; absent where they are quantized again */
    /* Scratch. */
    Tensor normed; /* QK norm: as qkv, which is then the norm's input; recomputed in backward */
    /* With more ranks than key-value heads: the local matrix, and its gradient. */
    Linear copied, copied_grads;
} AttentionSaved;

MUST_USE Status describe_attention(const Block *block, ParamList *list);
/* Rows of the matrix of q, k and v on a rank. */
int64_t attention_rows(const ModelConfig *config, int tp);
/* Those of k, and of v; and where they begin in all of k, where ranks share key-value heads. */
int64_t attention_kv_rows(const ModelConfig *config, int tp);
int64_t attention_kv_first(const Block *block, const Pass *pass);
/* `keep`: inputs are saved quantized. */
AttentionSaved attention_saved(const Block *block, Shape shape, bool keep, Bump *saved, Bump *scratch);
/* Shape of the gradient of qkv, which backward needs memory for. */
Tensor attention_dqkv(const Block *block, Shape shape);
/* FLOPs per token of a layer at sequence length T, forward. */
double attention_flops(const Block *block, int64_t T);

/* y: the output projection's partial sums, from the rows x. In generation, against the KV cache. */
MUST_USE Status attention_run(const Block *block, Pass *pass, const AttentionSaved *s, Tensor y, Tensor x);
/* The same on one rank in generation, with the norm before it and the residual: y = res + attention(norm(x)).
 * attention_fuses says whether the backend has fused kernels for this. */
bool attention_fuses(const Block *block, const Pass *pass, const AttentionSaved *s, Tensor y, Tensor x,
                     Norm norm, Tensor res);
MUST_USE Status attention_run_fused(const Block *block, Pass *pass, const AttentionSaved *s, Tensor y,
                                    Tensor x, Norm norm, Tensor res);
/* At the beginning of a layer's backward: starts what attention_back waits for. */
MUST_USE Status attention_start_back(const Block *block, Pass *pass, const AttentionSaved *s);
/* dqkv from dy, the gradient of y, and the dropout that is not yet applied to it. datt (as att) is
 * workspace. */
MUST_USE Status attention_back(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dqkv,
                               Tensor datt, Tensor dy, Dropout dropout);
/* dx [+]= partial sums, from dqkv; x is needed unless weight gradients are deferred. */
MUST_USE Status attention_back_input(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dx,
                                     bool add, Tensor dqkv, Tensor x);
/* Deferred weight gradients: first of the output projection, then of qkv. */
MUST_USE Status attention_weight_out(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dy);
MUST_USE Status attention_weight_qkv(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dqkv,
                                     Tensor x);

#endif
