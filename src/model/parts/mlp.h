/* The feed-forward network: up, activation, down. A gated one has two matrices up, gate and up, as one
 * (2F,C): the activation of gate's output multiplies up's. The inner size is split across tensor-parallel
 * ranks.
 *
 * With many rows, evaluation and layers that are recomputed do not need memory for all of F: forward computes
 * part after part, and backward recomputes a part, passes its gradient on and adds to those of the weights
 * before the next one.
 *
 * In fp8 the output of an activation is not stored, unless it is gated: it is computed while quantizing the
 * input of down.
 *
 * In some layers of some models it is a mixture of experts, moe.h: these functions then call those there. */
#ifndef WEFT_MODEL_PARTS_MLP_H
#define WEFT_MODEL_PARTS_MLP_H

#include "model/parts/moe.h"

typedef struct MlpSaved {
    Tensor pre; /* (B,T,F) input of the activation; gated: (B,T,2F), gate and up */
    Tensor act; /* (B,T,F); absent in fp8, unless gated; see mlp_restores */
    bool adds;  /* with parts: not the first, whose gradients may be the first to be stored */
    Fp8Input into_up, into_down; /* fp8: quantized inputs; absent where they are quantized again */
    MoeSaved moe;                /* a mixture: all but pre, which has those of all experts */
} MlpSaved;

MUST_USE Status describe_mlp(const Block *block, ParamList *list);
/* Whether backward restores act beside the gradient, so that it is not saved: gated, and not in fp8. */
bool mlp_restores(const Block *block, Shape shape);
/* Whether pre, act and the gradient of pre have memory for one part of the rows (1,R,F) at a time. */
bool mlp_in_parts(const Block *block, Shape shape);
/* act comes from `cheap`, the rest from `saved`. `keep`: inputs are saved quantized. */
MlpSaved mlp_saved(const Block *block, Shape shape, bool keep, Bump *saved, Bump *cheap);
/* Shapes of act, and of the gradient of pre, which backward needs memory for. */
Tensor mlp_act(const Block *block, Shape shape);
Tensor mlp_dpre(const Block *block, Shape shape);
double mlp_flops(const Block *block); /* per token, forward */

/* y: the partial sums of down, from the rows x. */
MUST_USE Status mlp_run(const Block *block, Pass *pass, const MlpSaved *s, Tensor y, Tensor x);
/* What backward needs of that, once more; y is workspace. */
MUST_USE Status mlp_rerun(const Block *block, Pass *pass, const MlpSaved *s, Tensor y, Tensor x);
/* mlp_run on one rank in generation, with the norm before it and the residual: y = res + mlp(norm(x)).
 * mlp_fuses says whether the backend has fused kernels for this. */
bool mlp_fuses(const Block *block, const Pass *pass, const MlpSaved *s, Tensor y, Tensor x, Norm norm,
               Tensor res);
MUST_USE Status mlp_run_fused(const Block *block, Pass *pass, const MlpSaved *s, Tensor y, Tensor x,
                              Norm norm, Tensor res);
/* Recomputes act from pre, unless backward restores it. */
MUST_USE Status mlp_recompute(const Block *block, Pass *pass, const MlpSaved *s);
/* fp8: memory for dpre quantized, from the backward of down to that of up; else absent. */
Fp8Gradient mlp_gradient(const Block *block, Shape shape, Bump *scratch);
/* dpre from dy, the gradient of y, and the dropout that is not yet applied to it. dact: workspace (B,T,F),
 * gated only; dpre may then be pre itself, and dact is act itself if it is restored. */
MUST_USE Status mlp_back(const Block *block, Pass *pass, const MlpSaved *s, Tensor dpre, Tensor dact,
                         Fp8Gradient gradient, Tensor dy, Dropout dropout);
/* dx [+]= partial sums, from dpre; x is needed unless weight gradients are deferred. */
MUST_USE Status mlp_back_input(const Block *block, Pass *pass, const MlpSaved *s, Tensor dx, bool add,
                               Tensor dpre, Fp8Gradient gradient, Tensor x);
/* Both of these, part after part, with the weight gradients; dx may be dy. Dropout is applied to dy. */
MUST_USE Status mlp_back_parts(const Block *block, Pass *pass, const MlpSaved *s, Tensor dx, bool add,
                               Tensor dpre, Tensor dact, Tensor dy, Tensor x);
/* Deferred weight gradients: first of down, then of up. */
MUST_USE Status mlp_weight_down(const Block *block, Pass *pass, const MlpSaved *s, Tensor dy);
MUST_USE Status mlp_weight_up(const Block *block, Pass *pass, const MlpSaved *s, Tensor dpre, Tensor x);

#endif
