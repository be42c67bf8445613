/* The transformer layer: attention and MLP, each with a residual connection, normalized before or after.
 *
 *   before:  mid = x + drop(attention(norm1 x))      y = mid + drop(mlp(norm2 mid))
 *   after:   mid = norm1(x + drop(attention(x)))     y = norm2(mid + drop(mlp(mid)))
 *
 * B sequences, T positions, C hidden size. Attention and MLP are column-parallel where they read rows and
 * row-parallel where they write them: rows are spread before and collected after each, vice versa in backward
 * (parallel/tp.h). "Rows" below means (B,T,C), or the local rows with sequence parallelism. `whole` tensors
 * then hold all rows temporarily; those that backward needs are gathered again instead of saved.
 *
 * In fp8 the inputs of the matmuls are saved quantized, as backward needs them, instead of the outputs of
 * norms and activation: per token, 7 C bytes instead of 12 C (for an inner size of 4 C). With delayed
 * scaling, norms quantize their output themselves. With sequence parallelism or selective recompute inputs
 * are quantized again.
 *
 * Dropout masks are regenerated, not saved; so is `mid` of a post-norm layer, at the cost of one norm.
 * Selective recompute also drops the outputs of norms and activation; that of a gated activation is never
 * saved. Backward reuses memory of tensors it has consumed: dpre overwrites act (or, gated, pre), dqkv
 * overwrites pre. A backward that defers weight gradients leaves the four output gradients they need in
 * `deferred` instead. Where MLP needs memory for a part of the rows only (mlp_in_parts), what overwrites its
 * tensors may have memory of its own.
 */
#include "model/parts/layer.h"

#include <math.h>

#include "model/parts/attention.h"
#include "model/parts/blocks.h"
#include "model/parts/mlp.h"

typedef struct LayerSaved {
    AttentionSaved attn;
    MlpSaved mlp;
    NormStats stats1, stats2;
    Tensor sum1; /* rows; pre-norm: mid; post-norm: input of norm1 */
    Tensor sum2; /* rows; post-norm: input of norm2 */
    /* Recomputed under selective recompute; h2 of a post-norm layer is always recomputed. */
    Tensor h1; /* rows; attention's input; pre-norm only, otherwise x */
    Tensor h2; /* rows; the MLP's input; pre-norm: output of norm2; post-norm: mid */
} LayerSaved;

typedef struct LayerScratch {
    Tensor a, b;         /* rows */
    Tensor whole, input; /* (B,T,C), sequence parallelism only */
    Tensor wide;         /* backward: holds dpre, then dqkv, where no other memory is free */
    Tensor dact;         /* backward of a gated MLP */
    Tensor datt;         /* backward, if attention is wider than rows */
    Fp8Gradient dpre;    /* backward in fp8, see mlp_gradient */
} LayerScratch;

/* Output gradients that the deferred weight-gradient matmuls need. */
typedef struct LayerDeferred {
    Tensor dz, da; /* (B,T,C) gradients of the outputs of MLP and attention */
    Tensor dpre;   /* see mlp_dpre */
    Tensor dqkv;   /* see attention_dqkv */
    Tensor mid;    /* rows; post-norm: h2, since the norm's parameters may be released by then */
} LayerDeferred;

static bool pre_norm(const Block *block) {
    return block->config->norm_place == NORM_BEFORE;
}

static Norm norm1(const Block *block, const Tensor *views) {
    return norm_of(block, views, NORM1_W);
}
static Norm norm2(const Block *block, const Tensor *views) {
    return norm_of(block, views, NORM2_W);
}

Status describe_layer_matrix(const Block *block, ParamList *list, LayerMatrix m) {
    const ModelConfig *c = block->config;
    float std = c->init_std;
    if (m.residual && c->init_residual) std /= sqrtf(2.0f * (float)c->layers);
    int64_t a = m.stack ? m.stack : m.out, b = m.stack ? m.out : m.in, in = m.stack ? m.in : 0;
    TRY(describe_matrix(list, m.id, c->init, std, m.split, a, b, in, "layer.%d.%s.weight", block->index,
                        m.name));
    list->desc[list->count - 1].overwritten = true;
    if (!m.bias) return OK;
    return describe_bias(list, m.id + 1, m.bias_split, a, m.stack ? m.out : 0, "layer.%d.%s.bias",
                         block->index, m.name);
}

static Status describe_layer(const Block *block, ParamList *ret_params) {
    const ModelConfig *c = block->config;
    char prefix[PARAM_NAME];
    snprintf(prefix, sizeof prefix, "layer.%d.norm1", block->index);
    TRY(describe_norm(c, ret_params, NORM1_W, c->hidden, true, prefix));
    TRY(describe_attention(block, ret_params));
    snprintf(prefix, sizeof prefix, "layer.%d.norm2", block->index);
    TRY(describe_norm(c, ret_params, NORM2_W, c->hidden, true, prefix));
    return describe_mlp(block, ret_params);
}

/* Lays out saved tensors and the scratch of forward and backward. Tensors that selective recompute drops, or
 * that are saved quantized, come from scratch, and so do the same ones of a frozen layer: only weight
 * gradients read them. */
static void layer_layout(const Block *block, Shape shape, Bump *saved, Bump *scratch, LayerSaved *ret_saved,
                         LayerScratch *ret_scratch) {
    const ModelConfig *c = block->config;
    Tensor rows = rows_of(shape, c->hidden);
    int64_t count = row_count(shape);
    linear_layout(block, shape, scratch);
    bool selective = shape.recompute == RECOMPUTE_SELECTIVE || !block->trained;
    bool fp8 = layer_in_fp8(block, shape);
    bool rounded = fp8 && !selective && !shape.sequence, keep = rounded && shape.train;
    Bump *cheap = selective || rounded ? scratch : saved;
    LayerSaved s = {0};
    s.attn = attention_saved(block, shape, keep, saved, scratch);
    s.stats1 = norm_stats(c, count, saved);
    s.stats2 = norm_stats(c, count, saved);
    s.sum1 = tensor_take(saved, rows);
    if (!pre_norm(block)) s.sum2 = tensor_take(saved, rows);
    if (pre_norm(block)) s.h1 = tensor_take(cheap, rows);
    Bump *input = moe_in(block) && !selective ? saved : cheap; /* which experts read in 16 bits */
    s.h2 = tensor_take(pre_norm(block) ? input : scratch, rows);
    bool restored = mlp_restores(block, shape);
    s.mlp = mlp_saved(block, shape, keep, saved, restored ? scratch : cheap);
    *ret_saved = s;

    LayerScratch w = {0};
    w.a = tensor_take(scratch, rows);
    w.b = tensor_take(scratch, rows);
    w.whole = tensor_take(scratch, whole_of(shape, c->hidden));
    w.input = tensor_take(scratch, whole_of(shape, c->hidden));
    Tensor dqkv = attention_dqkv(block, shape), dpre = mlp_dpre(block, shape);
    if (shape.train && tensor_count(dqkv) > tensor_count(dpre))
        w.wide = tensor_take(scratch, dqkv);
    else if (fp8 && !c->gated)
        w.wide = tensor_take(scratch, dpre);
    w.dpre = mlp_gradient(block, shape, scratch);
    if (shape.train && c->gated) w.dact = restored ? s.mlp.act : tensor_take(scratch, mlp_act(block, shape));
    if (shape.train && config_attention(c) > c->hidden) w.datt = tensor_take(scratch, s.attn.att);
    *ret_scratch = w;
}

static LayerDeferred layer_deferred(const Block *block, Shape shape, Bump *bump) {
    int64_t C = block->config->hidden;
    LayerDeferred d = {0};
    d.dz = tensor_take(bump, tensor_3d(NULL, shape.dtype, shape.B, shape.T, C));
    d.da = tensor_take(bump, tensor_3d(NULL, shape.dtype, shape.B, shape.T, C));
    d.dpre = tensor_take(bump, mlp_dpre(block, shape));
    d.dqkv = tensor_take(bump, attention_dqkv(block, shape));
    if (!pre_norm(block)) d.mid = tensor_take(bump, rows_of(shape, C));
    return d;
}

static size_t measure_deferred_layer(const Block *block, Shape shape) {
    Bump bump = {0};
    layer_deferred(block, shape, &bump);
    return bump.used;
}

static void measure_layer(const Block *block, Shape shape, size_t *ret_saved, size_t *ret_scratch) {
    Bump saved = {0}, scratch = {0};
    LayerSaved s;
    LayerScratch w;
    layer_layout(block, shape, &saved, &scratch, &s, &w);
    *ret_saved = saved.used;
    *ret_scratch = scratch.used;
    if (!shape.fp8 || (shape.train && shape.T % 16 == 0)) return;
    /* A smaller micro-batch (or, outside training, a shorter sequence) may not qualify for fp8, and bf16
     * needs more memory per row: take the maximum. */
    shape.fp8 = false;
    measure_layer(block, shape, &saved.used, &scratch.used);
    if (saved.used > *ret_saved) *ret_saved = saved.used;
    if (scratch.used > *ret_scratch) *ret_scratch = scratch.used;
}

static Status layer_memory(const Block *block, Pass *pass, LayerSaved *ret_saved, LayerScratch *ret_scratch) {
    Bump saved = bump_over(pass->saved), scratch = bump_over(pass->scratch);
    layer_layout(block, pass->shape, &saved, &scratch, ret_saved, ret_scratch);
    TRY(bump_check(&saved, "a layer's activations"));
    return bump_check(&scratch, "a layer's scratch");
}

static Dropout residual_dropout(const Block *block, const Pass *pass, int which) {
    const ModelConfig *c = block->config;
    return dropout_at(pass, c->dropout_hidden, c->hidden, "layer.%d.residual.%d", block->index, which);
}

/* Where partial sums of rows are computed. */
static Tensor partial_buffer(const Pass *pass, const LayerScratch *w, Tensor rows) {
    return pass->shape.sequence ? w->whole : rows;
}

/* norm1 of a pre-norm layer, for attention. In fp8 only the quantized result is stored, in the memory of h1.
 */
static Status forward_norm1(const Block *block, Pass *pass, LayerSaved *s, Tensor x) {
    const ModelConfig *c = block->config;
    Norm norm = norm1(block, pass->param);
    if (!linear_takes_fp8(block, pass, &s->attn.into_qkv, s->h1.data))
        return norm_forward(pass->exec, c, s->h1, s->stats1, x, norm);
    return norm_forward_fp8(pass->exec, c, TENSOR_NONE, TENSOR_NONE, s->attn.into_qkv, s->stats1, x,
                            TENSOR_NONE, norm, (Dropout){0},
                            linear_scale(block, pass, block->index, FP8_QKV, FP8_INPUT));
}

/* sum1 and its norm, which the MLP reads: norm2 of a pre-norm layer, norm1 of a post-norm layer. The latter
 * is also the residual, so it is stored in bf16, too. */
static Status forward_norm2(const Block *block, Pass *pass, LayerSaved *s, const LayerScratch *w, Tensor x) {
    const ModelConfig *c = block->config;
    bool pre = pre_norm(block);
    Norm norm = pre ? norm2(block, pass->param) : norm1(block, pass->param);
    NormStats stats = pre ? s->stats2 : s->stats1;
    Dropout dropout = residual_dropout(block, pass, 1);
    if (!linear_takes_fp8(block, pass, &s->mlp.into_up, pre ? s->h2.data : w->b.data))
        return norm_forward_sum(pass->exec, c, s->sum1, s->h2, stats, x, w->a, norm, dropout);
    return norm_forward_fp8(pass->exec, c, s->sum1, pre ? TENSOR_NONE : s->h2, s->mlp.into_up, stats, x, w->a,
                            norm, dropout, linear_scale(block, pass, block->index, FP8_UP, FP8_INPUT));
}

static Status forward_layer(const Block *block, Pass *pass, Tensor y, Tensor x) {
    Exec *e = pass->exec;
    const ModelConfig *c = block->config;
    bool pre = pre_norm(block);
    LayerSaved s;
    LayerScratch w;
    TRY(layer_memory(block, pass, &s, &w));
    Tensor input = x, partial = partial_buffer(pass, &w, w.a);
    if (pre) {
        TRY(forward_norm1(block, pass, &s, x));
        input = s.h1;
    }
    TRY(spread(pass, w.input, input, &input));
    TRY(attention_run(block, pass, &s.attn, partial, input));
    TRY(collect(pass, w.a, partial));
    TRY(forward_norm2(block, pass, &s, &w, x));
    if (pass->again && pre && mlp_in_parts(block, pass->shape)) return OK;
    TRY(spread(pass, w.input, s.h2, &input));
    if (pass->again && pre) return mlp_rerun(block, pass, &s.mlp, partial, input);
    TRY(mlp_run(block, pass, &s.mlp, partial, input));
    TRY(collect(pass, w.a, partial));
    Dropout dropout = residual_dropout(block, pass, 2);
    if (pre) return dropout_add_forward(e, y, s.sum1, w.a, dropout);
    return norm_forward_sum(e, c, s.sum2, y, s.stats2, s.h2, w.a, norm2(block, pass->param), dropout);
}

/* Whether a decoding pass may use fused kernels, if the backend has them. */
static bool may_fuse(const Block *block, const Pass *pass) {
    return pre_norm(block) && pass->tp->size == 1 && !block->config->lora.rank && !pass->shape.train &&
           !pass->shape.fake_quant && !layer_in_fp8(block, pass->shape);
}

/* The experts of a layer whose attention was fused. */
static Status decode_experts(const Block *block, Pass *pass, const LayerSaved *s, const LayerScratch *w,
                             Tensor y, Tensor mid) {
    TRY(norm_forward(pass->exec, block->config, s->h2, s->stats2, mid, norm2(block, pass->param)));
    TRY(mlp_run(block, pass, &s->mlp, w->a, s->h2));
    return dropout_add_forward(pass->exec, y, mid, w->a, (Dropout){0});
}

static Status decode_layer(const Block *block, Pass *pass, Tensor y, Tensor x) {
    if (!config_causal(block->config))
        return FAILED("internal: a model that attends in both directions cannot generate text");
    LayerSaved s;
    LayerScratch w;
    TRY(layer_memory(block, pass, &s, &w));
    Norm first = norm1(block, pass->param), second = norm2(block, pass->param);
    Tensor mid = s.sum1;
    bool sparse = moe_in(block);
    if (!may_fuse(block, pass) || !attention_fuses(block, pass, &s.attn, mid, x, first, x) ||
        (!sparse && !mlp_fuses(block, pass, &s.mlp, y, mid, second, mid)))
        return forward_layer(block, pass, y, x);
    TRY(attention_run_fused(block, pass, &s.attn, mid, x, first, x));
    if (sparse) return decode_experts(block, pass, &s, &w, y, mid);
    return mlp_run_fused(block, pass, &s.mlp, y, mid, second, mid);
}

/* Recomputes mid of a post-norm layer, unless it is saved quantized. Also recomputes its statistics, bit for
 * bit. */
static Status recompute_mid(const Block *block, Pass *pass, const LayerSaved *s) {
    if (pre_norm(block) || s->mlp.into_up.transposed.data) return OK;
    return norm_forward(pass->exec, block->config, s->h2, s->stats1, s->sum1, norm1(block, pass->param));
}

/* Recomputes what selective recompute dropped. Only weight gradients read it. */
static Status recompute_layer(const Block *block, Pass *pass, const LayerSaved *s, Tensor x) {
    Exec *e = pass->exec;
    const ModelConfig *c = block->config;
    if (pass->shape.recompute != RECOMPUTE_SELECTIVE || !block->trained) return OK;
    if (pre_norm(block)) {
        TRY(norm_forward(e, c, s->h1, s->stats1, x, norm1(block, pass->param)));
        TRY(norm_forward(e, c, s->h2, s->stats2, s->sum1, norm2(block, pass->param)));
    }
    return mlp_recompute(block, pass, &s->mlp);
}

/* Whether the gradients of the outputs of MLP and attention are gradients of the residual stream, which stay
 * until deferred matmuls read them. */
static bool keeps_gradients(const Block *block, const Pass *pass) {
    return pass->lasting_dy.data && pre_norm(block) && block->config->dropout_hidden <= 0 &&
           !pass->shape.sequence;
}

/* Buffers for the output gradients: in `deferred`, or over tensors that are no longer needed. */
static Status layer_gradients(const Block *block, Pass *pass, const LayerSaved *s, const LayerScratch *w,
                              LayerDeferred *ret_gradients) {
    if (pass->deferred.data) {
        Bump bump = bump_over(pass->deferred);
        LayerDeferred d = layer_deferred(block, pass->shape, &bump);
        if (keeps_gradients(block, pass)) d.dz = pass->lasting_dy;
        *ret_gradients = d;
        return bump_check(&bump, "a layer's deferred gradients");
    }
    LayerDeferred d = {.dz = pass->shape.sequence ? w->whole : w->a,
                       .dpre = mlp_dpre(block, pass->shape),
                       .dqkv = attention_dqkv(block, pass->shape),
                       .mid = s->h2};
    d.da = d.dz;
    d.dpre.data = s->mlp.act.data ? s->mlp.act.data : w->wide.data;
    if (block->config->gated) d.dpre.data = s->mlp.pre.data;
    d.dqkv.data = tensor_count(d.dqkv) <= tensor_count(s->mlp.pre) ? s->mlp.pre.data : w->wide.data;
    *ret_gradients = d;
    return OK;
}

/* The bias gradient of matmul `id` if the kernel of dropout (of_dropout) or of the norm sums it; see
 * sums_biases. */
static Tensor bias_sums(const Block *block, const Pass *pass, LayerParam id, bool of_dropout) {
    bool mine = sums_biases(block, pass) && of_dropout == (block->config->dropout_hidden > 0);
    return mine ? linear_grads(block, pass, id).bias : TENSOR_NONE;
}

/* Gradient before the dropout at the output of matmul `id`: in *buffer, or dy itself if there is no dropout
 * and no deferred matmul needs the gradient, or if the matmul's backward will apply *dropout, which is else
 * cleared. */
static Status drop_gradient(const Block *block, Pass *pass, const LayerScratch *w, LayerParam id,
                            Tensor *buffer, Tensor dy, Dropout *dropout) {
    bool cut = pass->shape.sequence, later = pass->deferred.data && buffer->data != dy.data;
    Tensor whole, rows = dy, sums = bias_sums(block, pass, id, true);
    bool drops = linear_drops(block, pass) && !(id == DOWN_W && moe_in(block));
    if (!drops && (dropout->p > 0 || sums.data || (later && !cut))) {
        rows = cut ? w->a : *buffer;
        TRY(dropout_backward(pass->exec, rows, sums, dy, *dropout));
        *dropout = (Dropout){0};
    }
    TRY(spread(pass, *buffer, rows, &whole));
    *buffer = whole;
    return OK;
}

/* dmid (rows) from dy, the gradient of the MLP branch. If dmid is dy, the result is added to it; otherwise
 * the caller adds the residual. */
static Status backward_mlp(const Block *block, Pass *pass, const LayerSaved *s, const LayerScratch *w,
                           LayerDeferred *d, Tensor dmid, Tensor dy) {
    Dropout dropout = residual_dropout(block, pass, 2);
    bool parts = mlp_in_parts(block, pass->shape), add = dmid.data == dy.data;
    TRY(drop_gradient(block, pass, w, DOWN_W, &d->dz, dy, &dropout));
    if (!parts) TRY(mlp_back(block, pass, &s->mlp, d->dpre, w->dact, w->dpre, d->dz, dropout));
    Tensor partial = partial_buffer(pass, w, dmid), input = TENSOR_NONE;
    if (!pass->deferred.data) TRY(spread(pass, w->input, s->h2, &input));
    if (parts)
        TRY(mlp_back_parts(block, pass, &s->mlp, partial, add, d->dpre, w->dact, d->dz, input));
    else
        TRY(mlp_back_input(block, pass, &s->mlp, partial, add, d->dpre, w->dpre, input));
    return collect(pass, dmid, partial);
}

/* dh (rows), the gradient of attention's input `from`, from dmid, the gradient of the attention branch. If dh
 * is dmid, the result is added to it, and w->b is overwritten. */
static Status backward_attention(const Block *block, Pass *pass, const LayerSaved *s, const LayerScratch *w,
                                 LayerDeferred *d, Tensor dh, Tensor dmid, Tensor from) {
    bool add = dh.data == dmid.data;
    Tensor datt = s->attn.att;
    /* Unless heads are wide, not larger than rows, and dh is free until the last matmul. */
    datt.data = w->datt.data ? w->datt.data : add ? w->b.data : dh.data;
    Dropout dropout = residual_dropout(block, pass, 1);
    TRY(drop_gradient(block, pass, w, OUT_W, &d->da, dmid, &dropout));
    TRY(attention_back(block, pass, &s->attn, d->dqkv, datt, d->da, dropout));
    Tensor partial = partial_buffer(pass, w, dh), input = TENSOR_NONE;
    if (!pass->deferred.data) TRY(spread(pass, w->input, from, &input));
    TRY(attention_back_input(block, pass, &s->attn, partial, add, d->dqkv, input));
    return collect(pass, dh, partial);
}

static Status backward_layer(const Block *block, Pass *pass, Tensor dx, Tensor dy, Tensor x) {
    Exec *e = pass->exec;
    const ModelConfig *c = block->config;
    Norm p1 = norm1(block, pass->param), g1 = norm1(block, pass->grad);
    Norm p2 = norm2(block, pass->param), g2 = norm2(block, pass->grad);
    LayerSaved s;
    LayerScratch w;
    LayerDeferred d;
    Tensor out = bias_sums(block, pass, OUT_W, false), down = bias_sums(block, pass, DOWN_W, false);
    TRY(layer_memory(block, pass, &s, &w));
    TRY(layer_gradients(block, pass, &s, &w, &d));
    if (!pre_norm(block)) s.h2 = d.mid;
    if (keeps_gradients(block, pass)) w.b = d.da;
    TRY(attention_start_back(block, pass, &s.attn));
    TRY(recompute_mid(block, pass, &s));
    if (!pass->deferred.data) TRY(recompute_layer(block, pass, &s, x));
    if (pre_norm(block)) {
        TRY(backward_mlp(block, pass, &s, &w, &d, w.b, dy));
        TRY(norm_backward(e, c, w.b, g2, w.b, s.sum1, s.stats2, p2, dy, (NormSums){out, down}));
        TRY(backward_attention(block, pass, &s, &w, &d, dx, w.b, s.h1));
        return norm_backward(e, c, dx, g1, dx, x, s.stats1, p1, w.b, (NormSums){0});
    }
    /* w.b holds the gradient of the residual stream. */
    TRY(norm_backward(e, c, w.b, g2, dy, s.sum2, s.stats2, p2, TENSOR_NONE, (NormSums){.dx = down}));
    if (pass->tp->size == 1) {
        TRY(backward_mlp(block, pass, &s, &w, &d, w.b, w.b));
        TRY(norm_backward(e, c, dx, g1, w.b, s.sum1, s.stats1, p1, TENSOR_NONE, (NormSums){.dx = out}));
        return backward_attention(block, pass, &s, &w, &d, dx, dx, x);
    }
    TRY(backward_mlp(block, pass, &s, &w, &d, dx, w.b));
    TRY(add(e, dx, w.b));
    TRY(norm_backward(e, c, w.b, g1, dx, s.sum1, s.stats1, p1, TENSOR_NONE, (NormSums){.dx = out}));
    TRY(backward_attention(block, pass, &s, &w, &d, dx, w.b, x));
    return add(e, dx, w.b);
}

static Status backward_weight_layer(const Block *block, Pass *pass, Tensor x) {
    LayerSaved s;
    LayerScratch w;
    LayerDeferred d;
    Tensor input;
    TRY(layer_memory(block, pass, &s, &w));
    TRY(layer_gradients(block, pass, &s, &w, &d));
    if (!pre_norm(block)) s.h2 = d.mid;
    TRY(recompute_layer(block, pass, &s, x));
    TRY(mlp_weight_down(block, pass, &s.mlp, d.dz));
    TRY(spread(pass, w.input, s.h2, &input));
    TRY(mlp_weight_up(block, pass, &s.mlp, d.dpre, input));
    TRY(attention_weight_out(block, pass, &s.attn, d.da));
    TRY(spread(pass, w.input, pre_norm(block) ? s.h1 : x, &input));
    return attention_weight_qkv(block, pass, &s.attn, d.dqkv, input);
}

/* A (1,K) x (K,N) matmul is 2KN FLOPs in forward and twice that in backward. */
static double flops_layer(const Block *block, int64_t T) {
    return 3 * (attention_flops(block, T) + mlp_flops(block));
}

const BlockOps block_ops_layer = {
    .name = "layer",
    .kind = BLOCK_LAYER,
    .describe = describe_layer,
    .measure = measure_layer,
    .measure_deferred = measure_deferred_layer,
    .forward = forward_layer,
    .backward = backward_layer,
    .backward_weight = backward_weight_layer,
    .decode = decode_layer,
    .flops = flops_layer,
    .backward_params = true,
};
