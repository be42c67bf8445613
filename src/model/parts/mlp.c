/* B sequences, T positions, F inner size on this rank. */
#include "model/parts/mlp.h"

/* Large enough to amortize reading the weights, and adding to their gradients, once per part. */
enum { PART_ROWS = 4096 };

static int64_t part_rows(Shape shape) {
    return shape.mlp_rows ? shape.mlp_rows : PART_ROWS;
}

Status describe_mlp(const Block *block, ParamList *list) {
    const ModelConfig *c = block->config;
    if (moe_in(block)) return describe_moe(block, list);
    bool bias = c->biases & BIAS_MLP;
    int dim = c->gated; /* the dim that is split: 1 of (2,F,C) */
    TRY(describe_layer_matrix(block, list,
                              (LayerMatrix){.id = UP_W,
                                            .name = "mlp.up",
                                            .stack = c->gated ? 2 : 0,
                                            .out = c->inner,
                                            .in = c->hidden,
                                            .split = dim,
                                            .bias_split = dim,
                                            .bias = bias}));
    return describe_layer_matrix(block, list,
                                 (LayerMatrix){.id = DOWN_W,
                                               .name = "mlp.down",
                                               .out = c->hidden,
                                               .in = c->inner,
                                               .split = 1,
                                               .bias_split = -1,
                                               .residual = true,
                                               .bias = bias});
}

bool mlp_in_parts(const Block *block, Shape shape) {
    bool kept = shape.train && shape.recompute != RECOMPUTE_BLOCK;
    bool masked = shape.train && block->config->lora.dropout > 0; /* masks are those of all rows */
    return shape.B * shape.T > part_rows(shape) && !kept && !masked && !shape.whole_blocks &&
           !layer_in_fp8(block, shape) && !moe_in(block);
}

Tensor mlp_act(const Block *block, Shape shape) {
    int64_t F = block->config->inner / shape.tp;
    if (mlp_in_parts(block, shape)) return tensor_3d(NULL, shape.dtype, 1, part_rows(shape), F);
    return tensor_3d(NULL, shape.dtype, shape.B, shape.T, F);
}

Tensor mlp_dpre(const Block *block, Shape shape) {
    if (moe_in(block)) return tensor_3d(NULL, shape.dtype, 1, 1, moe_pre_count(block, shape));
    Tensor inner = mlp_act(block, shape);
    if (block->config->gated) inner.dim[2] *= 2;
    return inner;
}

bool mlp_restores(const Block *block, Shape shape) {
    return block->config->gated && (moe_in(block) || !layer_in_fp8(block, shape));
}

MlpSaved mlp_saved(const Block *block, Shape shape, bool keep, Bump *saved, Bump *cheap) {
    Tensor inner = mlp_act(block, shape);
    MlpSaved s = {0};
    s.pre = tensor_take(saved, mlp_dpre(block, shape));
    if (moe_in(block)) {
        s.moe = moe_saved(block, shape, s.pre, saved, cheap);
        return s;
    }
    if (!layer_in_fp8(block, shape) || block->config->gated) s.act = tensor_take(cheap, inner);
    if (keep) {
        s.into_up = linear_keep(saved, shape.B * shape.T, block->config->hidden);
        s.into_down = linear_keep(saved, shape.B * shape.T, inner.dim[2]);
    }
    return s;
}

double mlp_flops(const Block *block) {
    const ModelConfig *c = block->config;
    return moe_in(block) ? moe_flops(c) : (c->gated ? 6 : 4) * (double)c->hidden * (double)c->inner;
}

static LinearInput input_of_down(const Block *block, const MlpSaved *s) {
    LinearInput in = {.x = s->act, .cut = true, .matmul = FP8_DOWN, .quantized = s->into_down};
    if (block->config->gated) return in;
    in.pre = s->pre;
    in.act = block->config->act;
    return in;
}

/* The first matmul and, unless backward restores its result or fp8 computes it with the next one, the
 * activation. */
static Status run_up(const Block *block, Pass *pass, const MlpSaved *s, Tensor x) {
    Linear up = linear_of(block, pass->param, UP_W);
    LinearInput in = {.x = x, .matmul = FP8_UP, .quantized = s->into_up};
    if (block->config->gated || layer_in_fp8(block, pass->shape))
        return linear_run(block, pass, s->pre, in, up);
    Tensor pre = pass->shape.train ? s->pre : TENSOR_NONE; /* only backward needs it */
    return linear_run_act(block, pass, s->act, pre, in, up, block->config->act);
}

static Status run_part(const Block *block, Pass *pass, const MlpSaved *s, Tensor y, Tensor x) {
    TRY(run_up(block, pass, s, x));
    if (block->config->gated) TRY(glu_forward(pass->exec, s->act, s->pre, block->config->act));
    return linear_run(block, pass, y, input_of_down(block, s), row_parallel(block, pass, DOWN_W));
}

static Tensor part_of(Tensor t, int64_t first, int64_t rows) {
    return t.data ? tensor_slice(tensor_matrix(t), first, rows) : t;
}

/* Steps through the parts of `rows` rows: *part has memory for those from *at on. */
static bool next_part(const MlpSaved *s, int64_t rows, MlpSaved *part, int64_t *at) {
    int64_t each = tensor_rows(s->pre), left = rows - *at, count = left < each ? left : each;
    if (left <= 0) return false;
    *part = *s;
    part->pre = part_of(s->pre, 0, count);
    part->act = part_of(s->act, 0, count);
    part->adds = *at > 0;
    return true;
}

Status mlp_run(const Block *block, Pass *pass, const MlpSaved *s, Tensor y, Tensor x) {
    MlpSaved part;
    if (moe_in(block)) return moe_run(block, pass, &s->moe, y, x);
    for (int64_t at = 0; next_part(s, tensor_rows(x), &part, &at); at += tensor_rows(part.pre)) {
        int64_t count = tensor_rows(part.pre);
        TRY(run_part(block, pass, &part, part_of(y, at, count), part_of(x, at, count)));
    }
    return OK;
}

Status mlp_rerun(const Block *block, Pass *pass, const MlpSaved *s, Tensor y, Tensor x) {
    if (mlp_in_parts(block, pass->shape)) return OK;
    if (moe_in(block)) return moe_rerun(block, pass, &s->moe, x);
    /* In fp8 the second matmul leaves its input for backward. */
    return layer_in_fp8(block, pass->shape) ? mlp_run(block, pass, s, y, x) : run_up(block, pass, s, x);
}

static LinearFusion fused_up(const Block *block, Norm norm) {
    LinearFusion fusion = fused_norm(block, norm);
    fusion.gated = block->config->gated;
    return fusion;
}

bool mlp_fuses(const Block *block, const Pass *pass, const MlpSaved *s, Tensor y, Tensor x, Norm norm,
               Tensor res) {
    return linear_fused_supports(pass->exec, s->act, x, linear_of(block, pass->param, UP_W).weight,
                                 fused_up(block, norm)) &&
           linear_fused_supports(pass->exec, y, s->act, linear_of(block, pass->param, DOWN_W).weight,
                                 (LinearFusion){.res = res});
}

Status mlp_run_fused(const Block *block, Pass *pass, const MlpSaved *s, Tensor y, Tensor x, Norm norm,
                     Tensor res) {
    Linear up = linear_of(block, pass->param, UP_W), down = linear_of(block, pass->param, DOWN_W);
    TRY(linear_fused_forward(pass->exec, s->act, x, up.weight, up.bias, block->config->act,
                             fused_up(block, norm)));
    return linear_fused_forward(pass->exec, y, s->act, down.weight, down.bias, ACT_NONE,
                                (LinearFusion){.res = res});
}

Status mlp_recompute(const Block *block, Pass *pass, const MlpSaved *s) {
    if (mlp_restores(block, pass->shape)) return OK;
    if (block->config->gated) return glu_forward(pass->exec, s->act, s->pre, block->config->act);
    return s->act.data ? act_forward(pass->exec, s->act, s->pre, block->config->act) : OK;
}

Fp8Gradient mlp_gradient(const Block *block, Shape shape, Bump *scratch) {
    int64_t rows = shape.B * shape.T, inner = block->config->inner / shape.tp;
    Fp8Gradient g = {0};
    if (!layer_in_fp8(block, shape) || !shape.train || block->config->gated) return g;
    if (inner <= FP8_AMAX_MAX_COLS) g.amax = tensor_take(scratch, tensor_1d(NULL, DT_F32, FP8_AMAX_PARTS));
    if (shape.fp8_delayed) {
        g.plain = tensor_take(scratch, tensor_2d(NULL, DT_E5M2, rows, inner));
        g.transposed = tensor_take(scratch, tensor_2d(NULL, DT_E5M2, inner, rows));
    }
    return g;
}

/* What the backward of down leaves, in the memory of `g`: with exact scaling an amax, with delayed scaling
 * the quantized gradient, unless a deferred matmul will quantize it again. */
static Fp8Gradient gradient_of(const Block *block, const Pass *pass, Fp8Gradient g) {
    Fp8Gradient amax = {.amax = g.amax};
    if (!pass->fp8.scale.data) return amax;
    if (pass->deferred.data || !g.plain.data) return (Fp8Gradient){0};
    g.amax = TENSOR_NONE;
    g.scale = linear_scale(block, pass, block->index, FP8_UP, FP8_GRADIENT);
    return g;
}

/* Whether the backward of down, which produces dpre, also sums it for the bias gradient of up. */
static bool down_sums(const Block *block, const Pass *pass, Fp8Gradient left) {
    return left.amax.data || left.plain.data || (!layer_in_fp8(block, pass->shape) && !block->config->gated);
}

/* Gradients of a matmul, as grads_now. */
static Linear part_grads(const Block *block, const Pass *pass, const MlpSaved *s, LayerParam id) {
    Linear g = grads_now(block, pass, id);
    if (s->adds) g.unwritten = false;
    return g;
}

/* The weight gradient of down follows that of the activation, which restores its input. */
static Status back_restoring(const Block *block, Pass *pass, const MlpSaved *s, Tensor dpre, Tensor dact,
                             Tensor dy) {
    Linear p = linear_of(block, pass->param, DOWN_W), g = part_grads(block, pass, s, DOWN_W);
    LinearInput in = input_of_down(block, s);
    TRY(linear_back(block, pass, dact, (Linear){0}, dy, p, in));
    TRY(glu_backward(pass->exec, dpre, linear_reads_input(block, g) ? s->act : TENSOR_NONE, dact, s->pre,
                     block->config->act));
    return linear_back(block, pass, TENSOR_NONE, g, dy, p, in);
}

Status mlp_back(const Block *block, Pass *pass, const MlpSaved *s, Tensor dpre, Tensor dact,
                Fp8Gradient gradient, Tensor dy, Dropout dropout) {
    if (moe_in(block)) return moe_back(block, pass, &s->moe, dpre, dy);
    LinearInput in = input_of_down(block, s);
    in.next = gradient_of(block, pass, gradient);
    in.dropout = dropout;
    if (mlp_restores(block, pass->shape)) return back_restoring(block, pass, s, dpre, dact, dy);
    if (block->config->gated) {
        TRY(linear_back(block, pass, dact, part_grads(block, pass, s, DOWN_W), dy,
                        linear_of(block, pass->param, DOWN_W), in));
        return glu_backward(pass->exec, dpre, TENSOR_NONE, dact, s->pre, block->config->act);
    }
    Tensor bias = grads_now(block, pass, UP_W).bias;
    if (layer_in_fp8(block, pass->shape))
        in.next.sums = down_sums(block, pass, in.next) ? bias : TENSOR_NONE;
    else
        in.dx_sums = bias;
    return linear_back(block, pass, dpre, part_grads(block, pass, s, DOWN_W), dy,
                       linear_of(block, pass->param, DOWN_W), in);
}

Status mlp_back_input(const Block *block, Pass *pass, const MlpSaved *s, Tensor dx, bool add, Tensor dpre,
                      Fp8Gradient gradient, Tensor x) {
    if (moe_in(block)) return moe_back_input(block, pass, &s->moe, dx, add, dpre, x);
    Linear g = part_grads(block, pass, s, UP_W);
    Fp8Gradient known = gradient_of(block, pass, gradient);
    if (down_sums(block, pass, known)) g.bias = TENSOR_NONE;
    return linear_back(
        block, pass, dx, g, dpre, linear_of(block, pass->param, UP_W),
        (LinearInput){.x = x, .add = add, .matmul = FP8_UP, .quantized = s->into_up, .known = known});
}

Status mlp_back_parts(const Block *block, Pass *pass, const MlpSaved *s, Tensor dx, bool add, Tensor dpre,
                      Tensor dact, Tensor dy, Tensor x) {
    MlpSaved part;
    Fp8Gradient none = {0};
    for (int64_t at = 0; next_part(s, tensor_rows(dy), &part, &at); at += tensor_rows(part.pre)) {
        int64_t count = tensor_rows(part.pre);
        Tensor gradient = part_of(dpre, 0, count), input = part_of(x, at, count);
        TRY(run_up(block, pass, &part, input));
        TRY(mlp_back(block, pass, &part, gradient, part_of(dact, 0, count), none, part_of(dy, at, count),
                     (Dropout){0}));
        TRY(mlp_back_input(block, pass, &part, part_of(dx, at, count), add, gradient, none, input));
    }
    return OK;
}

Status mlp_weight_down(const Block *block, Pass *pass, const MlpSaved *s, Tensor dy) {
    if (moe_in(block)) return moe_weight_down(block, pass, &s->moe, dy);
    if (mlp_restores(block, pass->shape)) TRY(glu_forward(pass->exec, s->act, s->pre, block->config->act));
    return linear_back(block, pass, TENSOR_NONE, linear_grads(block, pass, DOWN_W), dy,
                       linear_of(block, pass->param, DOWN_W), input_of_down(block, s));
}

Status mlp_weight_up(const Block *block, Pass *pass, const MlpSaved *s, Tensor dpre, Tensor x) {
    if (moe_in(block)) return moe_weight_up(block, pass, &s->moe, dpre, x);
    return linear_back(block, pass, TENSOR_NONE, linear_grads(block, pass, UP_W), dpre,
                       linear_of(block, pass->param, UP_W),
                       (LinearInput){.x = x, .matmul = FP8_UP, .quantized = s->into_up});
}
