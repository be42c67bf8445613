#include "model/parts/fake_quant.h"

#include "model/parts/attention.h"
#include "model/parts/common.h"

const char *const fake_quant_names[] = {"none", "int8", "int4", NULL};

typedef struct Workspace {
    Tensor weights, input; /* sized for the largest matmul of a layer */
    Tensor largest;        /* row-wise absolute maximum */
} Workspace;

/* What the matmuls of a layer need: elements, and rows of either. */
typedef struct Need {
    int64_t weights, input, rows;
} Need;

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static void widen(Need *need, int64_t rows, int64_t outputs, int64_t inputs) {
    need->weights = most(need->weights, outputs * inputs);
    need->input = most(need->input, rows * inputs);
    need->rows = most(need->rows, most(rows, outputs));
}

/* The matmuls of an MLP of inner size F, or of all of `experts`. */
static void widen_mlp(Need *need, const ModelConfig *c, int64_t rows, int64_t experts, int64_t F) {
    widen(need, rows, experts * (c->gated ? 2 * F : F), c->hidden);
    widen(need, rows, experts * c->hidden, F);
}

static Workspace take(const Block *block, Shape shape, Bump *bump) {
    const ModelConfig *c = block->config;
    int64_t rows = shape.B * shape.T, tp = shape.tp;
    Need need = {0};
    widen(&need, rows, attention_rows(c, tp), c->hidden);
    widen(&need, rows, c->hidden, config_attention(c) / tp);
    if (config_sparse(c, block->index)) {
        int64_t ep = shape.ep > 1 ? shape.ep : 1; /* above 1, rows have a place of their own */
        widen_mlp(&need, c, ep > 1 ? 0 : rows * c->top_k, c->experts / ep, c->expert_inner / tp);
        widen_mlp(&need, c, rows, 1, c->shared_inner / tp);
    } else {
        widen_mlp(&need, c, rows, 1, c->inner / tp);
    }
    Workspace w = {0};
    w.input = tensor_take(bump, tensor_1d(NULL, shape.dtype, need.input));
    w.weights = tensor_take(bump, tensor_1d(NULL, shape.dtype, need.weights));
    w.largest = tensor_take(bump, tensor_1d(NULL, DT_F32, need.rows));
    return w;
}

void fake_quant_layout(const Block *block, Shape shape, Bump *scratch) {
    if (shape.fake_quant) take(block, shape, scratch);
}

static Status quantize_rows(Pass *pass, Workspace w, bool split, FakeQuant to, void *data, Tensor *tensor) {
    Tensor largest = tensor_1d(w.largest.data, DT_F32, tensor_rows(*tensor)), from = *tensor;
    tensor->data = data;
    TRY(row_largest(pass->exec, largest, from));
    if (split) TRY(all_reduce(pass->tp, pass->exec->stream, largest, REDUCE_MAX, NULL));
    if (to == FAKE_QUANT_INT4) return round_int4(pass->exec, *tensor, from, largest);
    return round_int8(pass->exec, *tensor, from, largest);
}

Status fake_quant_weights(const Block *block, Pass *pass, bool split, Tensor *weights) {
    if (!pass->shape.fake_quant) return OK;
    Bump bump = bump_over(pass->scratch);
    Workspace w = take(block, pass->shape, &bump);
    return quantize_rows(pass, w, split, pass->shape.fake_quant, w.weights.data, weights);
}

Status fake_quant_rows(Pass *pass, bool split, void *rows, Tensor largest, Tensor *input) {
    if (!pass->shape.fake_quant) return OK;
    return quantize_rows(pass, (Workspace){.largest = largest}, split, FAKE_QUANT_INT8, rows, input);
}

Status fake_quant_input(const Block *block, Pass *pass, bool split, Tensor *input) {
    if (!pass->shape.fake_quant) return OK;
    Bump bump = bump_over(pass->scratch);
    Workspace w = take(block, pass->shape, &bump);
    return quantize_rows(pass, w, split, FAKE_QUANT_INT8, w.input.data, input);
}
