/* The transformer layer: attention and MLP, each with a residual connection, pre-norm (GPT-2) or post-norm
 * (BERT).
 *
 *   pre-norm:   mid = x + drop(out(attend(qkv(norm1 x))))     y = mid + drop(down(act(up(norm2 mid))))
 *   post-norm:  mid = norm1(x + drop(out(attend(qkv x))))     y = norm2(mid + drop(down(act(up mid))))
 *
 * B sequences, T positions, C hidden size, H heads of width D, A = H*D (equal to C unless heads are pruned),
 * F inner size; H, A and F are local to the rank. qkv and up are column-parallel, out and down row-parallel:
 * rows are spread before qkv and up and collected after out and down, vice versa in backward (parallel/tp.h).
 * "Rows" below means (B,T,C), or the local rows with sequence parallelism. `whole` tensors then hold all rows
 * temporarily; those that backward needs are gathered again instead of saved.
 *
 * In fp8 the four matmuls quantize their operands (kernels.h). Their inputs are saved quantized, as backward
 * needs them, instead of the outputs of norms and activation: per token, 7 C bytes instead of 12 C (for F = 4
 * C). With sequence parallelism or selective recompute they are quantized again. The output of the activation
 * is never stored: it is computed while quantizing the input of down.
 *
 * Quantization-aware training fake-quantizes the operands (model/fake_quant.h), again for each matmul.
 *
 * Dropout masks are regenerated, not saved; so is `mid` of a post-norm layer, at the cost of one norm.
 * Selective recompute also drops the outputs of norms and activation. Backward reuses memory of tensors it
 * has consumed: dpre overwrites act, dqkv overwrites pre. A backward that defers weight gradients leaves the
 * four output gradients they need in `deferred` instead.
 */
#include <math.h>

#include "model/common.h"
#include "model/fake_quant.h"
#include "parallel/tp.h"

typedef struct LayerParams {
    Tensor norm1_w, norm1_b; /* (C) */
    Tensor qkv_w, qkv_b;     /* (3A,C) (3A) */
    Tensor out_w, out_b;     /* (C,A) (C) */
    Tensor norm2_w, norm2_b; /* (C) */
    Tensor up_w, up_b;       /* (F,C) (F) */
    Tensor down_w, down_b;   /* (C,F) (C) */
} LayerParams;

typedef struct LayerSaved {
    Tensor qkv;          /* (B,T,3,H,D) */
    Tensor att;          /* (B,T,H,D) */
    Tensor lse;          /* (B,H,T) */
    Tensor mean1, rstd1; /* one value per row */
    Tensor mean2, rstd2;
    Tensor pre;  /* (B,T,F) input of the activation */
    Tensor sum1; /* rows; pre-norm: mid; post-norm: input of norm1 */
    Tensor sum2; /* rows; post-norm: input of norm2 */
    /* Recomputed under selective recompute; h2 of a post-norm layer is always recomputed. */
    Tensor h1;  /* rows; input of qkv; pre-norm only, otherwise x */
    Tensor h2;  /* rows; input of up; pre-norm: output of norm2; post-norm: mid */
    Tensor act; /* (B,T,F); absent in fp8 */
    /* fp8: quantized inputs of the matmuls; absent where they are recomputed. */
    Fp8Input into_qkv, into_out, into_up, into_down;
} LayerSaved;

typedef struct LayerScratch {
    Tensor a, b;         /* rows */
    Tensor whole, input; /* (B,T,C), sequence parallelism only */
    Tensor wide;         /* backward: holds dpre, then dqkv, where no other memory is free */
    Tensor amax;         /* backward in fp8: absolute maximum of dpre */
} LayerScratch;

/* Output gradients that the deferred weight-gradient matmuls need. */
typedef struct LayerDeferred {
    Tensor dz, da; /* (B,T,C) gradients of the outputs of down and out */
    Tensor dpre;   /* (B,T,F) */
    Tensor dqkv;   /* (B,T,3,H,D) */
    Tensor mid;    /* rows; post-norm: h2, since the norm's parameters may be released by then */
} LayerDeferred;

static bool pre_norm(const Block *block) {
    return block->config->family == FAMILY_GPT2;
}

/* Whether all four matmuls run in fp8. */
static bool in_fp8(const Block *block, Shape shape) {
    const ModelConfig *c = block->config;
    int64_t rows = shape.B * shape.T, width = config_attention(c) / shape.tp, inner = c->inner / shape.tp;
    return shape.fp8 && linear_fp8_supports(rows, width, c->hidden) &&
           linear_fp8_supports(rows, c->hidden, inner);
}

static Status describe_layer(const Block *block, ParamList *ret_params) {
    const ModelConfig *c = block->config;
    int64_t width = c->hidden, all = config_attention(c);
    int i = block->index;
    char prefix[PARAM_NAME];
    /* GPT-2 scales the initialization of residual projections by 1/sqrt(number of residual additions). */
    float residual_std = pre_norm(block) ? c->init_std / sqrtf(2.0f * (float)c->layers) : c->init_std;
    snprintf(prefix, sizeof prefix, "layer.%d.norm1", i);
    TRY(describe_norm(ret_params, width, true, prefix));
    TRY(describe_matrix(ret_params, c->family, c->init_std, 1, 3, all, width, "layer.%d.attn.qkv.weight", i));
    TRY(describe_bias(ret_params, 1, 3, all, "layer.%d.attn.qkv.bias", i));
    TRY(describe_matrix(ret_params, c->family, residual_std, 1, width, all, 0, "layer.%d.attn.out.weight",
                        i));
    TRY(describe_bias(ret_params, -1, width, 0, "layer.%d.attn.out.bias", i));
    snprintf(prefix, sizeof prefix, "layer.%d.norm2", i);
    TRY(describe_norm(ret_params, width, true, prefix));
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

static Fp8Input take_fp8(Bump *bump, int64_t rows, int64_t width) {
    Fp8Input input;
    input.transposed = tensor_take(bump, tensor_2d(NULL, DT_E4M3, width, rows));
    input.scale = tensor_take(bump, tensor_1d(NULL, DT_F32, 1));
    return input;
}

/* Lays out saved tensors and the scratch of forward and backward. Tensors that selective recompute drops, or
 * that are saved quantized, come from scratch. */
static void layer_layout(const Block *block, Shape shape, Bump *saved, Bump *scratch, LayerSaved *ret_saved,
                         LayerScratch *ret_scratch) {
    const ModelConfig *c = block->config;
    DType type = shape.dtype;
    int64_t B = shape.B, T = shape.T, C = c->hidden, D = config_head_width(c);
    int64_t H = c->heads / shape.tp, F = c->inner / shape.tp;
    Tensor stats = row_stats(shape), rows = rows_of(shape, C);
    fake_quant_layout(block, shape, scratch);
    Tensor inner = tensor_3d(NULL, type, B, T, F), qkv = tensor_5d(NULL, type, B, T, 3, H, D);
    LayerSaved s = {0};
    s.qkv = tensor_take(saved, qkv);
    s.att = tensor_take(saved, tensor_4d(NULL, type, B, T, H, D));
    s.lse = tensor_take(saved, tensor_3d(NULL, DT_F32, B, H, T));
    s.mean1 = tensor_take(saved, stats);
    s.rstd1 = tensor_take(saved, stats);
    s.mean2 = tensor_take(saved, stats);
    s.rstd2 = tensor_take(saved, stats);
    s.pre = tensor_take(saved, inner);
    s.sum1 = tensor_take(saved, rows);
    if (!pre_norm(block)) s.sum2 = tensor_take(saved, rows);
    bool selective = shape.recompute == RECOMPUTE_SELECTIVE, fp8 = in_fp8(block, shape);
    bool rounded = fp8 && !selective && !shape.sequence;
    Bump *cheap = selective || rounded ? scratch : saved;
    if (pre_norm(block)) s.h1 = tensor_take(cheap, rows);
    s.h2 = tensor_take(pre_norm(block) ? cheap : scratch, rows);
    if (!fp8) s.act = tensor_take(cheap, inner);
    if (rounded && shape.train) {
        s.into_qkv = take_fp8(saved, B * T, C);
        s.into_out = take_fp8(saved, B * T, H * D);
        s.into_up = take_fp8(saved, B * T, C);
        s.into_down = take_fp8(saved, B * T, F);
    }
    *ret_saved = s;

    LayerScratch w = {0};
    w.a = tensor_take(scratch, rows);
    w.b = tensor_take(scratch, rows);
    w.whole = tensor_take(scratch, whole_of(shape, C));
    w.input = tensor_take(scratch, whole_of(shape, C));
    if (tensor_count(qkv) > tensor_count(inner))
        w.wide = tensor_take(scratch, qkv);
    else if (fp8)
        w.wide = tensor_take(scratch, inner);
    if (fp8 && shape.train && F <= FP8_STATS_MAX_COLS)
        w.amax = tensor_take(scratch, tensor_1d(NULL, DT_F32, FP8_AMAX_PARTS));
    *ret_scratch = w;
}

static LayerDeferred layer_deferred(const Block *block, Shape shape, Bump *bump) {
    const ModelConfig *c = block->config;
    int64_t B = shape.B, T = shape.T, D = config_head_width(c);
    LayerDeferred d = {0};
    d.dz = tensor_take(bump, tensor_3d(NULL, shape.dtype, B, T, c->hidden));
    d.da = tensor_take(bump, tensor_3d(NULL, shape.dtype, B, T, c->hidden));
    d.dpre = tensor_take(bump, tensor_3d(NULL, shape.dtype, B, T, c->inner / shape.tp));
    d.dqkv = tensor_take(bump, tensor_5d(NULL, shape.dtype, B, T, 3, c->heads / shape.tp, D));
    if (!pre_norm(block)) d.mid = tensor_take(bump, rows_of(shape, c->hidden));
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

static Attention attention_of(const Block *block, const Pass *pass) {
    const ModelConfig *c = block->config;
    float score = c->scale_attn ? 1.0f / sqrtf((float)config_head_width(c)) : 1.0f;
    if (c->scale_attn_by_layer) score /= (float)(block->index + 1);
    Attention spec = {.causal = pre_norm(block), .scale = score};
    if (!pass->shape.train) return spec;
    spec.dropout = dropout_at(pass, c->dropout_attn, 0, "layer.%d.attn", block->index);
    spec.dropout.origin[0] = pass->micro->first; /* all sequences, local heads */
    spec.dropout.origin[1] = pass->tp->rank * tp_part(pass->tp, c->heads);
    spec.dropout.extent[0] = c->heads;
    spec.dropout.extent[1] = pass->shape.T;
    return spec;
}

static Dropout residual_dropout(const Block *block, const Pass *pass, int which) {
    const ModelConfig *c = block->config;
    return dropout_at(pass, c->dropout_hidden, c->hidden, "layer.%d.residual.%d", block->index, which);
}

/* (B,T,H,D) or (B,T,3,H,D) as rows of a linear layer. */
static Tensor heads_as_rows(Tensor t) {
    int64_t rows = t.dim[0] * t.dim[1];
    return tensor_3d(t.data, t.dtype, t.dim[0], t.dim[1], tensor_count(t) / rows);
}

/* Enter and leave a split region. Partial sums are computed in partial_buffer. */
static Status spread(Pass *pass, Tensor buffer, Tensor rows, Tensor *ret_whole) {
    return tp_spread(pass->tp, pass->exec, pass->shape.sequence, buffer, rows, ret_whole);
}
static Status collect(Pass *pass, Tensor rows, Tensor partial) {
    return tp_collect(pass->tp, pass->exec, pass->shape.sequence, rows, partial);
}
static Tensor partial_buffer(const Pass *pass, const LayerScratch *w, Tensor rows) {
    return pass->shape.sequence ? w->whole : rows;
}

/* A matmul that does not use fp8. `cut`: its input dim is split across tensor-parallel ranks. */
static Status multiply(const Block *block, Pass *pass, bool cut, Tensor y, Tensor pre, Tensor x, Tensor w,
                       Tensor b, Act act) {
    TRY(fake_quant_input(block, pass, cut, &x));
    TRY(fake_quant_weights(block, pass, cut, &w));
    return linear_forward(pass->exec, y, pre, x, w, b, act);
}

/* A matmul whose input is not the output of an activation. */
static Status project(const Block *block, Pass *pass, bool cut, Tensor y, Fp8Input kept, Tensor x, Tensor w,
                      Tensor b) {
    if (in_fp8(block, pass->shape)) return linear_fp8_forward(pass->exec, y, kept, x, ACT_NONE, w, b);
    return multiply(block, pass, cut, y, TENSOR_NONE, x, w, b, ACT_NONE);
}

static Status project_mlp(const Block *block, Pass *pass, const LayerSaved *s, Tensor y, Tensor x) {
    Exec *e = pass->exec;
    LayerParams p = layer_params(pass->param);
    Act act = block->config->act;
    Tensor down_b = tp_once(pass->tp, p.down_b);
    if (in_fp8(block, pass->shape)) {
        TRY(linear_fp8_forward(e, s->pre, s->into_up, x, ACT_NONE, p.up_w, p.up_b));
        return linear_fp8_forward(e, y, s->into_down, s->pre, act, p.down_w, down_b);
    }
    Tensor pre = pass->shape.train ? s->pre : TENSOR_NONE; /* only backward needs it */
    TRY(multiply(block, pass, false, s->act, pre, x, p.up_w, p.up_b, act));
    return multiply(block, pass, true, y, TENSOR_NONE, s->act, p.down_w, down_b, ACT_NONE);
}

static Status forward_layer(const Block *block, Pass *pass, Tensor y, Tensor x) {
    Exec *e = pass->exec;
    const ModelConfig *c = block->config;
    LayerParams p = layer_params(pass->param);
    LayerSaved s;
    LayerScratch w;
    TRY(layer_memory(block, pass, &s, &w));
    Tensor input = x, partial = partial_buffer(pass, &w, w.a);
    if (pre_norm(block)) {
        TRY(layernorm_forward(e, s.h1, s.mean1, s.rstd1, x, p.norm1_w, p.norm1_b, c->norm_eps));
        input = s.h1;
    }
    TRY(spread(pass, w.input, input, &input));
    TRY(project(block, pass, false, heads_as_rows(s.qkv), s.into_qkv, input, p.qkv_w, p.qkv_b));
    TRY(attention_forward(e, s.att, s.lse, s.qkv, pass->micro->lens, attention_of(block, pass)));
    TRY(project(block, pass, true, partial, s.into_out, heads_as_rows(s.att), p.out_w,
                tp_once(pass->tp, p.out_b)));
    TRY(collect(pass, w.a, partial));
    bool pre = pre_norm(block);
    TRY(dropout_add_norm_forward(e, s.sum1, s.h2, pre ? s.mean2 : s.mean1, pre ? s.rstd2 : s.rstd1, x, w.a,
                                 pre ? p.norm2_w : p.norm1_w, pre ? p.norm2_b : p.norm1_b, c->norm_eps,
                                 residual_dropout(block, pass, 1)));
    TRY(spread(pass, w.input, s.h2, &input));
    TRY(project_mlp(block, pass, &s, partial, input));
    TRY(collect(pass, w.a, partial));
    Dropout dropout = residual_dropout(block, pass, 2);
    if (pre) return dropout_add_forward(e, y, s.sum1, w.a, dropout);
    return dropout_add_norm_forward(e, s.sum2, y, s.mean2, s.rstd2, s.h2, w.a, p.norm2_w, p.norm2_b,
                                    c->norm_eps, dropout);
}

/* Recomputes mid of a post-norm layer, unless it is saved quantized. Also recomputes its statistics, bit for
 * bit. */
static Status recompute_mid(const Block *block, Pass *pass, const LayerSaved *s) {
    LayerParams p = layer_params(pass->param);
    if (pre_norm(block) || s->into_up.transposed.data) return OK;
    return layernorm_forward(pass->exec, s->h2, s->mean1, s->rstd1, s->sum1, p.norm1_w, p.norm1_b,
                             block->config->norm_eps);
}

/* Recomputes what selective recompute dropped. */
static Status recompute_layer(const Block *block, Pass *pass, const LayerSaved *s, Tensor x) {
    Exec *e = pass->exec;
    const ModelConfig *c = block->config;
    LayerParams p = layer_params(pass->param);
    if (pass->shape.recompute != RECOMPUTE_SELECTIVE) return OK;
    if (pre_norm(block)) {
        TRY(layernorm_forward(e, s->h1, s->mean1, s->rstd1, x, p.norm1_w, p.norm1_b, c->norm_eps));
        TRY(layernorm_forward(e, s->h2, s->mean2, s->rstd2, s->sum1, p.norm2_w, p.norm2_b, c->norm_eps));
    }
    return s->act.data ? act_forward(e, s->act, s->pre, c->act) : OK;
}

/* Buffers for the output gradients: in `deferred`, or over tensors that are no longer needed. */
static Status layer_gradients(const Block *block, Pass *pass, const LayerSaved *s, const LayerScratch *w,
                              LayerDeferred *ret_gradients) {
    if (pass->deferred.data) {
        Bump bump = bump_over(pass->deferred);
        *ret_gradients = layer_deferred(block, pass->shape, &bump);
        return bump_check(&bump, "a layer's deferred gradients");
    }
    LayerDeferred d = {
        .dz = pass->shape.sequence ? w->whole : w->a, .dpre = s->pre, .dqkv = s->qkv, .mid = s->h2};
    d.da = d.dz;
    d.dpre.data = s->act.data ? s->act.data : w->wide.data;
    if (tensor_count(d.dqkv) <= tensor_count(s->pre))
        d.dqkv.data = s->pre.data;
    else
        d.dqkv.data = w->wide.data;
    *ret_gradients = d;
    return OK;
}

/* Input of a matmul: x, or act(pre) if there is an activation. fp8 does not need x in the latter case, nor if
 * it is saved quantized. */
typedef struct Input {
    Tensor x, pre;
    Act act;
    bool cut; /* the input dim is split across tensor-parallel ranks */
    Fp8Input kept;
    /* fp8: absolute maxima of the input gradient (computed) and of the output gradient (given). */
    Fp8Stats dx_stats;
    Tensor amax;
} Input;

/* Backward of a matmul: computes dx if present, and dw and db if present. */
static Status project_backward(const Block *block, Pass *pass, Tensor dx, Tensor dw, Tensor db, Tensor dy,
                               Tensor w, Input in) {
    if (in_fp8(block, pass->shape))
        return linear_fp8_backward(pass->exec, dx, in.dx_stats, dw, db, dy, in.amax, w, in.kept,
                                   in.act ? in.pre : in.x, in.act);
    if (dw.data) {
        TRY(fake_quant_input(block, pass, in.cut, &in.x));
        TRY(linear_backward_weight(pass->exec, dw, db, dy, in.x));
    }
    if (!dx.data) return OK;
    TRY(fake_quant_weights(block, pass, in.cut, &w));
    return linear_backward_input(pass->exec, dx, dy, w, in.act, in.pre, false);
}

static Input input_of_down(const Block *block, const LayerSaved *s) {
    return (Input){.x = s->act, .pre = s->pre, .act = block->config->act, .cut = true, .kept = s->into_down};
}

/* Weight gradients only, of both matmuls of a half layer. */
static Status weight_mlp(const Block *block, Pass *pass, const LayerSaved *s, const LayerScratch *w,
                         const LayerDeferred *d) {
    LayerParams p = layer_params(pass->param), g = layer_params(pass->grad);
    Tensor input;
    TRY(project_backward(block, pass, TENSOR_NONE, g.down_w, g.down_b, d->dz, p.down_w,
                         input_of_down(block, s)));
    TRY(spread(pass, w->input, s->h2, &input));
    return project_backward(block, pass, TENSOR_NONE, g.up_w, g.up_b, d->dpre, p.up_w,
                            (Input){.x = input, .kept = s->into_up});
}

static Status weight_attention(const Block *block, Pass *pass, const LayerSaved *s, const LayerScratch *w,
                               const LayerDeferred *d, Tensor into_qkv) {
    LayerParams p = layer_params(pass->param), g = layer_params(pass->grad);
    Tensor input;
    TRY(project_backward(block, pass, TENSOR_NONE, g.out_w, g.out_b, d->da, p.out_w,
                         (Input){.x = heads_as_rows(s->att), .cut = true, .kept = s->into_out}));
    TRY(spread(pass, w->input, into_qkv, &input));
    return project_backward(block, pass, TENSOR_NONE, g.qkv_w, g.qkv_b, heads_as_rows(d->dqkv), p.qkv_w,
                            (Input){.x = input, .kept = s->into_qkv});
}

/* Parameter gradients that backward adds to; all absent if weight gradients are deferred. */
static LayerParams gradients_now(const Pass *pass) {
    return pass->deferred.data ? (LayerParams){0} : layer_params(pass->grad);
}

/* Gradient before the dropout at a matmul's output: in *buffer, or dy itself if there is no dropout and no
 * deferred matmul needs the gradient. */
static Status drop_gradient(Pass *pass, const LayerScratch *w, Tensor *buffer, Tensor dy, Dropout dropout) {
    bool cut = pass->shape.sequence, later = pass->deferred.data != NULL;
    Tensor whole, rows = dy;
    if (dropout.p > 0 || (later && !cut)) {
        rows = cut ? w->a : *buffer;
        TRY(dropout_backward(pass->exec, rows, dy, dropout));
    }
    TRY(spread(pass, *buffer, rows, &whole));
    *buffer = whole;
    return OK;
}

/* dmid (rows) from dy, the gradient of the MLP branch; the residual is added by the caller. */
static Status backward_mlp(const Block *block, Pass *pass, const LayerSaved *s, const LayerScratch *w,
                           LayerDeferred *d, Tensor dmid, Tensor dy) {
    LayerParams p = layer_params(pass->param), g = gradients_now(pass);
    TRY(drop_gradient(pass, w, &d->dz, dy, residual_dropout(block, pass, 2)));
    Input into_down = input_of_down(block, s), in = {.kept = s->into_up, .amax = w->amax};
    if (w->amax.data) {
        /* The backward of down produces dpre, so it can also sum it for the bias gradient of up. */
        into_down.dx_stats = (Fp8Stats){w->amax, g.up_b};
        g.up_b = TENSOR_NONE;
    }
    TRY(project_backward(block, pass, d->dpre, g.down_w, g.down_b, d->dz, p.down_w, into_down));
    if (g.up_w.data) TRY(spread(pass, w->input, s->h2, &in.x));
    Tensor partial = partial_buffer(pass, w, dmid);
    TRY(project_backward(block, pass, partial, g.up_w, g.up_b, d->dpre, p.up_w, in));
    return collect(pass, dmid, partial);
}

/* dh (rows), the gradient of the input of qkv, from dmid, the gradient of the attention branch. */
static Status backward_attention(const Block *block, Pass *pass, const LayerSaved *s, const LayerScratch *w,
                                 LayerDeferred *d, Tensor dh, Tensor dmid, Tensor into_qkv) {
    LayerParams p = layer_params(pass->param), g = gradients_now(pass);
    Tensor datt = s->att;
    datt.data = dh.data; /* same size, and free until the last matmul */
    TRY(drop_gradient(pass, w, &d->da, dmid, residual_dropout(block, pass, 1)));
    TRY(project_backward(block, pass, heads_as_rows(datt), g.out_w, g.out_b, d->da, p.out_w,
                         (Input){.x = heads_as_rows(s->att), .cut = true, .kept = s->into_out}));
    TRY(attention_backward(pass->exec, d->dqkv, datt, s->att, s->lse, s->qkv, pass->micro->lens,
                           attention_of(block, pass)));
    Input in = {.kept = s->into_qkv};
    if (g.qkv_w.data) TRY(spread(pass, w->input, into_qkv, &in.x));
    Tensor partial = partial_buffer(pass, w, dh);
    TRY(project_backward(block, pass, partial, g.qkv_w, g.qkv_b, heads_as_rows(d->dqkv), p.qkv_w, in));
    return collect(pass, dh, partial);
}

static Status backward_layer(const Block *block, Pass *pass, Tensor dx, Tensor dy, Tensor x) {
    Exec *e = pass->exec;
    LayerParams p = layer_params(pass->param), g = layer_params(pass->grad);
    LayerSaved s;
    LayerScratch w;
    LayerDeferred d;
    TRY(layer_memory(block, pass, &s, &w));
    TRY(layer_gradients(block, pass, &s, &w, &d));
    if (!pre_norm(block)) s.h2 = d.mid;
    TRY(recompute_mid(block, pass, &s));
    TRY(recompute_layer(block, pass, &s, x));
    if (pre_norm(block)) {
        TRY(backward_mlp(block, pass, &s, &w, &d, w.b, dy));
        TRY(layernorm_backward(e, w.b, g.norm2_w, g.norm2_b, w.b, s.sum1, s.mean2, s.rstd2, p.norm2_w, dy));
        TRY(backward_attention(block, pass, &s, &w, &d, dx, w.b, s.h1));
        return layernorm_backward(e, dx, g.norm1_w, g.norm1_b, dx, x, s.mean1, s.rstd1, p.norm1_w, w.b);
    }
    /* w.b holds the gradient of the residual stream. */
    TRY(layernorm_backward(e, w.b, g.norm2_w, g.norm2_b, dy, s.sum2, s.mean2, s.rstd2, p.norm2_w,
                           TENSOR_NONE));
    TRY(backward_mlp(block, pass, &s, &w, &d, dx, w.b));
    TRY(add(e, dx, w.b));
    TRY(layernorm_backward(e, w.b, g.norm1_w, g.norm1_b, dx, s.sum1, s.mean1, s.rstd1, p.norm1_w,
                           TENSOR_NONE));
    TRY(backward_attention(block, pass, &s, &w, &d, dx, w.b, x));
    return add(e, dx, w.b);
}

static Status backward_weight_layer(const Block *block, Pass *pass, Tensor x) {
    LayerSaved s;
    LayerScratch w;
    LayerDeferred d;
    TRY(layer_memory(block, pass, &s, &w));
    TRY(layer_gradients(block, pass, &s, &w, &d));
    if (!pre_norm(block)) s.h2 = d.mid;
    TRY(recompute_layer(block, pass, &s, x));
    TRY(weight_mlp(block, pass, &s, &w, &d));
    return weight_attention(block, pass, &s, &w, &d, pre_norm(block) ? s.h1 : x);
}

static Status decode_layer(const Block *block, Pass *pass, Tensor y, Tensor x) {
    Exec *e = pass->exec;
    const ModelConfig *c = block->config;
    if (!pre_norm(block)) return FAILED("internal: BERT cannot generate text");
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
    TRY(collect(pass, w.a, w.a));
    TRY(dropout_add_norm_forward(e, s.sum1, s.h2, s.mean2, s.rstd2, x, w.a, p.norm2_w, p.norm2_b, c->norm_eps,
                                 (Dropout){0}));
    TRY(linear_forward(e, s.act, TENSOR_NONE, s.h2, p.up_w, p.up_b, c->act));
    TRY(linear_forward(e, w.a, TENSOR_NONE, s.act, p.down_w, tp_once(pass->tp, p.down_b), ACT_NONE));
    TRY(collect(pass, w.a, w.a));
    return dropout_add_forward(e, y, s.sum1, w.a, (Dropout){0});
}

const BlockOps block_ops_layer = {
    .name = "layer",
    .describe = describe_layer,
    .measure = measure_layer,
    .measure_deferred = measure_deferred_layer,
    .forward = forward_layer,
    .backward = backward_layer,
    .backward_weight = backward_weight_layer,
    .decode = decode_layer,
    .backward_params = true,
};
