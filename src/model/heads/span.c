/* The span of an answer: a linear layer to 2 on every row, then a softmax over the positions of a sequence
 * for start and end. Ranks of context parallelism have T of these positions each, as tensor-parallel ranks
 * have parts of a vocabulary. */
#include "model/heads/heads.h"
#include "parallel/tp.h"

typedef struct SpanScratch {
    Tensor logits, dlogits; /* (B*T,2) */
    Tensor rows;            /* (2*B,T) */
    Tensor stats, losses;   /* (2*B,3) (2*B) */
    Tensor parts;           /* (cp,B,3) */
} SpanScratch;

static int64_t width(const ModelConfig *config) {
    (void)config;
    return 2;
}

static SpanScratch span_scratch(Shape shape, Bump *bump) {
    SpanScratch w;
    w.logits = tensor_take(bump, tensor_2d(NULL, DT_F32, shape.B * shape.T, 2));
    w.dlogits = tensor_take(bump, tensor_2d(NULL, DT_F32, shape.B * shape.T, 2));
    w.rows = tensor_take(bump, tensor_2d(NULL, DT_F32, 2 * shape.B, shape.T));
    w.stats = tensor_take(bump, tensor_2d(NULL, DT_F32, 2 * shape.B, 3));
    w.losses = tensor_take(bump, tensor_1d(NULL, DT_F32, 2 * shape.B));
    w.parts = tensor_take(bump, tensor_3d(NULL, DT_F32, shape.cp > 1 ? shape.cp : 0, shape.B, 3));
    return w;
}

static void measure(const Block *block, HeadId id, Shape shape, Bump *scratch) {
    (void)block;
    (void)id;
    span_scratch(shape, scratch);
}

static Status logits(const Block *block, Pass *pass, HeadId id, Tensor out, Tensor rows) {
    Linear p = linear_of(block, pass->param, HEAD_PARAM(id));
    return linear_forward(pass->exec, out, TENSOR_NONE, rows, p.weight, p.bias, ACT_NONE);
}

/* The loss of starts or ends. With parts of the sequences, every rank has it in the end; one counts it. */
static Status side_loss(Pass *pass, const SpanScratch *w, int side) {
    int64_t B = pass->shape.B;
    LossId loss = side ? LOSS_SPAN_END : LOSS_SPAN_START;
    Tensor rows = tensor_slice(w->rows, side * B, B), stats = tensor_slice(w->stats, side * B, B);
    Tensor losses = tensor_slice(w->losses, side * B, B);
    Tensor labels = as_vector(tensor_slice(pass->micro->span, side, 1));
    if (pass->shape.cp <= 1) return head_cross_entropy(pass, loss, rows, stats, losses, labels);
    VocabPart part = {.start = pass->at.first, .valid = context_length(pass->shape)};
    TRY(tp_xent_loss(pass->cp, pass->exec, losses, stats, w->parts, rows, labels, part, pass->loss_grad[loss],
                     pass->shape.train));
    return pass->cp->rank == 0 ? head_sum(pass, loss, losses, stats, labels, part.valid) : OK;
}

static Status loss(const Block *block, Pass *pass, HeadId id, Tensor dx, Tensor x) {
    Exec *e = pass->exec;
    Linear p = linear_of(block, pass->param, HEAD_PARAM(id)),
           g = linear_of(block, pass->grad, HEAD_PARAM(id));
    int64_t B = pass->shape.B;
    if (!pass->micro->span.data) return OK;
    Bump bump = head_scratch(block, pass);
    SpanScratch w = span_scratch(pass->shape, &bump);
    TRY(bump_check(&bump, "the span head's scratch"));
    TRY(logits(block, pass, id, w.logits, x));
    Tensor by_side = tensor_2d(w.rows.data, DT_F32, 2, B * pass->shape.T);
    TRY(transpose(e, by_side, w.logits));
    for (int side = 0; side < 2; side++) TRY(side_loss(pass, &w, side));
    if (!pass->shape.train) return OK;
    TRY(transpose(e, w.dlogits, by_side));
    TRY(linear_backward_weight(e, g.weight, g.bias, w.dlogits, x, true));
    return linear_backward_input(e, dx, TENSOR_NONE, w.dlogits, p.weight, ACT_NONE, TENSOR_NONE, true);
}

static double flops(const ModelConfig *config) {
    return 3 * 4 * (double)config->hidden;
}

const Head head_span = {
    .traits = {.losses = 1 << LOSS_SPAN_START | 1 << LOSS_SPAN_END},
    .width = width,
    .describe = linear_head_describe,
    .measure = measure,
    .loss = loss,
    .logits = logits,
    .flops = flops,
};
