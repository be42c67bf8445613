/* Masked tokens: dense, activation, norm, matmul with the token embedding (or a separate output matrix),
 * bias; only on the predicted rows (micro->picks), in chunks of R. */
#include "model/heads/heads.h"
#include "model/parts/norm.h"
#include "model/parts/vocab.h"
#include "parallel/tp.h"

enum { DENSE_W = HEAD_PARAM(HEAD_MLM), DENSE_B, NORM_W, NORM_B, OUTPUT_W, OUTPUT_B };

typedef struct MlmScratch {
    Tensor x, pre, act, h, dh; /* (R,C) */
    NormStats norm;
    Tensor logits;        /* (R,V) */
    Tensor stats, losses; /* (R,3) (R) */
    Tensor parts;         /* (tp,R,3) */
    VocabLoss pieces;     /* instead of logits */
} MlmScratch;

static int64_t width(const ModelConfig *config) {
    return config->vocab;
}

static Status describe(const Block *block, HeadId id, ParamList *list) {
    const ModelConfig *c = block->config;
    (void)id;
    TRY(describe_linear(block, list, DENSE_W, c->hidden, "head.mlm.dense"));
    TRY(describe_norm(c, list, NORM_W, c->hidden, false, "head.mlm.norm"));
    TRY(describe_bias(list, OUTPUT_B, 0, c->vocab, 0, "head.mlm.bias"));
    describe_vocab(list);
    TRY(describe_matrix(list, OUTPUT_W, c->init, c->init_std, 0, c->vocab, c->hidden, 0, "%s",
                        c->tied ? "embed.token" : "head.output.weight"));
    describe_vocab(list);
    list->desc[list->count - 1].tied = c->tied;
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

static void measure(const Block *block, HeadId id, Shape shape, Bump *scratch) {
    (void)id;
    int64_t V = vocab_local(block->config, shape.tp);
    mlm_scratch(block, shape, loss_chunk_rows(shape, V, shape.B * shape.T), V, scratch);
}

/* The output matrix's input w->h from the gathered rows w->x. */
static Status mlm_hidden(const Block *block, Pass *pass, const MlmScratch *w) {
    Exec *e = pass->exec;
    Linear p = linear_of(block, pass->param, DENSE_W);
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
    Linear p = linear_of(block, pass->param, DENSE_W), g = linear_of(block, pass->grad, DENSE_W);
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

static Status loss(const Block *block, Pass *pass, HeadId id, Tensor dx, Tensor x) {
    (void)id;
    const Micro *micro = pass->micro;
    if (!micro->picks.data) return OK;
    int64_t V = vocab_local(block->config, pass->shape.tp);
    int64_t N = micro->picks.dim[0], end = head_loop_rows(pass, N);
    int64_t R = loss_chunk_rows(pass->shape, V, pass->pieces ? end : pass->shape.B * pass->shape.T);
    Bump bump = head_scratch(block, pass);
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

static Status logits(const Block *block, Pass *pass, HeadId id, Tensor out, Tensor rows) {
    (void)id;
    Bump bump = bump_over(pass->scratch);
    Shape shape = pass->shape;
    shape.tp = 1; /* no loss is summed over ranks */
    MlmScratch w = mlm_scratch(block, shape, rows.dim[0], 0, &bump);
    TRY(bump_check(&bump, "the masked-token head's scratch"));
    w.x = rows;
    w.logits = out;
    TRY(mlm_hidden(block, pass, &w));
    return mlm_scores(block, pass, &w);
}

static void logits_scratch(const Block *block, HeadId id, Shape shape, int64_t rows, Bump *scratch) {
    (void)id;
    mlm_scratch(block, shape, rows, 0, scratch);
}

/* About 15% of the positions are predicted. */
static double flops(const ModelConfig *config) {
    double C = (double)config->hidden, V = (double)config->vocab;
    return 3 * 2 * (V + C) * C * 0.15;
}

const Head head_mlm = {
    .traits = {.losses = 1 << LOSS_TOKEN, .vocab = true},
    .width = width,
    .describe = describe,
    .measure = measure,
    .loss = loss,
    .logits = logits,
    .logits_scratch = logits_scratch,
    .flops = flops,
};
