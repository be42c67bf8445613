#include "model/parts/fake_quant.h"

#include "model/parts/attention.h"
#include "model/parts/common.h"

const char *const fake_quant_names[] = {"none", "int8", "int4", NULL};

typedef struct Workspace {
    Tensor weights, input; /* sized for the largest matmul of a layer */
    Tensor largest;        /* row-wise absolute maximum */
} Workspace;

static Workspace take(const Block *block, Shape shape, Bump *bump) {
    const ModelConfig *c = block->config;
    int64_t C = c->hidden, width = config_attention(c) / shape.tp, inner = c->inner / shape.tp,
            rows = shape.B * shape.T;
    int64_t qkv = attention_rows(c, shape.tp), up = c->gated ? 2 * inner : inner;
    int64_t outputs = qkv > up ? qkv : up, inputs = C > inner ? C : inner;
    if (width > inputs) inputs = width;
    int64_t rows_max = outputs > C ? outputs : C;
    Workspace w = {0};
    w.input = tensor_take(bump, tensor_1d(NULL, shape.dtype, rows * inputs));
    w.weights = tensor_take(bump, tensor_1d(NULL, shape.dtype, outputs * C));
    w.largest = tensor_take(bump, tensor_1d(NULL, DT_F32, rows > rows_max ? rows : rows_max));
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

Status fake_quant_input(const Block *block, Pass *pass, bool split, Tensor *input) {
    if (!pass->shape.fake_quant) return OK;
    Bump bump = bump_over(pass->scratch);
    Workspace w = take(block, pass->shape, &bump);
    return quantize_rows(pass, w, split, FAKE_QUANT_INT8, w.input.data, input);
}
