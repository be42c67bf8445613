/* The embedding block: sum of token, position and type embeddings, as far as the model has them, then a norm
 * if it has one, then dropout.
 *
 * B sequences, T positions, C hidden size. Saved for backward, if there is a norm: its input, statistics and
 * weight, so that backward needs no parameters.
 *
 * The lookup may give the padding token no gradient (pad_fixed). This matters where padding takes part in a
 * loss: the span head scores padding positions, too.
 */
#include "model/head.h"
#include "model/parts/blocks.h"
#include "model/parts/common.h"
#include "model/parts/norm.h"
#include "model/parts/vocab.h"
#include "parallel/tp.h"

enum { TOKEN, POSITION, TYPE, NORM_W, NORM_B };

typedef struct EmbedParams {
    Tensor token, position, type; /* (V,C) (P,C) (K,C) */
} EmbedParams;

typedef struct EmbedSaved {
    Tensor sum; /* (B,T,C) input of the norm */
    NormStats stats;
    Norm norm; /* without the bias */
} EmbedSaved;

static bool has_norm(const Block *block) {
    return block->config->embed_norm;
}

static bool skips_padding(const Block *block) {
    return block->config->pad_fixed && block->config->pad_token >= 0;
}

static Status describe_embed(const Block *block, ParamList *ret_params) {
    const ModelConfig *c = block->config;
    TRY(describe_matrix(ret_params, TOKEN, c->init, c->init_std, 0, c->vocab, c->hidden, 0, "embed.token"));
    describe_vocab(ret_params);
    HeadTraits heads = heads_traits(c->outputs_mask);
    ret_params->desc[0].shared = c->tied && heads.vocab;
    ret_params->desc[0].overwritten = c->tied && heads.overwrites;
    if (c->position == POSITION_LEARNED)
        TRY(describe_matrix(ret_params, POSITION, c->init, c->init_std * c->init_position_scale, -1,
                            c->positions, c->hidden, 0, "embed.position"));
    if (c->types)
        TRY(describe_matrix(ret_params, TYPE, c->init, c->init_std, -1, c->types, c->hidden, 0,
                            "embed.type"));
    return has_norm(block) ? describe_norm(c, ret_params, NORM_W, c->hidden, true, "embed.norm") : OK;
}

static EmbedParams embed_params(const Block *block, const Tensor *view) {
    return (EmbedParams){.token = block_param(block, view, TOKEN),
                         .position = block_param(block, view, POSITION),
                         .type = block_param(block, view, TYPE)};
}

static EmbedSaved embed_saved(const Block *block, Shape shape, Bump *bump) {
    EmbedSaved s = {0};
    if (!has_norm(block)) return s;
    s.sum = tensor_take(bump, rows_of(shape, block->config->hidden));
    s.stats = norm_stats(block->config, row_count(shape), bump);
    s.norm.weight = tensor_take(bump, tensor_1d(NULL, shape.dtype, block->config->hidden));
    return s;
}

typedef struct EmbedScratch {
    Tensor whole;   /* (B,T,C), sequence parallelism only */
    Tensor pad_row; /* (1,C) gradient of the padding token */
    VocabLookup lookup;
} EmbedScratch;

static EmbedScratch embed_scratch(const Block *block, Shape shape, Bump *bump) {
    EmbedScratch w = {0};
    w.whole = tensor_take(bump, whole_of(shape, block->config->hidden));
    if (skips_padding(block))
        w.pad_row = tensor_take(bump, tensor_2d(NULL, DT_F32, 1, block->config->hidden));
    w.lookup = vocab_lookup_scratch(block, shape, bump);
    return w;
}

static void measure_embed(const Block *block, Shape shape, size_t *ret_saved, size_t *ret_scratch) {
    Bump saved = {0}, scratch = {0};
    embed_saved(block, shape, &saved);
    embed_scratch(block, shape, &scratch);
    *ret_saved = saved.used;
    *ret_scratch = scratch.used;
}

/* sum: the local rows of the summed embeddings. */
static Status embed_sum(const Block *block, Pass *pass, Tensor sum, Tensor positions) {
    const Micro *micro = pass->micro;
    EmbedParams p = embed_params(block, pass->param);
    Bump bump = bump_over(pass->scratch);
    EmbedScratch w = embed_scratch(block, pass->shape, &bump);
    TRY(bump_check(&bump, "the embedding's scratch"));
    Tensor whole = pass->shape.sequence ? w.whole : sum, tokens = micro->tokens, table = p.token;
    VocabPart part = local_vocab(block, pass, p.token.dim[0], 0);
    if (pass->pieces) { /* the rows that were found take the place of the matrix */
        TRY(vocab_lookup(block, pass, &w.lookup, &table));
        tokens = micro->rows;
        part = (VocabPart){.start = 0, .valid = table.dim[0]};
    }
    TRY(embedding_forward(pass->exec, whole, tokens, micro->types, positions, table,
                          tp_once(pass->tp, p.position), tp_once(pass->tp, p.type), part));
    return tp_collect(pass->tp, pass->exec, pass->shape.sequence, sum, whole);
}

static Status forward_embed(const Block *block, Pass *pass, Tensor y, Tensor x) {
    (void)x;
    const ModelConfig *c = block->config;
    Dropout dropout = dropout_at(pass, c->dropout_embed, c->hidden, "embed");
    Bump bump = bump_over(pass->saved);
    EmbedSaved s = embed_saved(block, pass->shape, &bump);
    TRY(bump_check(&bump, "the embedding"));
    TRY(embed_sum(block, pass, has_norm(block) ? s.sum : y, pass->micro->positions));
    if (has_norm(block)) {
        Norm norm = norm_of(block, pass->param, NORM_W);
        TRY(stream_copy(pass->exec->stream, s.norm.weight.data, norm.weight.data, tensor_bytes(norm.weight),
                        COPY_ON_DEVICE));
        TRY(norm_forward(pass->exec, c, y, s.stats, s.sum, norm));
    }
    return dropout.p > 0 ? dropout_add_forward(pass->exec, y, TENSOR_NONE, y, dropout) : OK;
}

/* Adds to the embedding gradients g, but restores the row of the padding token. g.token has the rows `part`
 * of the vocabulary. */
static Status add_rows(const Block *block, Pass *pass, EmbedParams g, Tensor pad_row, Tensor dx,
                       VocabPart part) {
    const Micro *micro = pass->micro;
    int64_t pad = block->config->pad_token - part.start;
    bool keep = skips_padding(block) && g.token.data && pad >= 0 && pad < g.token.dim[0];
    Stream *stream = pass->exec->stream;
    Tensor row = keep ? tensor_slice(g.token, pad, 1) : TENSOR_NONE;
    if (keep) TRY(stream_copy(stream, pad_row.data, row.data, tensor_bytes(row), COPY_ON_DEVICE));
    TRY(embedding_backward(pass->exec, g.token, g.position, g.type, dx, micro->tokens, micro->types,
                           micro->positions, part));
    return keep ? stream_copy(stream, row.data, pad_row.data, tensor_bytes(row), COPY_ON_DEVICE) : OK;
}

/* The same piece by piece. */
static Status add_pieces(const Block *block, Pass *pass, EmbedParams g, Tensor pad_row, Tensor dx) {
    const VocabPieces *pieces = pass->pieces;
    for (int k = 0; k < pass->shape.pieces; k++) {
        int64_t used;
        VocabPart part = vocab_piece(block, pass, k, &used);
        TRY(pieces->open_grad(pieces->context, k, &g.token));
        g.token = tensor_slice(g.token, 0, used);
        TRY(add_rows(block, pass, g, pad_row, dx, part));
        TRY(pieces->done_grad(pieces->context, k));
        g.position = g.type = TENSOR_NONE;
    }
    return OK;
}

static Status backward_lookup(const Block *block, Pass *pass, Tensor dx) {
    EmbedParams g = embed_params(block, pass->grad);
    Bump bump = bump_over(pass->scratch);
    EmbedScratch w = embed_scratch(block, pass->shape, &bump);
    bool pieces = pass->pieces && pass->pieces->open_grad;
    if (!pieces && !g.token.data && !g.position.data && !g.type.data) return OK;
    TRY(bump_check(&bump, "the embedding's scratch"));
    TRY(tp_spread(pass->tp, pass->exec, pass->shape.sequence, w.whole, dx, &dx));
    if (pieces) return add_pieces(block, pass, g, w.pad_row, dx);
    if (grad_is_unwritten(block, pass, TOKEN))
        TRY(stream_zero(pass->exec->stream, g.token.data, tensor_bytes(g.token)));
    return add_rows(block, pass, g, w.pad_row, dx, local_vocab(block, pass, g.token.dim[0], 0));
}

static Status backward_embed(const Block *block, Pass *pass, Tensor dx, Tensor dy, Tensor x) {
    (void)x;
    const ModelConfig *c = block->config;
    Dropout dropout = dropout_at(pass, c->dropout_embed, c->hidden, "embed");
    TRY(dropout_backward(pass->exec, dx, TENSOR_NONE, dy, dropout));
    if (has_norm(block)) {
        Bump bump = bump_over(pass->saved);
        EmbedSaved s = embed_saved(block, pass->shape, &bump);
        TRY(norm_backward(pass->exec, c, dx, norm_of(block, pass->grad, NORM_W), dx, s.sum, s.stats, s.norm,
                          TENSOR_NONE, (NormSums){0}));
    }
    return backward_lookup(block, pass, dx);
}

static Status decode_embed(const Block *block, Pass *pass, Tensor y, Tensor x) {
    (void)x;
    if (has_norm(block)) return FAILED("internal: an encoder cannot generate text");
    return embed_sum(block, pass, y, pass->decode->past);
}

static double flops_embed(const Block *block, int64_t T) {
    (void)T;
    return 30 * (double)block->config->hidden;
}

const BlockOps block_ops_embed = {
    .name = "embed",
    .kind = BLOCK_EMBED,
    .describe = describe_embed,
    .measure = measure_embed,
    .forward = forward_embed,
    .backward = backward_embed,
    .decode = decode_embed,
    .flops = flops_embed,
};
