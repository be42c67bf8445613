/* What the parts of a transformer layer share. */
#ifndef WEFT_MODEL_PARTS_LAYER_H
#define WEFT_MODEL_PARTS_LAYER_H

#include "model/parts/common.h"
#include "model/parts/linear.h"
#include "model/parts/norm.h"
#include "parallel/tp.h"

/* A layer's parameters; a weight is followed by its bias. */
typedef enum {
    NORM1_W,
    NORM1_B,
    QKV_W, /* or, for grouped heads, q and kv */
    QKV_B,
    Q_W,
    Q_B,
    KV_W,
    KV_B,
    Q_NORM,
    K_NORM,
    OUT_W,
    OUT_B,
    NORM2_W,
    NORM2_B,
    UP_W,
    UP_B,
    DOWN_W,
    DOWN_B,
    ROUTER_W, /* a mixture: instead of these two matrices */
    EXPERTS_UP_W,
    EXPERTS_DOWN_W,
    SHARED_ROUTER_W,
    SHARED_UP_W,
    SHARED_DOWN_W,
    LAYER_PARAMS,
    LORA_FIRST = LAYER_PARAMS /* adapters, see lora.h */
} LayerParam;

/* Appends a matrix of layer `i` and, if it has one, its bias, split along `bias_split`; `name` is what
 * follows "layer.I." */
typedef struct LayerMatrix {
    LayerParam id;
    const char *name;
    int64_t stack, out, in; /* (out,in), or with a stack (stack,out,in) */
    int split, bias_split;
    bool residual; /* writes to the residual stream */
    bool bias;
} LayerMatrix;
MUST_USE Status describe_layer_matrix(const Block *block, ParamList *list, LayerMatrix matrix);

/* Enter and leave a split region (parallel/tp.h). */
static inline Status spread(Pass *pass, Tensor buffer, Tensor rows, Tensor *ret_whole) {
    return tp_spread(pass->tp, pass->exec, pass->shape.sequence, buffer, rows, ret_whole);
}
static inline Status collect(Pass *pass, Tensor rows, Tensor partial) {
    return tp_collect(pass->tp, pass->exec, pass->shape.sequence, rows, partial);
}

/* Whether the bias gradients of `out` and `down` are summed by the kernel that computes the gradients of
 * their outputs, dropout's or else the norm's, instead of in a pass of their own. */
static inline bool sums_biases(const Block *block, const Pass *pass) {
    const ModelConfig *c = block->config;
    return !pass->deferred.data && !pass->shape.sequence && !layer_in_fp8(block, pass->shape) &&
           (c->dropout_hidden > 0 || c->norm == NORM_LAYER);
}

/* Gradients that backward of a matmul adds to now; absent if weight gradients are deferred. */
static inline Linear grads_now(const Block *block, const Pass *pass, LayerParam id) {
    if (pass->deferred.data) return (Linear){0};
    Linear grads = linear_grads(block, pass, id);
    if ((id == OUT_W || id == DOWN_W) && sums_biases(block, pass)) grads.bias = TENSOR_NONE;
    return grads;
}

/* A linear layer whose input dim is split: its bias enters the sum over ranks once. */
static inline Linear row_parallel(const Block *block, const Pass *pass, LayerParam id) {
    Linear p = linear_of(block, pass->param, id);
    p.bias = tp_once(pass->tp, p.bias);
    return p;
}

/* The norm before a matmul, as linear_fused_forward takes it. */
static inline LinearFusion fused_norm(const Block *block, Norm norm) {
    return (LinearFusion){.gamma = norm.weight, .beta = norm.bias, .eps = block->config->norm_eps};
}

#endif
