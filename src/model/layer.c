/* The transformer layer: attention and MLP, each with a residual, with the norm before them (GPT-2) or
 * after them (BERT).
 *
 *   pre-norm:   mid = x + drop(out(attend(qkv(norm1 x))))     y = mid + drop(down(act(up(norm2 mid))))
 *   post-norm:  mid = norm1(x + drop(out(attend(qkv x))))     y = norm2(mid + drop(down(act(up mid))))
 *
 * B sequences, T positions, C width, H heads of D, F inner width; H, F are this rank's part. qkv and up
 * are split by their outputs, out and down by their inputs, so tensor ranks meet twice: after out and
 * after down (tp_exit), and backward before qkv and before up (tp_enter).
 *
 * Dropout masks are not saved but drawn again. With selective recompute, norms' outputs and the
 * activation's output are not saved either.
 */
#include <math.h>

#include "model/common.h"
#include "parallel/tp.h"

typedef struct LayerParams {
    Tensor norm1_w, norm1_b; /* (C) */
    Tensor qkv_w, qkv_b;     /* (3H*D,C) (3H*D) */
    Tensor out_w, out_b;     /* (C,H*D) (C) */
    Tensor norm2_w, norm2_b; /* (C) */
    Tensor up_w, up_b;       /* (F,C) (F) */
    Tensor down_w, down_b;   /* (C,F) (C) */
} LayerParams;

typedef struct LayerSaved {
    Tensor qkv;          /* (B,T,3,H,D) */
    Tensor att;          /* (B,T,H,D) */
    Tensor lse;          /* (B,H,T) */
    Tensor mean1, rstd1; /* (B*T) */
    Tensor mean2, rstd2; /* (B*T) */
    Tensor pre;          /* (B,T,F) the activation's input */
    Tensor sum1;         /* (B,T,C) pre-norm: mid; post-norm: norm1's input */
    Tensor sum2;         /* (B,T,C) post-norm: norm2's input */
    /* Computed again under selective recompute. */
    Tensor h1;  /* (B,T,C) what qkv takes: pre-norm only, else x */
    Tensor h2;  /* (B,T,C) what up takes: the second norm's output; post-norm: mid */
    Tensor act; /* (B,T,F) */
} LayerSaved;

typedef struct LayerScratch {
    Tensor a, b; /* (B,T,C) */
    Tensor wide; /* backward: (B,T,F) and (B,T,3,H,D), one after the other */
} LayerScratch;

static bool pre_norm(const Block *block) {
    return block->config->family == FAMILY_GPT2;
}

static Status describe_layer(const Block *block, ParamList *ret_params) {
    const ModelConfig *c = block->config;
    int64_t width = c->hidden;
    int i = block->index;
    char prefix[PARAM_NAME];
    /* GPT-2 scales what is added to the residual stream by one over the root of the additions. */
    float residual_std = pre_norm(block) ? c->init_std / sqrtf(2.0f * (float)c->layers) : c->init_std;
    snprintf(prefix, sizeof prefix, "layer.%d.norm1", i);
    TRY(describe_norm(ret_params, width, prefix));
    TRY(describe_matrix(ret_params, c->family, c->init_std, 1, 3, width, width, "layer.%d.attn.qkv.weight",
                        i));
    TRY(describe_bias(ret_params, 1, 3, width, "layer.%d.attn.qkv.bias", i));
    TRY(describe_matrix(ret_params, c->family, residual_std, 1, width, width, 0, "layer.%d.attn.out.weight",
                        i));
    TRY(describe_bias(ret_params, -1, width, 0, "layer.%d.attn.out.bias", i));
    snprintf(prefix, sizeof prefix, "layer.%d.norm2", i);
    TRY(describe_norm(ret_params, width, prefix));
    TRY(describe_matrix(ret_params, c->family, c->init_std, 0, c->inner, width, 0, "layer.%d.mlp.up.weight",
                        i));
    TRY(describe_bias(ret_params, 0, c->inner, 0, "layer.%d.mlp.up.bias", i));
    TRY(describe_matrix(ret_params, c->family, residual_std, 1, width, c->inner, 0,
                        "layer.%d.mlp.down.weight", i));
    return describe_bias(ret_params, -1, width, 0, "layer.%d.mlp.down.bias", i);
}

static LayerParams layer_params(const Tensor *view) {
    return (LayerParams){
        .norm1_w = view[0],
        .norm1_b = view[1],
        .qkv_w = as_matrix(view[2]),
        .qkv_b = as_vector(view[3]),
        .out_w = view[4],
        .out_b = view[5],
        .norm2_w = view[6],
        .norm2_b = view[7],
        .up_w = view[8],
        .up_b = view[9],
        .down_w = view[10],
        .down_b = view[11],
    };
}

/* Lays out what forward leaves for backward, and the scratch of both. What selective recompute drops
 * comes from scratch instead. */
static void layer_layout(const Block *block, Shape shape, Bump *saved, Bump *scratch, LayerSaved *ret_saved,
                         LayerScratch *ret_scratch) {
    const ModelConfig *c = block->config;
    int64_t B = shape.B, T = shape.T, C = c->hidden, D = C / c->heads;
    int64_t H = c->heads / shape.tp, F = c->inner / shape.tp;
    Tensor rows = tensor_1d(NULL, DT_F32, B * T), width = tensor_3d(NULL, DT_F32, B, T, C);
    Tensor inner = tensor_3d(NULL, DT_F32, B, T, F), qkv = tensor_5d(NULL, DT_F32, B, T, 3, H, D);
    LayerSaved s = {0};
    s.qkv = tensor_take(saved, qkv);
    s.att = tensor_take(saved, tensor_4d(NULL, DT_F32, B, T, H, D));
    s.lse = tensor_take(saved, tensor_3d(NULL, DT_F32, B, H, T));
    s.mean1 = tensor_take(saved, rows);
    s.rstd1 = tensor_take(saved, rows);
    s.mean2 = tensor_take(saved, rows);
    s.rstd2 = tensor_take(saved, rows);
    s.pre = tensor_take(saved, inner);
    s.sum1 = tensor_take(saved, width);
    if (!pre_norm(block)) s.sum2 = tensor_take(saved, width);
    Bump *cheap = shape.recompute == RECOMPUTE_SELECTIVE ? scratch : saved;
    if (pre_norm(block)) s.h1 = tensor_take(cheap, width);
    s.h2 = tensor_take(cheap, width);
    s.act = tensor_take(cheap, inner);
    *ret_saved = s;

    LayerScratch w = {0};
    w.a = tensor_take(scratch, width);
    w.b = tensor_take(scratch, width);
    w.wide = tensor_take(scratch, tensor_count(qkv) > tensor_count(inner) ? qkv : inner);
    *ret_scratch = w;
}

static void measure_layer(const Block *block, Shape shape, size_t *ret_saved, size_t *ret_scratch) {
    Bump saved = {0}, scratch = {0};
    LayerSaved s;
    LayerScratch w;
    layer_layout(block, shape, &saved, &scratch, &s, &w);
    *ret_saved = saved.used;
    *ret_scratch = scratch.used;
}

static Status layer_memory(const Block *block, Pass *pass, LayerSaved *ret_saved, LayerScratch *ret_scratch) {
    Bump saved = bump_over(pass->saved), scratch = bump_over(pass->scratch);
    layer_layout(block, pass->shape, &saved, &scratch, ret_saved, ret_scratch);
    TRY(bump_check(&saved, "a layer's activations"));
    return bump_check(&scratch, "a layer's scratch");
}

static Attention attention_of(const Block *block, const Pass *pass) {
    const ModelConfig *c = block->config;
    float score = c->scale_attn ? 1.0f / sqrtf((float)(c->hidden / c->heads)) : 1.0f;
    if (c->scale_attn_by_layer) score /= (float)(block->index + 1);
    Attention spec = {.causal = pre_norm(block), .scale = score};
    if (!pass->shape.train) return spec;
    spec.dropout = dropout_at(pass, c->dropout_attn, 0, "layer.%d.attn", block->index);
    spec.dropout.origin[1] = pass->tp->rank * tp_part(pass->tp, c->heads);
    spec.dropout.extent[0] = c->heads;
    spec.dropout.extent[1] = pass->shape.T;
    return spec;
}

static Dropout residual_dropout(const Block *block, const Pass *pass, int which) {
    const ModelConfig *c = block->config;
    return dropout_at(pass, c->dropout_hidden, c->hidden, "layer.%d.residual.%d", block->index, which);
}

/* (B,T,H,D) or (B,T,3,H,D) as the rows that linear layers see. */
static Tensor heads_as_rows(Tensor t) {
    int64_t rows = t.dim[0] * t.dim[1];
    return tensor_3d(t.data, t.dtype, t.dim[0], t.dim[1], tensor_count(t) / rows);
}

static Status forward_layer(const Block *block, Pass *pass, Tensor y, Tensor x) {
    Exec *e = pass->exec;
    const ModelConfig *c = block->config;
    LayerParams p = layer_params(pass->param);
    LayerSaved s;
    LayerScratch w;
    TRY(layer_memory(block, pass, &s, &w));
    Tensor into_qkv = x;
    if (pre_norm(block)) {
        TRY(layernorm_forward(e, s.h1, s.mean1, s.rstd1, x, p.norm1_w, p.norm1_b, c->norm_eps));
        into_qkv = s.h1;
    }
    TRY(linear_forward(e, heads_as_rows(s.qkv), TENSOR_NONE, into_qkv, p.qkv_w, p.qkv_b, ACT_NONE));
    TRY(attention_forward(e, s.att, s.lse, s.qkv, pass->micro->lens, attention_of(block, pass)));
    TRY(linear_forward(e, w.a, TENSOR_NONE, heads_as_rows(s.att), p.out_w, tp_once(pass->tp, p.out_b),
                       ACT_NONE));
    TRY(tp_exit_forward(pass->tp, e, w.a));
    bool pre = pre_norm(block);
    TRY(dropout_add_norm_forward(e, s.sum1, s.h2, pre ? s.mean2 : s.mean1, pre ? s.rstd2 : s.rstd1, x, w.a,
                                 pre ? p.norm2_w : p.norm1_w, pre ? p.norm2_b : p.norm1_b, c->norm_eps,
                                 residual_dropout(block, pass, 1)));
    TRY(linear_forward(e, s.act, s.pre, s.h2, p.up_w, p.up_b, c->act));
    TRY(linear_forward(e, w.a, TENSOR_NONE, s.act, p.down_w, tp_once(pass->tp, p.down_b), ACT_NONE));
    TRY(tp_exit_forward(pass->tp, e, w.a));
    Dropout dropout = residual_dropout(block, pass, 2);
    if (pre) return dropout_add_forward(e, y, s.sum1, w.a, dropout);
    return dropout_add_norm_forward(e, s.sum2, y, s.mean2, s.rstd2, s.h2, w.a, p.norm2_w, p.norm2_b,
                                    c->norm_eps, dropout);
}

/* What selective recompute dropped. The statistics are computed again with it, to the same bits. */
static Status recompute_layer(const Block *block, Pass *pass, const LayerSaved *s, Tensor x) {
    Exec *e = pass->exec;
    const ModelConfig *c = block->config;
    LayerParams p = layer_params(pass->param);
    bool pre = pre_norm(block);
    if (pre) TRY(layernorm_forward(e, s->h1, s->mean1, s->rstd1, x, p.norm1_w, p.norm1_b, c->norm_eps));
    TRY(layernorm_forward(e, s->h2, pre ? s->mean2 : s->mean1, pre ? s->rstd2 : s->rstd1, s->sum1,
                          pre ? p.norm2_w : p.norm1_w, pre ? p.norm2_b : p.norm1_b, c->norm_eps));
    return act_forward(e, s->act, s->pre, c->act);
}

/* dmid from dz, the gradient of the MLP's output before its dropout, without the residual. */
static Status backward_mlp(const Block *block, Pass *pass, const LayerSaved *s, const LayerScratch *w,
                           Tensor dmid, Tensor dz) {
    Exec *e = pass->exec;
    LayerParams p = layer_params(pass->param), g = layer_params(pass->grad);
    Tensor dpre = s->pre;
    dpre.data = w->wide.data;
    TRY(linear_backward_weight(e, g.down_w, g.down_b, dz, s->act));
    TRY(linear_backward_input(e, dpre, dz, p.down_w, block->config->act, s->pre, false));
    TRY(linear_backward_weight(e, g.up_w, g.up_b, dpre, s->h2));
    TRY(linear_backward_input(e, dmid, dpre, p.up_w, ACT_NONE, TENSOR_NONE, false));
    return tp_enter_backward(pass->tp, e, dmid);
}

/* dh from da, the gradient of the attention's output before its dropout: back to what qkv took. */
static Status backward_attention(const Block *block, Pass *pass, const LayerSaved *s, const LayerScratch *w,
                                 Tensor dh, Tensor da, Tensor into_qkv) {
    Exec *e = pass->exec;
    LayerParams p = layer_params(pass->param), g = layer_params(pass->grad);
    Tensor datt = s->att, dqkv = s->qkv;
    dqkv.data = w->wide.data;
    datt.data = dh.data; /* free until the last product */
    TRY(linear_backward_weight(e, g.out_w, g.out_b, da, heads_as_rows(s->att)));
    TRY(linear_backward_input(e, heads_as_rows(datt), da, p.out_w, ACT_NONE, TENSOR_NONE, false));
    TRY(attention_backward(e, dqkv, datt, s->att, s->lse, s->qkv, pass->micro->lens,
                           attention_of(block, pass)));
    TRY(linear_backward_weight(e, g.qkv_w, g.qkv_b, heads_as_rows(dqkv), into_qkv));
    TRY(linear_backward_input(e, dh, heads_as_rows(dqkv), p.qkv_w, ACT_NONE, TENSOR_NONE, false));
    return tp_enter_backward(pass->tp, e, dh);
}

static Status backward_layer(const Block *block, Pass *pass, Tensor dx, Tensor dy, Tensor x) {
    Exec *e = pass->exec;
    LayerParams p = layer_params(pass->param), g = layer_params(pass->grad);
    LayerSaved s;
    LayerScratch w;
    TRY(layer_memory(block, pass, &s, &w));
    if (pass->shape.recompute == RECOMPUTE_SELECTIVE) TRY(recompute_layer(block, pass, &s, x));
    Dropout drop1 = residual_dropout(block, pass, 1), drop2 = residual_dropout(block, pass, 2);
    if (pre_norm(block)) {
        TRY(dropout_backward(e, w.a, dy, drop2));
        TRY(backward_mlp(block, pass, &s, &w, w.b, w.a));
        TRY(layernorm_backward(e, w.b, g.norm2_w, g.norm2_b, w.b, s.sum1, s.mean2, s.rstd2, p.norm2_w, dy));
        TRY(dropout_backward(e, w.a, w.b, drop1));
        TRY(backward_attention(block, pass, &s, &w, dx, w.a, s.h1));
        return layernorm_backward(e, dx, g.norm1_w, g.norm1_b, dx, x, s.mean1, s.rstd1, p.norm1_w, w.b);
    }
    /* w.b carries the residual stream's gradient, w.a what goes into the branch. */
    TRY(layernorm_backward(e, w.b, g.norm2_w, g.norm2_b, dy, s.sum2, s.mean2, s.rstd2, p.norm2_w,
                           TENSOR_NONE));
    TRY(dropout_backward(e, w.a, w.b, drop2));
    TRY(backward_mlp(block, pass, &s, &w, dx, w.a));
    TRY(add(e, dx, w.b));
    TRY(layernorm_backward(e, w.b, g.norm1_w, g.norm1_b, dx, s.sum1, s.mean1, s.rstd1, p.norm1_w,
                           TENSOR_NONE));
    TRY(dropout_backward(e, w.a, w.b, drop1));
    TRY(backward_attention(block, pass, &s, &w, dx, w.a, x));
    return add(e, dx, w.b);
}

static Status decode_layer(const Block *block, Pass *pass, Tensor y, Tensor x) {
    Exec *e = pass->exec;
    const ModelConfig *c = block->config;
    if (!pre_norm(block)) return FAILED("internal: BERT does not generate");
    LayerParams p = layer_params(pass->param);
    LayerSaved s;
    LayerScratch w;
    TRY(layer_memory(block, pass, &s, &w));
    KvCache *cache = &pass->decode->cache[block->index];
    TRY(layernorm_forward(e, s.h1, s.mean1, s.rstd1, x, p.norm1_w, p.norm1_b, c->norm_eps));
    TRY(linear_forward(e, heads_as_rows(s.qkv), TENSOR_NONE, s.h1, p.qkv_w, p.qkv_b, ACT_NONE));
    TRY(attention_decode(e, s.att, cache->k, cache->v, s.qkv, pass->decode->past, pass->decode->fresh,
                         attention_of(block, pass).scale));
    TRY(linear_forward(e, w.a, TENSOR_NONE, heads_as_rows(s.att), p.out_w, tp_once(pass->tp, p.out_b),
                       ACT_NONE));
    TRY(tp_exit_forward(pass->tp, e, w.a));
    TRY(dropout_add_norm_forward(e, s.sum1, s.h2, s.mean2, s.rstd2, x, w.a, p.norm2_w, p.norm2_b, c->norm_eps,
                                 (Dropout){0}));
    TRY(linear_forward(e, s.act, TENSOR_NONE, s.h2, p.up_w, p.up_b, c->act));
    TRY(linear_forward(e, w.a, TENSOR_NONE, s.act, p.down_w, tp_once(pass->tp, p.down_b), ACT_NONE));
    TRY(tp_exit_forward(pass->tp, e, w.a));
    return dropout_add_forward(e, y, s.sum1, w.a, (Dropout){0});
}

const BlockOps block_ops_layer = {
    .name = "layer",
    .describe = describe_layer,
    .measure = measure_layer,
    .forward = forward_layer,
    .backward = backward_layer,
    .decode = decode_layer,
};
