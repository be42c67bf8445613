/* The output heads of encoders: masked tokens, next sentence, answer span, classification, in any
 * combination.
 *
 *   masked tokens   dense, activation, norm, matmul with the token embedding, bias; only on the
 *                   predicted rows (micro->picks), in chunks of R
 *   pooled          tanh(dense(first token of each sequence)), then for next sentence: linear to 2; for
 *                   classification: dropout, linear to L, then cross-entropy, or for regression and
 *                   multi-label classification a loss per output
 *   span            linear to 2 on every row; softmax over the T positions for start and end
 *
 * Like the head of causal models, gradients are computed in forward: all heads add to the saved dx (B*T,C),
 * which backward passes on.
 */
#include <string.h>

#include "model/parts/blocks.h"
#include "model/parts/common.h"
#include "model/parts/linear.h"
#include "model/parts/norm.h"
#include "model/parts/vocab.h"
#include "parallel/tp.h"

/* Parameters; a weight is followed by its bias. */
enum {
    POOLER_W,
    POOLER_B,
    MLM_W,
    MLM_B,
    NORM_W,
    NORM_B,
    OUTPUT_W,
    OUTPUT_B,
    NSP_W,
    NSP_B,
    SPAN_W,
    SPAN_B,
    CLASSIFY_W,
    CLASSIFY_B
};

/* Scratch of the masked-token head. */
typedef struct MlmScratch {
    Tensor x, pre, act, h, dh; /* (R,C) */
    NormStats norm;
    Tensor logits;        /* (R,V) */
    Tensor stats, losses; /* (R,3) (R) */
    Tensor parts;         /* (tp,R,3) */
    VocabLoss pieces;     /* instead of logits */
} MlmScratch;

/* Scratch of a pooled head with K logits. */
typedef struct PoolScratch {
    Tensor x, pre, pooled, dropped, d; /* (B,C) */
    Tensor logits;                     /* (B,K) */
    Tensor stats, losses;              /* (B,3) (B), or (B,K) with targets */
} PoolScratch;

typedef struct SpanScratch {
    Tensor logits, dlogits; /* (B*T,2) */
    Tensor rows;            /* (2*B,T) */
    Tensor stats, losses;   /* (2*B,3) (2*B) */
} SpanScratch;

static Status describe_linear(const Block *block, ParamList *list, int id, int64_t out, const char *name) {
    const ModelConfig *c = block->config;
    TRY(describe_matrix(list, id, c->init, c->init_std, -1, out, c->hidden, 0, "%s.weight", name));
    return describe_bias(list, id + 1, -1, out, 0, "%s.bias", name);
}

static Status describe_outputs(const Block *block, ParamList *list) {
    const ModelConfig *c = block->config;
    if (c->pooler) TRY(describe_linear(block, list, POOLER_W, c->hidden, "head.pooler"));
    if (config_has(c, OUTPUT_MLM)) {
        TRY(describe_linear(block, list, MLM_W, c->hidden, "head.mlm.dense"));
        TRY(describe_norm(c, list, NORM_W, c->hidden, false, "head.mlm.norm"));
        TRY(describe_bias(list, OUTPUT_B, 0, c->vocab, 0, "head.mlm.bias"));
        describe_vocab(list);
        TRY(describe_matrix(list, OUTPUT_W, c->init, c->init_std, 0, c->vocab, c->hidden, 0, "%s",
                            c->tied ? "embed.token" : "head.output.weight"));
        describe_vocab(list);
        list->desc[list->count - 1].tied = c->tied;
    }
    if (config_has(c, OUTPUT_NSP)) TRY(describe_linear(block, list, NSP_W, 2, "head.nsp"));
    if (config_has(c, OUTPUT_SPAN)) TRY(describe_linear(block, list, SPAN_W, 2, "head.span"));
    if (config_has(c, OUTPUT_CLASSIFY))
        TRY(describe_linear(block, list, CLASSIFY_W, c->labels, "head.classify"));
    return OK;
}

static MlmScratch mlm_scratch(const Block *block, Shape shape, int64_t R, int64_t V, Bump *bump) {
    Tensor width = tensor_2d(NULL, shape.dtype, R, block->config->hidden), rows = tensor_1d(NULL, DT_F32, R);
    MlmScratch w;
    w.x = tensor_take(bump, width);
    w.pre = tensor_take(bump, width);
    w.act = tensor_take(bump, width);
    w.h = tensor_take(bump, width);
    w.dh = tensor_take(bump, width);
    w.norm = norm_stats(block->config, R, bump);
    w.logits = tensor_take(bump, tensor_2d(NULL, shape.logits, shape.pieces ? 0 : R, V));
    w.pieces = vocab_loss_scratch(block, shape, R, bump);
    w.stats = tensor_take(bump, tensor_2d(NULL, DT_F32, R, 3));
    w.losses = tensor_take(bump, rows);
    w.parts = tensor_take(bump, tensor_3d(NULL, DT_F32, shape.tp > 1 ? shape.tp : 0, R, 3));
    return w;
}

/* For heads with targets, losses has room for one per target. */
static PoolScratch pool_scratch(const Block *block, Shape shape, int64_t B, int64_t K, Bump *bump) {
    Tensor width = tensor_3d(NULL, shape.dtype, B, 1, block->config->hidden);
    PoolScratch w;
    w.x = tensor_take(bump, width);
    w.pre = tensor_take(bump, width);
    w.pooled = tensor_take(bump, width);
    w.dropped = tensor_take(bump, width);
    w.d = tensor_take(bump, width);
    w.logits = tensor_take(bump, tensor_2d(NULL, DT_F32, B, K));
    w.stats = tensor_take(bump, tensor_2d(NULL, DT_F32, B, 3));
    bool targets = config_targets(block->config) > 0;
    w.losses = tensor_take(bump, targets ? w.logits : tensor_1d(NULL, DT_F32, B));
    return w;
}

static SpanScratch span_scratch(Shape shape, Bump *bump) {
    SpanScratch w;
    w.logits = tensor_take(bump, tensor_2d(NULL, DT_F32, shape.B * shape.T, 2));
    w.dlogits = tensor_take(bump, tensor_2d(NULL, DT_F32, shape.B * shape.T, 2));
    w.rows = tensor_take(bump, tensor_2d(NULL, DT_F32, 2 * shape.B, shape.T));
    w.stats = tensor_take(bump, tensor_2d(NULL, DT_F32, 2 * shape.B, 3));
    w.losses = tensor_take(bump, tensor_1d(NULL, DT_F32, 2 * shape.B));
    return w;
}

/* The heads run in sequence, so the largest scratch suffices. */
static void measure_outputs(const Block *block, Shape shape, size_t *ret_saved, size_t *ret_scratch) {
    const ModelConfig *c = block->config;
    Bump saved = {0}, buffer = {0};
    head_saved(block, shape, &saved);
    head_rows_buffer(block, shape, &buffer);
    Bump mlm = buffer, pool = buffer, span = buffer;
    int64_t V = vocab_local(c, shape.tp);
    if (config_has(c, OUTPUT_MLM))
        mlm_scratch(block, shape, loss_chunk_rows(shape, V, shape.B * shape.T), V, &mlm);
    if (c->pooler) pool_scratch(block, shape, shape.B, c->labels > 2 ? c->labels : 2, &pool);
    if (config_has(c, OUTPUT_SPAN)) span_scratch(shape, &span);
    size_t scratch = mlm.used > pool.used ? mlm.used : pool.used;
    *ret_saved = saved.used;
    *ret_scratch = scratch > span.used ? scratch : span.used;
}

/* Scratch of each head follows the gathered rows. */
static Bump scratch_after_rows(const Block *block, const Pass *pass) {
    Bump bump = bump_over(pass->scratch);
    head_rows_buffer(block, pass->shape, &bump);
    return bump;
}

/* Cross-entropy of complete logits: fills stats and losses; in training, logits become their gradient. */
static Status score_loss(Pass *pass, LossId loss, Tensor logits, Tensor stats, Tensor losses, Tensor labels) {
    VocabPart all = {.start = 0, .valid = logits.dim[1]};
    TRY(xent_loss(pass->exec, losses, stats, logits, labels, all, pass->loss_grad[loss], pass->shape.train));
    return head_sum(pass, loss, losses, stats, labels, all.valid);
}

/* The same for losses of independent outputs, which have targets (B,L) instead of labels. */
static Status target_loss(const Block *block, Pass *pass, Tensor logits, Tensor losses) {
    bool regression = config_problem(block->config) == PROBLEM_REGRESSION;
    float scale = pass->loss_grad[LOSS_CLASSIFY];
    TRY((regression ? mse_loss : bce_loss)(pass->exec, losses, logits, pass->micro->targets, scale,
                                           pass->shape.train));
    return sum(pass->exec, tensor_slice(pass->loss, LOSS_CLASSIFY, 1), losses);
}

/* The output matrix's input w->h from the gathered rows w->x. */
static Status mlm_hidden(const Block *block, Pass *pass, const MlmScratch *w) {
    Exec *e = pass->exec;
    Linear p = linear_of(block, pass->param, MLM_W);
    TRY(linear_forward(e, w->act, w->pre, w->x, p.weight, p.bias, block->config->act));
    return norm_forward(e, block->config, w->h, w->norm, w->act, norm_of(block, pass->param, NORM_W));
}

/* Logits of w->h. */
static Status mlm_scores(const Block *block, Pass *pass, const MlmScratch *w) {
    Linear p = linear_of(block, pass->param, OUTPUT_W);
    int64_t words = tensor_cols(w->logits); /* with or without vocabulary padding */
    return linear_forward(pass->exec, w->logits, TENSOR_NONE, w->h, tensor_slice(p.weight, 0, words),
                          tensor_slice(p.bias, 0, words), ACT_NONE);
}

/* The token loss of the rows w->h and, in training, the gradients of the output matrix and of w->h. */
static Status mlm_token_loss(const Block *block, Pass *pass, const MlmScratch *w, Tensor labels) {
    Exec *e = pass->exec;
    bool train = pass->shape.train;
    Linear p = linear_of(block, pass->param, OUTPUT_W), g = {0};
    if (train) g = linear_of(block, pass->grad, OUTPUT_W);
    if (pass->pieces) {
        VocabLossArgs args = {.dh = w->dh,
                              .h = w->h,
                              .labels = labels,
                              .bias = p.bias,
                              .dbias = g.bias,
                              .stats = w->stats,
                              .losses = w->losses,
                              .tp_parts = w->parts};
        return vocab_loss(block, pass, &w->pieces, &args);
    }
    VocabPart part = local_vocab(block, pass, p.weight.dim[0], 0);
    TRY(mlm_scores(block, pass, w));
    TRY(tp_xent_loss(pass->tp, e, w->losses, w->stats, w->parts, w->logits, labels, part,
                     pass->loss_grad[LOSS_TOKEN], train));
    TRY(head_sum(pass, LOSS_TOKEN, w->losses, w->stats, labels, part.valid));
    if (!train) return OK;
    TRY(linear_backward_weight(e, g.weight, g.bias, w->logits, w->h, true));
    return linear_backward_input(e, w->dh, TENSOR_NONE, w->logits, p.weight, ACT_NONE, TENSOR_NONE, false);
}

static Status mlm_chunk(const Block *block, Pass *pass, const MlmScratch *w, Tensor dx, Tensor x,
                        Tensor picks, Tensor labels) {
    Exec *e = pass->exec;
    TRY(gather_rows(e, w->x, x, picks));
    TRY(mlm_hidden(block, pass, w));
    TRY(mlm_token_loss(block, pass, w, labels));
    if (!pass->shape.train) return OK;
    Linear p = linear_of(block, pass->param, MLM_W), g = linear_of(block, pass->grad, MLM_W);
    TRY(tp_collect(pass->tp, e, false, w->dh, w->dh));
    TRY(norm_backward(e, block->config, w->dh, norm_of(block, pass->grad, NORM_W), w->dh, w->act, w->norm,
                      norm_of(block, pass->param, NORM_W), TENSOR_NONE, (NormSums){0}));
    TRY(act_backward(e, w->dh, w->dh, w->pre, block->config->act));
    TRY(linear_backward_weight(e, g.weight, g.bias, w->dh, w->x, true));
    TRY(linear_backward_input(e, w->h, TENSOR_NONE, w->dh, p.weight, ACT_NONE, TENSOR_NONE, false));
    return scatter_add_rows(e, dx, w->h, picks);
}

static MlmScratch cut_mlm(const MlmScratch *w, int64_t rows) {
    MlmScratch cut = *w;
    Tensor *const each[] = {&cut.x,  &cut.pre,    &cut.act,   &cut.h,
                            &cut.dh, &cut.logits, &cut.stats, &cut.losses};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (each[i]->dim[0]) *each[i] = tensor_slice(*each[i], 0, rows);
    cut.norm = norm_stats_slice(w->norm, rows);
    cut.parts = tensor_3d(w->parts.data, DT_F32, w->parts.dim[0], rows, 3);
    return cut;
}

static Status mlm_loss(const Block *block, Pass *pass, Tensor dx, Tensor x) {
    const Micro *micro = pass->micro;
    int64_t V = vocab_local(block->config, pass->shape.tp);
    int64_t N = micro->picks.dim[0], end = head_loop_rows(pass, N);
    int64_t R = loss_chunk_rows(pass->shape, V, pass->pieces ? end : pass->shape.B * pass->shape.T);
    Bump bump = scratch_after_rows(block, pass);
    MlmScratch w = mlm_scratch(block, pass->shape, R, V, &bump);
    TRY(bump_check(&bump, "the masked-token head's scratch"));
    for (int64_t at = 0; at < end; at += R) {
        int64_t first = at < N ? at : N, count = N - first < R ? N - first : R;
        MlmScratch cut = cut_mlm(&w, count);
        TRY(mlm_chunk(block, pass, &cut, dx, x, tensor_slice(micro->picks, first, count),
                      tensor_slice(micro->pick_labels, first, count)));
    }
    return OK;
}

/* Logits from the pooled first tokens w->x. */
static Status pool_scores(const Block *block, Pass *pass, const PoolScratch *w, Dropout dropout,
                          Linear head) {
    Linear pooler = linear_of(block, pass->param, POOLER_W);
    TRY(linear_forward(pass->exec, w->pooled, w->pre, w->x, pooler.weight, pooler.bias, ACT_TANH));
    TRY(dropout_add_forward(pass->exec, w->dropped, TENSOR_NONE, w->pooled, dropout));
    return linear_forward(pass->exec, w->logits, TENSOR_NONE, w->dropped, head.weight, head.bias, ACT_NONE);
}

/* Loss of a pooled head: next sentence or classification. */
static Status pool_loss(const Block *block, Pass *pass, LossId loss, Tensor dx, Tensor x) {
    Exec *e = pass->exec;
    const ModelConfig *c = block->config;
    const Micro *micro = pass->micro;
    bool nsp = loss == LOSS_NSP;
    int id = nsp ? NSP_W : CLASSIFY_W;
    Linear head = linear_of(block, pass->param, id);
    Dropout dropout = {0};
    if (!nsp) dropout = dropout_of_sequences(pass, c->dropout_classify, c->hidden, "head.classify");
    Bump bump = scratch_after_rows(block, pass);
    PoolScratch w = pool_scratch(block, pass->shape, pass->shape.B, head.weight.dim[0], &bump);
    TRY(bump_check(&bump, "the pooled heads' scratch"));
    TRY(gather_rows(e, tensor_matrix(w.x), x, micro->first_rows));
    TRY(pool_scores(block, pass, &w, dropout, head));
    Tensor losses = tensor_1d(w.losses.data, DT_F32, pass->shape.B);
    if (!nsp && micro->targets.data)
        TRY(target_loss(block, pass, w.logits, w.losses));
    else
        TRY(score_loss(pass, loss, w.logits, w.stats, losses, nsp ? micro->nsp : micro->classes));
    if (!pass->shape.train) return OK;
    Linear pooler = linear_of(block, pass->param, POOLER_W), g = linear_of(block, pass->grad, id);
    TRY(linear_backward_weight(e, g.weight, g.bias, w.logits, w.dropped, true));
    g = linear_of(block, pass->grad, POOLER_W);
    TRY(linear_backward_input(e, w.d, TENSOR_NONE, w.logits, head.weight, ACT_NONE, TENSOR_NONE, false));
    TRY(dropout_backward(e, w.d, TENSOR_NONE, w.d, dropout));
    TRY(act_backward(e, w.d, w.d, w.pre, ACT_TANH));
    TRY(linear_backward_weight(e, g.weight, g.bias, w.d, w.x, true));
    TRY(linear_backward_input(e, w.dropped, TENSOR_NONE, w.d, pooler.weight, ACT_NONE, TENSOR_NONE, false));
    return scatter_add_rows(e, dx, tensor_matrix(w.dropped), micro->first_rows);
}

static Status span_loss(const Block *block, Pass *pass, Tensor dx, Tensor x) {
    Exec *e = pass->exec;
    Linear p = linear_of(block, pass->param, SPAN_W);
    int64_t B = pass->shape.B;
    Bump bump = scratch_after_rows(block, pass);
    SpanScratch w = span_scratch(pass->shape, &bump);
    TRY(bump_check(&bump, "the span head's scratch"));
    TRY(linear_forward(e, w.logits, TENSOR_NONE, x, p.weight, p.bias, ACT_NONE));
    Tensor by_side = tensor_2d(w.rows.data, DT_F32, 2, B * pass->shape.T);
    TRY(transpose(e, by_side, w.logits));
    for (int side = 0; side < 2; side++)
        TRY(score_loss(pass, side ? LOSS_SPAN_END : LOSS_SPAN_START, tensor_slice(w.rows, side * B, B),
                       tensor_slice(w.stats, side * B, B), tensor_slice(w.losses, side * B, B),
                       as_vector(tensor_slice(pass->micro->span, side, 1))));
    if (!pass->shape.train) return OK;
    Linear g = linear_of(block, pass->grad, SPAN_W);
    TRY(transpose(e, w.dlogits, by_side));
    TRY(linear_backward_weight(e, g.weight, g.bias, w.dlogits, x, true));
    return linear_backward_input(e, dx, TENSOR_NONE, w.dlogits, p.weight, ACT_NONE, TENSOR_NONE, true);
}

static Status forward_outputs(const Block *block, Pass *pass, Tensor y, Tensor x) {
    (void)y;
    const ModelConfig *c = block->config;
    const Micro *micro = pass->micro;
    Bump saved = bump_over(pass->saved), scratch = bump_over(pass->scratch);
    Tensor dx = head_saved(block, pass->shape, &saved), rows;
    Tensor buffer = head_rows_buffer(block, pass->shape, &scratch);
    TRY(bump_check(&saved, "the heads' activations"));
    TRY(head_input(pass, buffer, x, &rows));
    if (dx.data) TRY(stream_zero(pass->exec->stream, dx.data, tensor_bytes(dx)));
    if (config_has(c, OUTPUT_MLM) && micro->picks.data) TRY(mlm_loss(block, pass, dx, rows));
    if (config_has(c, OUTPUT_NSP) && micro->nsp.data) TRY(pool_loss(block, pass, LOSS_NSP, dx, rows));
    if (config_has(c, OUTPUT_SPAN) && micro->span.data) TRY(span_loss(block, pass, dx, rows));
    if (config_has(c, OUTPUT_CLASSIFY) && (micro->classes.data || micro->targets.data))
        TRY(pool_loss(block, pass, LOSS_CLASSIFY, dx, rows));
    return OK;
}

static Status logits_outputs(const Block *block, Pass *pass, OutputHead which, Tensor out, Tensor x) {
    if (!config_has(block->config, which)) return FAILED("the model has no %s head", output_name(which));
    Tensor rows = tensor_matrix(x);
    Bump bump = bump_over(pass->scratch);
    if (which == OUTPUT_SPAN) {
        Linear span = linear_of(block, pass->param, SPAN_W);
        return linear_forward(pass->exec, out, TENSOR_NONE, rows, span.weight, span.bias, ACT_NONE);
    }
    if (which == OUTPUT_MLM) {
        MlmScratch w = mlm_scratch(block, pass->shape, rows.dim[0], 0, &bump);
        TRY(bump_check(&bump, "the masked-token head's scratch"));
        w.x = rows;
        w.logits = out;
        TRY(mlm_hidden(block, pass, &w));
        return mlm_scores(block, pass, &w);
    }
    PoolScratch w = pool_scratch(block, pass->shape, rows.dim[0], 0, &bump);
    TRY(bump_check(&bump, "the pooled heads' scratch"));
    memcpy(w.x.dim, (int64_t[]){rows.dim[0], 1, rows.dim[1]}, 3 * sizeof(int64_t));
    w.x.data = rows.data;
    w.logits = out;
    int id = which == OUTPUT_NSP ? NSP_W : CLASSIFY_W;
    return pool_scores(block, pass, &w, (Dropout){0}, linear_of(block, pass->param, id));
}

static size_t logits_scratch_outputs(const Block *block, OutputHead which, int64_t rows) {
    Bump bump = {0};
    Shape shape = {.tp = 1, .dtype = DT_F32}; /* upper bound over all types */
    if (which == OUTPUT_MLM)
        mlm_scratch(block, shape, rows, 0, &bump);
    else
        pool_scratch(block, shape, rows, 0, &bump);
    return bump.used;
}

/* The masked-token head processes about 15% of the positions. */
static double flops_outputs(const Block *block, int64_t T) {
    (void)T;
    const ModelConfig *c = block->config;
    double C = (double)c->hidden, V = (double)c->vocab, flops = 30 * C;
    if (config_has(c, OUTPUT_MLM)) flops += 3 * 2 * (V + C) * C * 0.15;
    if (config_has(c, OUTPUT_SPAN)) flops += 3 * 4 * C;
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
