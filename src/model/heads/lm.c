/* Next token, the output head of causal models: final norm, matmul with the token embedding (or a separate
 * output matrix), next-token loss.
 *
 * Processes rows in chunks of R, so that only (R,V) logits exist at a time, never (B*T,V). In training each
 * chunk's gradients are computed while its logits are available; dx (B,T,C) is saved for backward to pass on.
 *
 * In fp8 (Shape.fp8_head) the gradient of the logits is stored beside them, quantized, and transposed. Its
 * magnitudes are at most the factor of the loss, from which its scale follows.
 */
#include "model/head.h"
#include "model/parts/blocks.h"
#include "model/parts/common.h"
#include "model/parts/linear.h"
#include "model/parts/norm.h"
#include "model/parts/vocab.h"
#include "parallel/tp.h"

enum { NORM_W, NORM_B, OUTPUT_W };

typedef struct OutputScratch {
    NormStats norm;
    Tensor h, dh;         /* (R,C) */
    Tensor logits;        /* (R,V) */
    Tensor stats, losses; /* (R,3) (R) */
    Tensor parts;         /* (tp,R,3) */
    VocabLoss pieces;     /* instead of logits */
    Fp8Input into_logits; /* fp8: the quantized h */
    Fp8Weight weight;     /* fp8: the quantized output matrix */
    Fp8Gradient gradient; /* fp8: of the logits: its scale and, with the whole vocabulary, itself */
    bool unwritten;       /* the gradient of the output matrix is stored, not added */
} OutputScratch;

static Status describe_output(const Block *block, ParamList *ret_params) {
    const ModelConfig *c = block->config;
    TRY(describe_norm(c, ret_params, NORM_W, c->hidden, false, "head.norm"));
    if (!config_has(c, OUTPUT_LM)) return OK;
    TRY(describe_matrix(ret_params, OUTPUT_W, c->init, c->init_std, 0, c->vocab, c->hidden, 0, "%s",
                        c->tied ? "embed.token" : "head.output.weight"));
    describe_vocab(ret_params);
    ret_params->desc[ret_params->count - 1].tied = c->tied;
    ret_params->desc[ret_params->count - 1].overwritten = true;
    return OK;
}

static bool head_in_fp8(Shape shape) {
    return shape.fp8_head && !shape.pieces && shape.logits == DT_BF16;
}

/* Scratch for a loss over `rows` rows. */
static OutputScratch head_scratch(const Block *block, Shape shape, int64_t rows, Bump *bump) {
    const ModelConfig *c = block->config;
    int64_t V = vocab_local(c, shape.tp), R = loss_chunk_rows(shape, V, rows);
    bool fp8 = head_in_fp8(shape);
    OutputScratch w = {0};
    w.norm = norm_stats(c, R, bump);
    w.h = tensor_take(bump, tensor_2d(NULL, shape.dtype, R, c->hidden));
    w.dh = tensor_take(bump, tensor_2d(NULL, shape.dtype, R, c->hidden));
    w.logits = tensor_take(bump, tensor_2d(NULL, shape.logits, shape.pieces ? 0 : R, V));
    w.pieces = vocab_loss_scratch(block, shape, R, bump);
    w.stats = tensor_take(bump, tensor_2d(NULL, DT_F32, R, 3));
    w.losses = tensor_take(bump, tensor_1d(NULL, DT_F32, R));
    w.parts = tensor_take(bump, tensor_3d(NULL, DT_F32, shape.tp > 1 ? shape.tp : 0, R, 3));
    if (!fp8 || !shape.train) return w;
    w.into_logits = linear_keep(bump, R, c->hidden);
    w.weight.plain = tensor_take(bump, tensor_2d(NULL, DT_E4M3, V, c->hidden));
    w.weight.transposed = tensor_take(bump, tensor_2d(NULL, DT_E4M3, c->hidden, V));
    w.weight.scale = tensor_take(bump, tensor_1d(NULL, DT_F32, 1));
    w.gradient.scale.scale = tensor_take(bump, tensor_1d(NULL, DT_F32, 1));
    if (shape.tp == 1) w.gradient.plain = tensor_take(bump, tensor_2d(NULL, DT_E5M2, R, V));
    return w;
}

static void measure_output(const Block *block, Shape shape, size_t *ret_saved, size_t *ret_scratch) {
    Bump saved = {0}, scratch = {0};
    head_saved(block, shape, &saved);
    head_rows_buffer(block, shape, &scratch);
    head_scratch(block, shape, shape.B * shape.T, &scratch);
    *ret_saved = saved.used;
    *ret_scratch = scratch.used;
}

/* token_loss in fp8. */
static Status token_loss_fp8(const Block *block, Pass *pass, const OutputScratch *w, Tensor labels,
                             Tensor output, VocabPart part) {
    Exec *e = pass->exec;
    float scale = pass->loss_grad[LOSS_TOKEN];
    Fp8Scales scales = linear_scales(block, pass, -1, FP8_LOGITS);
    Fp8Gradient known = {0};
    scales.gradient = w->gradient.scale;
    TRY(linear_fp8_forward(e, w->logits, w->into_logits, w->h, ACT_NONE, output, w->weight, TENSOR_NONE,
                           scales));
    if (w->gradient.plain.data) {
        known = w->gradient;
        TRY(xent_loss_fp8(e, w->losses, w->stats, w->logits, labels, part, scale, known));
    } else {
        TRY(tp_xent_loss(pass->tp, e, w->losses, w->stats, w->parts, w->logits, labels, part, scale, true));
    }
    TRY(head_sum(pass, LOSS_TOKEN, w->losses, w->stats, labels, part.valid));
    return linear_fp8_backward(e, w->dh, (Fp8Gradient){0}, block_param(block, pass->grad, OUTPUT_W),
                               TENSOR_NONE, w->logits, known, (Dropout){0}, output, w->weight, w->into_logits,
                               w->h, ACT_NONE, false, !w->unwritten, scales);
}

static bool chunk_in_fp8(const Block *block, const Pass *pass, const OutputScratch *w) {
    if (!w->gradient.scale.scale.data) return false;
    Tensor output = block_param(block, pass->param, OUTPUT_W);
    return linear_fp8_supports(w->h.dim[0], output.dim[0], output.dim[1]);
}

/* The token loss of the rows w->h and, in training, the gradients of the output matrix and of w->h. */
static Status token_loss(const Block *block, Pass *pass, const OutputScratch *w, Tensor labels) {
    Exec *e = pass->exec;
    if (pass->pieces) {
        VocabLossArgs args = {.dh = w->dh,
                              .h = w->h,
                              .labels = labels,
                              .stats = w->stats,
                              .losses = w->losses,
                              .tp_parts = w->parts};
        return vocab_loss(block, pass, &w->pieces, &args);
    }
    Tensor output = block_param(block, pass->param, OUTPUT_W);
    VocabPart part = local_vocab(block, pass, output.dim[0], 0);
    float scale = pass->loss_grad[LOSS_TOKEN];
    bool train = pass->shape.train;
    if (chunk_in_fp8(block, pass, w)) return token_loss_fp8(block, pass, w, labels, output, part);
    TRY(linear_forward(e, w->logits, TENSOR_NONE, w->h, output, TENSOR_NONE, ACT_NONE));
    TRY(tp_xent_loss(pass->tp, e, w->losses, w->stats, w->parts, w->logits, labels, part, scale, train));
    TRY(head_sum(pass, LOSS_TOKEN, w->losses, w->stats, labels, part.valid));
    if (!train) return OK;
    TRY(linear_backward_weight(e, block_param(block, pass->grad, OUTPUT_W), TENSOR_NONE, w->logits, w->h,
                               !w->unwritten));
    return linear_backward_input(e, w->dh, TENSOR_NONE, w->logits, output, ACT_NONE, TENSOR_NONE, false);
}

/* Loss and, in training, gradients of one chunk. The tensors of w have as many rows as the chunk. */
static Status chunk_head(const Block *block, Pass *pass, OutputScratch *w, Tensor dx, Tensor x,
                         Tensor labels) {
    Exec *e = pass->exec;
    Norm norm = norm_of(block, pass->param, NORM_W);
    if (chunk_in_fp8(block, pass, w) && linear_takes_fp8(block, pass, &w->into_logits, w->h.data))
        TRY(norm_forward_fp8(e, block->config, TENSOR_NONE, TENSOR_NONE, w->into_logits, w->norm, x,
                             TENSOR_NONE, norm, (Dropout){0},
                             linear_scale(block, pass, -1, FP8_LOGITS, FP8_INPUT)));
    else
        TRY(norm_forward(e, block->config, w->h, w->norm, x, norm));
    TRY(token_loss(block, pass, w, labels));
    if (!pass->shape.train) return OK;
    TRY(tp_collect(pass->tp, e, false, w->dh, w->dh));
    return norm_backward(e, block->config, dx, norm_of(block, pass->grad, NORM_W), w->dh, x, w->norm, norm,
                         TENSOR_NONE, (NormSums){0});
}

static OutputScratch cut_scratch(const OutputScratch *w, int64_t rows) {
    return (OutputScratch){
        .norm = norm_stats_slice(w->norm, rows),
        .h = tensor_slice(w->h, 0, rows),
        .dh = tensor_slice(w->dh, 0, rows),
        .logits = w->logits.dim[0] ? tensor_slice(w->logits, 0, rows) : w->logits,
        .pieces = w->pieces,
        .stats = tensor_slice(w->stats, 0, rows),
        .losses = tensor_slice(w->losses, 0, rows),
        .parts = tensor_3d(w->parts.data, DT_F32, w->parts.dim[0], rows, 3),
        .into_logits = {.transposed = tensor_2d(w->into_logits.transposed.data, DT_E4M3, w->h.dim[1], rows),
                        .scale = w->into_logits.scale},
        .weight = w->weight,
        .gradient = {.scale = w->gradient.scale,
                     .plain = tensor_2d(w->gradient.plain.data, DT_E5M2, rows, w->logits.dim[1])},
    };
}

static Status forward_output(const Block *block, Pass *pass, Tensor y, Tensor x) {
    (void)y;
    if (!config_has(block->config, OUTPUT_LM)) return FAILED("the model has no language-modeling head");
    Bump saved = bump_over(pass->saved), scratch = bump_over(pass->scratch);
    Tensor dx = head_saved(block, pass->shape, &saved), rows;
    Tensor buffer = head_rows_buffer(block, pass->shape, &scratch);
    int64_t N = pass->shape.B * pass->shape.T, end = head_loop_rows(pass, N);
    OutputScratch w = head_scratch(block, pass->shape, end, &scratch);
    TRY(bump_check(&saved, "the head's activations"));
    TRY(bump_check(&scratch, "the head's scratch"));
    TRY(head_input(pass, buffer, x, &rows));
    if (w.gradient.scale.scale.data) {
        TRY(fp8_weight(pass->exec, w.weight, block_param(block, pass->param, OUTPUT_W),
                       linear_scale(block, pass, -1, FP8_LOGITS, FP8_WEIGHT)));
        TRY(fill(pass->exec, w.gradient.scale.scale, fp8_scale(pass->loss_grad[LOSS_TOKEN], DT_E5M2)));
    }
    int64_t R = w.h.dim[0];
    for (int64_t at = 0; at < end; at += R) {
        int64_t first = at < N ? at : N, count = N - first < R ? N - first : R;
        OutputScratch cut = cut_scratch(&w, count);
        cut.unwritten = at == 0 && grad_is_unwritten(block, pass, OUTPUT_W);
        Tensor dx_rows = dx.data ? tensor_slice(dx, first, count) : TENSOR_NONE;
        TRY(chunk_head(block, pass, &cut, dx_rows, tensor_slice(rows, first, count),
                       tensor_slice(pass->micro->labels, first, count)));
    }
    return OK;
}

/* h (M,C): the rows x after the last norm. */
static Status last_norm(const Block *block, Pass *pass, Tensor x, Tensor *ret_h) {
    Bump bump = bump_over(pass->scratch);
    int64_t M = tensor_rows(x);
    NormStats stats = norm_stats(block->config, M, &bump);
    *ret_h = tensor_take(&bump, tensor_2d(NULL, x.dtype, M, block->config->hidden));
    TRY(bump_check(&bump, "the head's scratch"));
    return norm_forward(pass->exec, block->config, *ret_h, stats, x, norm_of(block, pass->param, NORM_W));
}

static Status hidden_output(const Block *block, Pass *pass, Tensor out, Tensor x) {
    Tensor h;
    TRY(last_norm(block, pass, x, &h));
    return convert(pass->exec, out, h);
}

static Status logits_output(const Block *block, Pass *pass, HeadId which, Tensor out, Tensor x) {
    Tensor h;
    if (which != HEAD_LM || !config_has(block->config, OUTPUT_LM))
        return FAILED("the model has no %s head", head_name(which));
    TRY(last_norm(block, pass, x, &h));
    /* With one rank without vocabulary padding. */
    Tensor words = tensor_slice(block_param(block, pass->param, OUTPUT_W), 0, tensor_cols(out));
    return linear_forward(pass->exec, out, TENSOR_NONE, h, words, TENSOR_NONE, ACT_NONE);
}

static size_t logits_scratch_output(const Block *block, HeadId which, int64_t rows) {
    (void)which;
    return ((size_t)rows * ((size_t)block->config->hidden + 2)) * sizeof(float) + 3 * BUMP_ALIGN;
}

static double flops_output(const Block *block, int64_t T) {
    (void)T;
    const ModelConfig *c = block->config;
    double C = (double)c->hidden;
    return 30 * C + (config_has(c, OUTPUT_LM) ? 3 * 2 * (double)c->vocab * C : 0);
}

const BlockOps block_ops_lm_output = {
    .name = "lm-head",
    .kind = BLOCK_OUTPUT,
    .describe = describe_output,
    .measure = measure_output,
    .forward = forward_output,
    .backward = output_backward,
    .logits = logits_output,
    .hidden = hidden_output,
    .logits_scratch = logits_scratch_output,
    .flops = flops_output,
    .grads_in_forward = true,
};

static int64_t width(const ModelConfig *config) {
    return config->vocab;
}

const Head head_lm = {
    .traits = {.losses = 1 << LOSS_TOKEN, .vocab = true, .overwrites = true},
    .width = width,
};
