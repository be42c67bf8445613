/* B sequences, T positions, C hidden size; H heads of q and G of k and v, of width D, on this rank. */
#include "model/parts/attention.h"

#include <math.h>

#include "model/cache_split.h"

/* Heads on a rank. */
static int64_t local_heads(const ModelConfig *c, int tp) {
    return c->heads / tp;
}
static int64_t local_groups(const ModelConfig *c, int tp) {
    int64_t all = config_kv_heads(c);
    return all > tp ? all / tp : 1;
}

/* Whether ranks share key-value heads. */
static bool shares_groups(const ModelConfig *c, int tp) {
    return config_kv_heads(c) < tp;
}

int64_t attention_rows(const ModelConfig *c, int tp) {
    return (local_heads(c, tp) + 2 * local_groups(c, tp)) * config_head_width(c);
}

int64_t attention_kv_rows(const ModelConfig *c, int tp) {
    return local_groups(c, tp) * config_head_width(c);
}

int64_t attention_kv_first(const Block *block, const Pass *pass) {
    const ModelConfig *c = block->config;
    return local_start(pass, local_heads(c, pass->shape.tp)) * config_kv_heads(c) / c->heads *
           config_head_width(c);
}

/* ---- parameters ---- */

/* A quantized model, which is never split, has one matrix in any case. */
static Status describe_qkv(const Block *block, ParamList *list) {
    const ModelConfig *c = block->config;
    int64_t q = config_attention(c), kv = config_kv_width(c);
    LayerMatrix all = {.id = QKV_W, .name = "attn.qkv", .in = c->hidden, .split = 1, .bias_split = 1};
    all.bias = c->biases & BIAS_QKV;
    if (!config_grouped(c)) {
        all.stack = 3;
        all.out = q;
        return describe_layer_matrix(block, list, all);
    }
    LayerMatrix own = {.id = Q_W, .name = "attn.q", .out = q, .in = c->hidden, .bias = false};
    LayerMatrix shared = {.id = KV_W, .name = "attn.kv", .stack = 2, .out = kv, .in = c->hidden, .split = 1};
    if (config_quantized(c)) {
        all.out = q + 2 * kv;
        all.split = 0;
        all.bias = false;
        TRY(describe_layer_matrix(block, list, all));
    } else {
        TRY(describe_layer_matrix(block, list, own));
        TRY(describe_layer_matrix(block, list, shared));
        list->desc[list->count - 1].joined = true;
        list->desc[list->count - 1].parts = config_kv_heads(c);
    }
    if (!(c->biases & BIAS_QKV)) return OK;
    TRY(describe_bias(list, Q_B, 0, q, 0, "layer.%d.attn.q.bias", block->index));
    TRY(describe_bias(list, KV_B, 1, 2, kv, "layer.%d.attn.kv.bias", block->index));
    list->desc[list->count - 1].joined = true;
    list->desc[list->count - 1].parts = config_kv_heads(c);
    return OK;
}

/* The weight of a norm over heads: each rank sums its gradient over its own heads. */
static Status describe_head_norm(const Block *block, ParamList *list, LayerParam id, const char *name) {
    const ModelConfig *c = block->config;
    ParamDesc desc = {.id = (int)id,
                      .ndim = 1,
                      .dim = {c->qk_norm_whole ? config_attention(c) : config_head_width(c)},
                      .split = -1,
                      .init = INIT_ONES,
                      .per_row = true,
                      .partial = true};
    snprintf(desc.name, sizeof desc.name, "layer.%d.attn.%s.weight", block->index, name);
    return param_add(list, desc);
}

Status describe_attention(const Block *block, ParamList *list) {
    const ModelConfig *c = block->config;
    TRY(describe_qkv(block, list));
    if (c->qk_norm) {
        TRY(describe_head_norm(block, list, Q_NORM, "q_norm"));
        TRY(describe_head_norm(block, list, K_NORM, "k_norm"));
    }
    return describe_layer_matrix(block, list,
                                 (LayerMatrix){.id = OUT_W,
                                               .name = "attn.out",
                                               .out = c->hidden,
                                               .in = config_attention(c),
                                               .split = 1,
                                               .bias_split = -1,
                                               .residual = true,
                                               .bias = c->biases & BIAS_OUT});
}

/* A vector or matrix of q and the one of k and v that follows it, as one. */
static Tensor join(Tensor q, Tensor kv) {
    if (!q.data) return q;
    if (q.ndim == 1) return tensor_1d(q.data, q.dtype, q.dim[0] + tensor_count(kv));
    return tensor_2d(q.data, q.dtype, q.dim[0] + tensor_count(kv) / q.dim[1], q.dim[1]);
}

/* The rows that a rank with shared key-value heads needs of (2,K,C) or (2,K): of k (part 0) or of v. */
static Tensor own_group(const Block *block, const Pass *pass, Tensor kv, int part) {
    const ModelConfig *c = block->config;
    int64_t D = config_head_width(c), inner = kv.ndim == 3 ? kv.dim[2] : 1;
    int64_t at = (part * kv.dim[1] + attention_kv_first(block, pass)) * inner;
    return tensor_1d((char *)kv.data + (size_t)at * dtype_size(kv.dtype), kv.dtype, D * inner);
}

/* Copies q, the own key head and the own value head to `to`. */
static Status copy_parts(const Block *block, Pass *pass, Tensor to, Tensor q, Tensor kv) {
    Tensor part[] = {q, own_group(block, pass, kv, 0), own_group(block, pass, kv, 1)};
    char *at = to.data;
    for (int i = 0; i < 3; i++) {
        TRY(stream_copy(pass->exec->stream, at, part[i].data, tensor_bytes(part[i]), COPY_ON_DEVICE));
        at += tensor_bytes(part[i]);
    }
    return OK;
}

/* The matrix and bias of q, k and v, unless ranks share key-value heads. */
static Linear whole_qkv(const Block *block, const Pass *pass) {
    Linear all = linear_of(block, pass->param, QKV_W), q = linear_of(block, pass->param, Q_W);
    if (!all.weight.data) all.weight = join(q.weight, block_param(block, pass->param, KV_W));
    if (!all.bias.data) all.bias = join(q.bias, block_param(block, pass->param, KV_B));
    return all;
}

/* The same in any case. Without `copy`, only their shapes matter. */
static Status qkv_weights(const Block *block, Pass *pass, const AttentionSaved *s, bool copy,
                          Linear *ret_weights) {
    Linear q = linear_of(block, pass->param, Q_W);
    Tensor kv = block_param(block, pass->param, KV_W), kv_bias = block_param(block, pass->param, KV_B);
    *ret_weights = whole_qkv(block, pass);
    if (!s->copied.weight.data) return OK;
    *ret_weights = s->copied;
    ret_weights->id = QKV_W;
    if (!q.bias.data) ret_weights->bias = TENSOR_NONE;
    if (!copy) return OK;
    TRY(copy_parts(block, pass, s->copied.weight, q.weight, kv));
    return q.bias.data ? copy_parts(block, pass, s->copied.bias, q.bias, kv_bias) : OK;
}

/* Their gradients: where to add to, and, for copies, adding what was computed there. */
static Status qkv_grads(const Block *block, Pass *pass, const AttentionSaved *s, Linear *ret_grads) {
    Linear all = linear_grads(block, pass, QKV_W), q = linear_grads(block, pass, Q_W);
    Tensor kv = block_param(block, pass->grad, KV_W);
    if (!all.weight.data) {
        all.weight = join(q.weight, kv);
        all.unwritten = q.unwritten;
    }
    if (!all.bias.data) all.bias = join(q.bias, block_param(block, pass->grad, KV_B));
    *ret_grads = all;
    if (!s->copied_grads.weight.data || (!all.weight.data && !all.bias.data)) return OK;
    if (q.unwritten) {
        TRY(stream_zero(pass->exec->stream, q.weight.data, tensor_bytes(q.weight)));
        TRY(stream_zero(pass->exec->stream, kv.data, tensor_bytes(kv)));
    }
    *ret_grads = s->copied_grads;
    ret_grads->id = QKV_W;
    ret_grads->unwritten = true;
    if (!q.weight.data) ret_grads->weight = TENSOR_NONE;
    if (q.bias.data)
        return stream_zero(pass->exec->stream, ret_grads->bias.data, tensor_bytes(ret_grads->bias));
    ret_grads->bias = TENSOR_NONE;
    return OK;
}

static Status add_parts(const Block *block, Pass *pass, Tensor from, Tensor q, Tensor kv) {
    Tensor part[] = {as_vector(q), own_group(block, pass, kv, 0), own_group(block, pass, kv, 1)};
    char *at = from.data;
    for (int i = 0; i < 3; i++) {
        TRY(add(pass->exec, part[i], tensor_1d(at, from.dtype, tensor_count(part[i]))));
        at += tensor_bytes(part[i]);
    }
    return OK;
}

static Status qkv_grads_done(const Block *block, Pass *pass, const AttentionSaved *s) {
    if (!s->copied_grads.weight.data) return OK;
    Linear q = linear_of(block, pass->grad, Q_W);
    if (q.weight.data)
        TRY(add_parts(block, pass, s->copied_grads.weight, q.weight, block_param(block, pass->grad, KV_W)));
    if (!q.bias.data) return OK;
    return add_parts(block, pass, s->copied_grads.bias, q.bias, block_param(block, pass->grad, KV_B));
}

/* ---- memory ---- */

Tensor attention_dqkv(const Block *block, Shape shape) {
    const ModelConfig *c = block->config;
    int64_t H = local_heads(c, shape.tp), G = local_groups(c, shape.tp), D = config_head_width(c);
    if (G == H) return tensor_5d(NULL, shape.dtype, shape.B, shape.T, 3, H, D);
    return tensor_4d(NULL, shape.dtype, shape.B, shape.T, H + 2 * G, D);
}

AttentionSaved attention_saved(const Block *block, Shape shape, bool keep, Bump *saved, Bump *scratch) {
    const ModelConfig *c = block->config;
    int64_t B = shape.B, T = shape.T, H = local_heads(c, shape.tp), D = config_head_width(c);
    bool parts = shape.cp > 1;
    AttentionSaved s = {0};
    /* Backward needs the own rows for the norm, and otherwise what attention reads. */
    s.qkv = tensor_take(context_swaps(shape) && !c->qk_norm ? scratch : saved, attention_dqkv(block, shape));
    s.att = tensor_take(saved, tensor_4d(NULL, shape.dtype, B, T, H, D));
    if (parts)
        s.context = context_saved(c, shape, s.qkv, s.att, saved, scratch);
    else
        s.lse = tensor_take(saved, tensor_3d(NULL, DT_F32, B, H, T));
    if (c->qk_norm) {
        int64_t norms = c->qk_norm_whole ? 1 : H, groups = c->qk_norm_whole ? 1 : local_groups(c, shape.tp);
        s.q_rstd = tensor_take(scratch, tensor_1d(NULL, DT_F32, B * T * norms));
        s.k_rstd = tensor_take(scratch, tensor_1d(NULL, DT_F32, B * T * groups));
        s.normed = tensor_take(scratch, attention_dqkv(block, shape));
    }
    if (keep) {
        s.into_qkv = linear_keep(saved, B * T, c->hidden);
        s.into_out = linear_keep(saved, B * T, H * D);
    }
    if (!shares_groups(c, shape.tp)) return s;
    int64_t rows = attention_rows(c, shape.tp);
    s.copied.weight = tensor_take(scratch, tensor_2d(NULL, shape.dtype, rows, c->hidden));
    s.copied.bias = tensor_take(scratch, tensor_1d(NULL, shape.dtype, rows));
    if (!shape.train) return s;
    s.copied_grads.weight = tensor_take(scratch, tensor_2d(NULL, DT_F32, rows, c->hidden));
    s.copied_grads.bias = tensor_take(scratch, tensor_1d(NULL, DT_F32, rows));
    return s;
}

double attention_flops(const Block *block, int64_t T) {
    const ModelConfig *c = block->config;
    double C = (double)c->hidden, A = (double)config_attention(c), K = (double)config_kv_width(c);
    int64_t window = config_window(c, block->index), seen = window && window < T ? window : T;
    return 4 * C * A + 4 * C * K + 4 * A * (double)seen;
}

/* ---- computation ---- */

static Attention attention_of(const Block *block, const Pass *pass) {
    const ModelConfig *c = block->config;
    float score = c->scale_attn ? 1.0f / sqrtf((float)config_head_width(c)) : 1.0f;
    if (c->scale_attn_by_layer) score /= (float)(block->index + 1);
    int64_t heads = local_heads(c, pass->shape.tp), groups = local_groups(c, pass->shape.tp);
    Attention spec = {.causal = config_causal(c),
                      .scale = score,
                      .kv_heads = groups == heads ? 0 : groups,
                      .window = config_window(c, block->index),
                      .starts = pass->micro->starts};
    if (!pass->shape.train) return spec;
    spec.dropout = dropout_at(pass, c->dropout_attn, 0, "layer.%d.attn", block->index);
    spec.dropout.origin[0] = pass->micro->first; /* all sequences, local heads */
    spec.dropout.origin[1] = local_start(pass, heads);
    spec.dropout.extent[0] = c->heads;
    spec.dropout.extent[1] = context_length(pass->shape);
    spec.dropout.rows = 0;
    return spec;
}

/* (B,T,H,D) or (B,T,3,H,D) as rows of a linear layer. */
static Tensor heads_as_rows(Tensor t) {
    int64_t rows = t.dim[0] * t.dim[1];
    return tensor_3d(t.data, t.dtype, t.dim[0], t.dim[1], tensor_count(t) / rows);
}

/* (B,T,3,H,D) or (B,T,H+2G,D) as (B,T,N,D). */
static Tensor all_heads(Tensor t) {
    int64_t D = t.dim[t.ndim - 1];
    return tensor_4d(t.data, t.dtype, t.dim[0], t.dim[1], tensor_count(t) / (t.dim[0] * t.dim[1] * D), D);
}

static HeadRange q_heads(const Block *block, const Pass *pass) {
    return (HeadRange){0, local_heads(block->config, pass->shape.tp)};
}
static HeadRange k_heads(const Block *block, const Pass *pass) {
    const ModelConfig *c = block->config;
    return (HeadRange){local_heads(c, pass->shape.tp), local_groups(c, pass->shape.tp)};
}

/* What is normalized together: a head each of q and k, or each of them as a whole. */
static Tensor norm_heads(const Block *block, Tensor t) {
    if (!block->config->qk_norm_whole) return all_heads(t);
    return tensor_4d(t.data, t.dtype, t.dim[0], t.dim[1], 3, tensor_count(t) / (3 * t.dim[0] * t.dim[1]));
}
static HeadRange norm_q(const Block *block, const Pass *pass) {
    return block->config->qk_norm_whole ? (HeadRange){0, 1} : q_heads(block, pass);
}
static HeadRange norm_k(const Block *block, const Pass *pass) {
    return block->config->qk_norm_whole ? (HeadRange){1, 1} : k_heads(block, pass);
}

/* What attention reads: qkv, with heads normalized and rotated where the model does. */
static Status attention_input(const Block *block, Pass *pass, const AttentionSaved *s, bool rotate,
                              Tensor *ret_qkv) {
    const ModelConfig *c = block->config;
    HeadRange q = q_heads(block, pass), k = k_heads(block, pass);
    Tensor qkv = s->qkv;
    if (c->qk_norm) {
        Tensor from = norm_heads(block, qkv), to = norm_heads(block, s->normed);
        qkv = s->normed;
        TRY(stream_copy(pass->exec->stream, to.data, from.data, tensor_bytes(from), COPY_ON_DEVICE));
        TRY(rmsnorm_forward(pass->exec, to, s->q_rstd, from, block_param(block, pass->param, Q_NORM),
                            c->norm_eps, norm_q(block, pass)));
        TRY(rmsnorm_forward(pass->exec, to, s->k_rstd, from, block_param(block, pass->param, K_NORM),
                            c->norm_eps, norm_k(block, pass)));
    }
    if (c->position == POSITION_ROPE && rotate)
        TRY(rope_forward(pass->exec, all_heads(qkv), pass->rope,
                         pass->decode ? pass->decode->past : pass->micro->positions, 0,
                         (HeadRange){0, q.count + k.count}));
    *ret_qkv = qkv;
    return OK;
}

static LinearInput input_of_out(const AttentionSaved *s) {
    return (LinearInput){
        .x = heads_as_rows(s->att), .cut = true, .matmul = FP8_OUT, .quantized = s->into_out};
}

static Status attend(const Block *block, Pass *pass, const AttentionSaved *s, Tensor qkv) {
    Attention spec = attention_of(block, pass);
    if (pass->shape.cp > 1) return context_attend(block, pass, &s->context, s->att, qkv, spec);
    if (!pass->decode) return attention_forward(pass->exec, s->att, s->lse, qkv, pass->micro->lens, spec);
    KvCache *cache = &pass->decode->cache[block->index];
    if (pass->decode->split) return cache_split_attend(pass, s->att, cache, qkv, spec);
    return attention_decode(pass->exec, s->att, cache->k, cache->v, qkv, pass->decode->past,
                            pass->decode->fresh, spec);
}

Status attention_run(const Block *block, Pass *pass, const AttentionSaved *s, Tensor y, Tensor x) {
    Linear weights;
    Tensor qkv;
    TRY(qkv_weights(block, pass, s, true, &weights));
    TRY(linear_run(block, pass, heads_as_rows(s->qkv),
                   (LinearInput){.x = x, .matmul = FP8_QKV, .quantized = s->into_qkv}, weights));
    TRY(attention_input(block, pass, s, true, &qkv));
    TRY(attend(block, pass, s, qkv));
    return linear_run(block, pass, y, input_of_out(s), row_parallel(block, pass, OUT_W));
}

bool attention_fuses(const Block *block, const Pass *pass, const AttentionSaved *s, Tensor y, Tensor x,
                     Norm norm, Tensor res) {
    return linear_fused_supports(pass->exec, heads_as_rows(s->qkv), x, whole_qkv(block, pass).weight,
                                 fused_norm(block, norm)) &&
           linear_fused_supports(pass->exec, y, heads_as_rows(s->att),
                                 linear_of(block, pass->param, OUT_W).weight, (LinearFusion){.res = res});
}

Status attention_run_fused(const Block *block, Pass *pass, const AttentionSaved *s, Tensor y, Tensor x,
                           Norm norm, Tensor res) {
    Linear qkv = whole_qkv(block, pass), out = linear_of(block, pass->param, OUT_W);
    Tensor heads;
    TRY(linear_fused_forward(pass->exec, heads_as_rows(s->qkv), x, qkv.weight, qkv.bias, ACT_NONE,
                             fused_norm(block, norm)));
    TRY(attention_input(block, pass, s, true, &heads));
    TRY(attend(block, pass, s, heads));
    return linear_fused_forward(pass->exec, y, heads_as_rows(s->att), out.weight, out.bias, ACT_NONE,
                                (LinearFusion){.res = res});
}

/* Whether attention's backward sums the bias gradient of q, k and v: what follows does not change dqkv. */
static bool sums_qkv(const Block *block, const Pass *pass) {
    const ModelConfig *c = block->config;
    return pass->shape.cp <= 1 && !pass->deferred.data && !layer_in_fp8(block, pass->shape) &&
           c->position != POSITION_ROPE && !c->qk_norm && !config_grouped(c);
}

/* With a QK norm, qkv is not there yet. */
Status attention_start_back(const Block *block, Pass *pass, const AttentionSaved *s) {
    if (pass->shape.cp <= 1 || block->config->qk_norm) return OK;
    return context_start_back(pass, &s->context, s->qkv);
}

Status attention_back(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dqkv, Tensor datt,
                      Tensor dy, Dropout dropout) {
    LinearInput out = input_of_out(s);
    Exec *e = pass->exec;
    const ModelConfig *c = block->config;
    HeadRange q = q_heads(block, pass), k = k_heads(block, pass);
    Tensor qkv, heads = norm_heads(block, dqkv), from = norm_heads(block, s->qkv);
    out.dropout = dropout;
    TRY(linear_back(block, pass, heads_as_rows(datt), grads_now(block, pass, OUT_W), dy,
                    linear_of(block, pass->param, OUT_W), out));
    /* Without a QK norm, qkv was rotated in place. */
    TRY(attention_input(block, pass, s, c->qk_norm, &qkv));
    Attention spec = attention_of(block, pass);
    if (sums_qkv(block, pass)) {
        Linear grads;
        TRY(qkv_grads(block, pass, s, &grads));
        spec.sums = grads.bias;
    }
    TRY(pass->shape.cp > 1 ? context_attend_back(block, pass, &s->context, dqkv, datt, s->att, qkv, spec)
                           : attention_backward(e, dqkv, datt, s->att, s->lse, qkv, pass->micro->lens, spec));
    if (c->position == POSITION_ROPE)
        TRY(rope_backward(e, all_heads(dqkv), pass->rope, pass->micro->positions, 0,
                          (HeadRange){0, q.count + k.count}));
    if (!c->qk_norm) return OK;
    TRY(rmsnorm_backward(e, heads, block_param(block, pass->grad, Q_NORM), heads, from, s->q_rstd,
                         block_param(block, pass->param, Q_NORM), TENSOR_NONE, norm_q(block, pass)));
    return rmsnorm_backward(e, heads, block_param(block, pass->grad, K_NORM), heads, from, s->k_rstd,
                            block_param(block, pass->param, K_NORM), TENSOR_NONE, norm_k(block, pass));
}

/* Backward of q, k and v's matmul: dx [+]= if present, and the weight gradients unless they are deferred. */
static Status back_qkv(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dx, bool add,
                       bool grads, Tensor dqkv, Tensor x) {
    Linear weights, g = {0};
    TRY(qkv_weights(block, pass, s, dx.data != NULL, &weights));
    if (grads) TRY(qkv_grads(block, pass, s, &g));
    if (sums_qkv(block, pass)) g.bias = TENSOR_NONE;
    TRY(linear_back(block, pass, dx, g, heads_as_rows(dqkv), weights,
                    (LinearInput){.x = x, .add = add, .matmul = FP8_QKV, .quantized = s->into_qkv}));
    return grads ? qkv_grads_done(block, pass, s) : OK;
}

Status attention_back_input(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dx, bool add,
                            Tensor dqkv, Tensor x) {
    return back_qkv(block, pass, s, dx, add, !pass->deferred.data, dqkv, x);
}

Status attention_weight_out(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dy) {
    return linear_back(block, pass, TENSOR_NONE, linear_grads(block, pass, OUT_W), dy,
                       linear_of(block, pass->param, OUT_W), input_of_out(s));
}

Status attention_weight_qkv(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dqkv, Tensor x) {
    return back_qkv(block, pass, s, TENSOR_NONE, false, true, dqkv, x);
}
