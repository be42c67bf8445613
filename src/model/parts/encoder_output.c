/* The output block of encoders: any of the heads in src/model/heads/, in any combination.
 *
 * Like the head of causal models, gradients are computed in forward: all heads add to the saved dx (B*T,C),
 * which backward passes on. The pooler (tanh(dense(first token of each sequence))) belongs to the block,
 * since an encoder may have it without a head.
 */
#include "model/heads/heads.h"
#include "model/parts/blocks.h"

static bool has(const Block *block, HeadId id) {
    return block->config->outputs_mask & 1u << id;
}

static Status describe_outputs(const Block *block, ParamList *list) {
    const ModelConfig *c = block->config;
    if (c->pooler) TRY(describe_linear(block, list, POOLER_W, c->hidden, "head.pooler"));
    for (HeadId id = 0; id < HEAD_COUNT; id++)
        if (has(block, id)) TRY(head_at(id)->describe(block, id, list));
    return OK;
}

/* The heads run in sequence, so the largest scratch suffices. */
static void measure_outputs(const Block *block, Shape shape, size_t *ret_saved, size_t *ret_scratch) {
    Bump saved = {0}, rows = {0};
    head_saved(block, shape, &saved);
    head_rows_buffer(block, shape, &rows);
    size_t scratch = rows.used;
    for (HeadId id = 0; id < HEAD_COUNT; id++) {
        Bump own = rows;
        if (has(block, id)) head_at(id)->measure(block, id, shape, &own);
        if (own.used > scratch) scratch = own.used;
    }
    *ret_saved = saved.used;
    *ret_scratch = scratch;
}

static Status forward_outputs(const Block *block, Pass *pass, Tensor y, Tensor x) {
    (void)y;
    Bump saved = bump_over(pass->saved), scratch = bump_over(pass->scratch);
    Tensor dx = head_saved(block, pass->shape, &saved), rows;
    Tensor buffer = head_rows_buffer(block, pass->shape, &scratch);
    TRY(bump_check(&saved, "the heads' activations"));
    TRY(head_input(pass, buffer, x, &rows));
    if (dx.data) TRY(stream_zero(pass->exec->stream, dx.data, tensor_bytes(dx)));
    for (HeadId id = 0; id < HEAD_COUNT; id++)
        if (has(block, id)) TRY(head_at(id)->loss(block, pass, id, dx, rows));
    return OK;
}

static Status logits_outputs(const Block *block, Pass *pass, HeadId which, Tensor out, Tensor x) {
    if (!has(block, which)) return FAILED("the model has no %s head", head_name(which));
    return head_at(which)->logits(block, pass, which, out, tensor_matrix(x));
}

static size_t logits_scratch_outputs(const Block *block, HeadId which, int64_t rows) {
    Bump bump = {0};
    Shape shape = {.tp = 1, .dtype = DT_F32}; /* upper bound over all types */
    if (head_at(which)->logits_scratch) head_at(which)->logits_scratch(block, which, shape, rows, &bump);
    return bump.used;
}

static double flops_outputs(const Block *block, int64_t T) {
    (void)T;
    double flops = 30 * (double)block->config->hidden;
    for (HeadId id = 0; id < HEAD_COUNT; id++)
        if (has(block, id) && head_at(id)->flops) flops += head_at(id)->flops(block->config);
    return flops;
}

const BlockOps block_ops_encoder_output = {
    .name = "encoder-heads",
    .kind = BLOCK_OUTPUT,
    .describe = describe_outputs,
    .measure = measure_outputs,
    .forward = forward_outputs,
    .backward = output_backward,
    .logits = logits_outputs,
    .logits_scratch = logits_scratch_outputs,
    .flops = flops_outputs,
    .grads_in_forward = true,
};
