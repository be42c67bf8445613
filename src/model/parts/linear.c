#include "model/parts/linear.h"

#include "model/parts/attention.h"
#include "model/parts/common.h"
#include "model/parts/fake_quant.h"
#include "model/parts/lora.h"

Linear linear_of(const Block *block, const Tensor *views, int id) {
    Tensor weight = block_param(block, views, id), bias = block_param(block, views, id + 1);
    /* A stack of matrices, such as (3,A,C), is one matrix here. */
    if (weight.ndim == 3) weight = tensor_matrix(weight);
    if (bias.data) bias = as_vector(bias);
    return (Linear){.weight = weight, .bias = bias, .id = id};
}

Linear linear_grads(const Block *block, const Pass *pass, int id) {
    Linear g = linear_of(block, pass->grad, id);
    g.unwritten = grad_is_unwritten(block, pass, id);
    return g;
}

bool layer_in_fp8(const Block *block, Shape shape) {
    const ModelConfig *c = block->config;
    int64_t rows = shape.B * shape.T, width = config_attention(c) / shape.tp, inner = c->inner / shape.tp;
    return shape.fp8 && linear_fp8_supports(rows, attention_rows(c, shape.tp), c->hidden) &&
           linear_fp8_supports(rows, c->hidden, width) &&
           (config_sparse(c, block->index) || linear_fp8_supports(rows, c->hidden, inner));
}

static Tensor fp8_slot(Tensor slots, int64_t at) {
    return slots.data ? tensor_1d(tensor_f32(slots) + at, DT_F32, 1) : slots;
}

Fp8Scale linear_scale(const Block *block, const Pass *pass, int layer, Fp8Matmul matmul, Fp8Operand operand) {
    int64_t row = layer < 0 ? block->config->layers : layer;
    int64_t at = (row * FP8_MATMULS + matmul) * FP8_OPERANDS + operand;
    return (Fp8Scale){.scale = fp8_slot(pass->fp8.scale, at), .amax = fp8_slot(pass->fp8.amax, at)};
}

Fp8Scales linear_scales(const Block *block, const Pass *pass, int layer, Fp8Matmul matmul) {
    return (Fp8Scales){.input = linear_scale(block, pass, layer, matmul, FP8_INPUT),
                       .weight = linear_scale(block, pass, layer, matmul, FP8_WEIGHT),
                       .gradient = linear_scale(block, pass, layer, matmul, FP8_GRADIENT)};
}

Fp8Input linear_keep(Bump *bump, int64_t rows, int64_t width) {
    Fp8Input input = {0};
    input.transposed = tensor_take(bump, tensor_2d(NULL, DT_E4M3, width, rows));
    input.scale = tensor_take(bump, tensor_1d(NULL, DT_F32, 1));
    return input;
}

bool linear_takes_fp8(const Block *block, const Pass *pass, Fp8Input *quantized, void *plain) {
    Tensor t = quantized->transposed;
    bool rms = block->config->norm == NORM_RMS;
    if (!t.data || !pass->fp8.scale.data || !norm_fp8_supports(t.dim[1], t.dim[0], rms)) return false;
    quantized->plain = tensor_2d(plain, DT_E4M3, t.dim[1], t.dim[0]);
    return true;
}

void linear_layout(const Block *block, Shape shape, Bump *scratch) {
    fake_quant_layout(block, shape, scratch);
    lora_layout(block, shape, scratch);
}

Status linear_run_act(const Block *block, Pass *pass, Tensor act, Tensor pre, LinearInput in, Linear p,
                      Act kind) {
    TRY(fake_quant_input(block, pass, in.cut, &in.x));
    TRY(fake_quant_weights(block, pass, in.cut, &p.weight));
    if (!lora_has(block, p.id)) return linear_forward(pass->exec, act, pre, in.x, p.weight, p.bias, kind);
    if (!pre.data) pre = act;
    TRY(linear_forward(pass->exec, pre, TENSOR_NONE, in.x, p.weight, p.bias, ACT_NONE));
    TRY(lora_forward(block, pass, p.id, in.cut, pre, in.x));
    return kind == ACT_NONE ? OK : act_forward(pass->exec, act, pre, kind);
}

Status linear_run(const Block *block, Pass *pass, Tensor y, LinearInput in, Linear p) {
    if (layer_in_fp8(block, pass->shape))
        return linear_fp8_forward(pass->exec, y, in.quantized, in.act ? in.pre : in.x, in.act, p.weight,
                                  (Fp8Weight){0}, p.bias,
                                  linear_scales(block, pass, block->index, in.matmul));
    return linear_run_act(block, pass, y, TENSOR_NONE, in, p, ACT_NONE);
}

bool linear_reads_input(const Block *block, Linear g) {
    return g.weight.data || (g.id && lora_has(block, g.id));
}

bool linear_drops(const Block *block, const Pass *pass) {
    return layer_in_fp8(block, pass->shape) && pass->fp8.scale.data && !pass->shape.sequence &&
           !pass->deferred.data && !block->frozen;
}

Status linear_back(const Block *block, Pass *pass, Tensor dx, Linear g, Tensor dy, Linear p, LinearInput in) {
    bool fp8 = layer_in_fp8(block, pass->shape);
    if (g.weight.data && !fp8) TRY(fake_quant_input(block, pass, in.cut, &in.x));
    if (!g.weight.data || !fp8)
        TRY(linear_backward_weight(pass->exec, g.weight, g.bias, dy, in.x, !g.unwritten));
    if (!g.weight.data) g.bias = TENSOR_NONE;
    if (fp8)
        return linear_fp8_backward(pass->exec, dx, in.next, g.weight, g.bias, dy, in.known, in.dropout,
                                   p.weight, (Fp8Weight){0}, in.quantized, in.act ? in.pre : in.x, in.act,
                                   in.add, !g.unwritten, linear_scales(block, pass, block->index, in.matmul));
    if (lora_has(block, p.id)) {
        TRY(lora_backward(block, pass, p.id, g.id, dx, dy, &in));
        in.add = true;
    }
    if (!dx.data) return OK;
    TRY(fake_quant_weights(block, pass, in.cut, &p.weight));
    return linear_backward_input(pass->exec, dx, in.dx_sums, dy, p.weight, in.act, in.pre, in.add);
}
