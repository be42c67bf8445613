/* B sequences, T positions, C hidden size, H heads of width D on this rank. */
#include "model/parts/attention.h"

#include <math.h>

Status describe_attention(const Block *block, ParamList *list) {
    const ModelConfig *c = block->config;
    int64_t all = config_attention(c);
    TRY(describe_layer_matrix(block, list,
                              (LayerMatrix){.id = QKV_W,
                                            .name = "attn.qkv",
                                            .stack = 3,
                                            .out = all,
                                            .in = c->hidden,
                                            .split = 1,
                                            .bias_split = 1,
                                            .bias = c->biases & BIAS_QKV}));
    return describe_layer_matrix(block, list,
                                 (LayerMatrix){.id = OUT_W,
                                               .name = "attn.out",
                                               .out = c->hidden,
                                               .in = all,
                                               .split = 1,
                                               .bias_split = -1,
                                               .residual = true,
                                               .bias = c->biases & BIAS_OUT});
}

Tensor attention_dqkv(const Block *block, Shape shape) {
    const ModelConfig *c = block->config;
    return tensor_5d(NULL, shape.dtype, shape.B, shape.T, 3, c->heads / shape.tp, config_head_width(c));
}

AttentionSaved attention_saved(const Block *block, Shape shape, bool keep, Bump *saved) {
    const ModelConfig *c = block->config;
    int64_t B = shape.B, T = shape.T, H = c->heads / shape.tp, D = config_head_width(c);
    AttentionSaved s = {0};
    s.qkv = tensor_take(saved, attention_dqkv(block, shape));
    s.att = tensor_take(saved, tensor_4d(NULL, shape.dtype, B, T, H, D));
    s.lse = tensor_take(saved, tensor_3d(NULL, DT_F32, B, H, T));
    if (keep) {
        s.into_qkv = linear_keep(saved, B * T, c->hidden);
        s.into_out = linear_keep(saved, B * T, H * D);
    }
    return s;
}

double attention_flops(const ModelConfig *config, int64_t T) {
    double C = (double)config->hidden, A = (double)config_attention(config);
    return 8 * C * A + 4 * A * (double)T;
}

static Attention attention_of(const Block *block, const Pass *pass) {
    const ModelConfig *c = block->config;
    float score = c->scale_attn ? 1.0f / sqrtf((float)config_head_width(c)) : 1.0f;
    if (c->scale_attn_by_layer) score /= (float)(block->index + 1);
    Attention spec = {.causal = config_causal(c), .scale = score};
    if (!pass->shape.train) return spec;
    spec.dropout = dropout_at(pass, c->dropout_attn, 0, "layer.%d.attn", block->index);
    spec.dropout.origin[0] = pass->micro->first; /* all sequences, local heads */
    spec.dropout.origin[1] = local_start(pass, tp_part(pass->tp, c->heads));
    spec.dropout.extent[0] = c->heads;
    spec.dropout.extent[1] = pass->shape.T;
    return spec;
}

/* (B,T,H,D) or (B,T,3,H,D) as rows of a linear layer. */
static Tensor heads_as_rows(Tensor t) {
    int64_t rows = t.dim[0] * t.dim[1];
    return tensor_3d(t.data, t.dtype, t.dim[0], t.dim[1], tensor_count(t) / rows);
}

static LinearInput input_of_out(const AttentionSaved *s) {
    return (LinearInput){.x = heads_as_rows(s->att), .cut = true, .kept = s->into_out};
}

Status attention_run(const Block *block, Pass *pass, const AttentionSaved *s, Tensor y, Tensor x) {
    LinearInput in = {.x = x, .kept = s->into_qkv};
    TRY(linear_run(block, pass, heads_as_rows(s->qkv), in, linear_of(block, pass->param, QKV_W)));
    TRY(attention_forward(pass->exec, s->att, s->lse, s->qkv, pass->micro->lens, attention_of(block, pass)));
    return linear_run(block, pass, y, input_of_out(s), row_parallel(block, pass, OUT_W));
}

Status attention_run_decode(const Block *block, Pass *pass, const AttentionSaved *s, Tensor y, Tensor x) {
    KvCache *cache = &pass->decode->cache[block->index];
    TRY(linear_run(block, pass, heads_as_rows(s->qkv), (LinearInput){.x = x},
                   linear_of(block, pass->param, QKV_W)));
    TRY(attention_decode(pass->exec, s->att, cache->k, cache->v, s->qkv, pass->decode->past,
                         pass->decode->fresh, attention_of(block, pass)));
    return linear_run(block, pass, y, input_of_out(s), row_parallel(block, pass, OUT_W));
}

Status attention_back(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dqkv, Tensor datt,
                      Tensor dy) {
    TRY(linear_back(block, pass, heads_as_rows(datt), grads_now(block, pass, OUT_W), dy,
                    linear_of(block, pass->param, OUT_W), input_of_out(s)));
    return attention_backward(pass->exec, dqkv, datt, s->att, s->lse, s->qkv, pass->micro->lens,
                              attention_of(block, pass));
}

Status attention_back_input(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dx, Tensor dqkv,
                            Tensor x) {
    return linear_back(block, pass, dx, grads_now(block, pass, QKV_W), heads_as_rows(dqkv),
                       linear_of(block, pass->param, QKV_W), (LinearInput){.x = x, .kept = s->into_qkv});
}

Status attention_weight_out(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dy) {
    return linear_back(block, pass, TENSOR_NONE, linear_of(block, pass->grad, OUT_W), dy,
                       linear_of(block, pass->param, OUT_W), input_of_out(s));
}

Status attention_weight_qkv(const Block *block, Pass *pass, const AttentionSaved *s, Tensor dqkv, Tensor x) {
    return linear_back(block, pass, TENSOR_NONE, linear_of(block, pass->grad, QKV_W), heads_as_rows(dqkv),
                       linear_of(block, pass->param, QKV_W), (LinearInput){.x = x, .kept = s->into_qkv});
}
