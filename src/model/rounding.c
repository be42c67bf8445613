#include "model/rounding.h"

#include "model/common.h"

typedef struct Arena {
    Tensor weights, input; /* as large as the largest of a layer */
    Tensor largest;        /* of the rows of either */
} Arena;

static Arena take(const Block *block, Shape shape, Bump *bump) {
    const ModelConfig *c = block->config;
    int64_t C = c->hidden, width = config_attention(c) / shape.tp, inner = c->inner / shape.tp,
            rows = shape.B * shape.T;
    int64_t most = 3 * width > inner ? 3 * width : inner, widest = C > inner ? C : inner;
    int64_t numbers = most > C ? most : C;
    Arena room = {0};
    room.input = tensor_take(bump, tensor_1d(NULL, shape.dtype, rows * widest));
    room.weights = tensor_take(bump, tensor_1d(NULL, shape.dtype, most * C));
    room.largest = tensor_take(bump, tensor_1d(NULL, DT_F32, rows > numbers ? rows : numbers));
    return room;
}

void rounding_layout(const Block *block, Shape shape, Bump *scratch) {
    if (shape.round) take(block, shape, scratch);
}

static Status round_rows(Pass *pass, Arena room, bool cut, RoundTo to, void *data, Tensor *tensor) {
    Tensor largest = tensor_1d(room.largest.data, DT_F32, tensor_rows(*tensor)), from = *tensor;
    tensor->data = data;
    TRY(row_largest(pass->exec, largest, from));
    if (cut) TRY(all_reduce(pass->tp, pass->exec->stream, largest, REDUCE_MAX, NULL));
    if (to == ROUND_INT4) return round_int4(pass->exec, *tensor, from, largest);
    return round_int8(pass->exec, *tensor, from, largest);
}

Status rounding_weights(const Block *block, Pass *pass, bool cut, Tensor *weights) {
    if (!pass->shape.round) return OK;
    Bump bump = bump_over(pass->scratch);
    Arena room = take(block, pass->shape, &bump);
    return round_rows(pass, room, cut, pass->shape.round, room.weights.data, weights);
}

Status rounding_input(const Block *block, Pass *pass, bool cut, Tensor *input) {
    if (!pass->shape.round) return OK;
    Bump bump = bump_over(pass->scratch);
    Arena room = take(block, pass->shape, &bump);
    return round_rows(pass, room, cut, ROUND_INT8, room.input.data, input);
}
