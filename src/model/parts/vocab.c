#include "model/parts/vocab.h"

#include "model/parts/common.h"
#include "parallel/tp.h"

VocabPart vocab_piece(const Block *block, const Pass *pass, int piece, int64_t *ret_rows) {
    Shape shape = pass->shape;
    int64_t local = vocab_local(block->config, shape.tp), first = piece * shape.piece_rows;
    *ret_rows = local - first < shape.piece_rows ? local - first : shape.piece_rows;
    return local_vocab(block, pass, local, first);
}

/* ---- lookup ---- */

VocabLookup vocab_lookup_scratch(const Block *block, Shape shape, Bump *bump) {
    if (!shape.pieces) return (VocabLookup){0};
    Tensor all = tensor_3d(NULL, shape.dtype, shape.B, shape.T, block->config->hidden);
    VocabLookup w;
    w.found = tensor_take(bump, all);
    w.piece = tensor_take(bump, all);
    return w;
}

Status vocab_lookup(const Block *block, Pass *pass, const VocabLookup *w, Tensor *ret_rows) {
    const VocabPieces *pieces = pass->pieces;
    int count = pass->shape.pieces;
    for (int k = 0; k < count; k++) {
        Tensor rows, none = TENSOR_NONE;
        int64_t used;
        VocabPart part = vocab_piece(block, pass, k, &used);
        TRY(pieces->open(pieces->context, k, k + 1 < count ? k + 1 : -1, &rows));
        TRY(embedding_forward(pass->exec, k ? w->piece : w->found, pass->micro->tokens, none, none,
                              tensor_slice(rows, 0, used), none, none, part));
        pieces->close(pieces->context, k);
        if (k) TRY(add(pass->exec, w->found, w->piece));
    }
    *ret_rows = tensor_matrix(w->found);
    return OK;
}

/* ---- loss ---- */

VocabLoss vocab_loss_scratch(const Block *block, Shape shape, int64_t rows, Bump *bump) {
    if (!shape.pieces) return (VocabLoss){0};
    VocabLoss w;
    w.all_pieces = loss_keeps_logits(shape, vocab_local(block->config, shape.tp));
    w.logits = tensor_take(
        bump, tensor_2d(NULL, shape.logits, (w.all_pieces ? shape.pieces : 1) * rows, shape.piece_rows));
    w.parts = tensor_take(bump, tensor_3d(NULL, DT_F32, shape.pieces, rows, 3));
    bool narrow = shape.train && shape.dtype != DT_F32;
    w.sum = tensor_take(bump, tensor_2d(NULL, DT_F32, narrow ? rows : 0, block->config->hidden));
    return w;
}

/* Where the logits of a piece are stored. */
static Tensor piece_logits(const VocabLoss *w, Shape shape, int piece, int64_t rows, int64_t used) {
    int64_t first = w->all_pieces ? piece * (w->logits.dim[0] / shape.pieces) : 0;
    Tensor all = tensor_slice(w->logits, first, rows);
    return tensor_2d(all.data, all.dtype, rows, used);
}

static Status compute_logits(Pass *pass, const VocabLossArgs *a, int piece, Tensor logits, Tensor rows) {
    int64_t used = logits.dim[1];
    Tensor bias = a->bias.data ? tensor_slice(a->bias, piece * pass->shape.piece_rows, used) : TENSOR_NONE;
    return linear_forward(pass->exec, logits, TENSOR_NONE, a->h, tensor_slice(rows, 0, used), bias, ACT_NONE);
}

static Status piece_scores(const Block *block, Pass *pass, const VocabLoss *w, const VocabLossArgs *a,
                           int piece, Tensor stats) {
    const VocabPieces *pieces = pass->pieces;
    Shape shape = pass->shape;
    Tensor rows;
    int64_t used;
    VocabPart part = vocab_piece(block, pass, piece, &used);
    bool last = piece + 1 == shape.pieces;
    TRY(pieces->open(pieces->context, piece, last ? -1 : piece + 1, &rows));
    Tensor logits = piece_logits(w, shape, piece, a->h.dim[0], used);
    TRY(compute_logits(pass, a, piece, logits, rows));
    TRY(xent_partial(pass->exec, stats, logits, a->labels, part));
    /* The gradients start with the last piece. */
    if (!last || !shape.train) pieces->close(pieces->context, piece);
    return OK;
}

/* dh (+)= the gradient through one piece. Partial sums of 16-bit types are added in fp32. */
static Status add_input_gradient(Pass *pass, const VocabLoss *w, Tensor dh, Tensor logits, Tensor rows,
                                 bool first) {
    Exec *e = pass->exec;
    bool narrow = dh.dtype != DT_F32;
    TRY(linear_backward_input(e, dh, TENSOR_NONE, logits, rows, ACT_NONE, TENSOR_NONE, !first && !narrow));
    if (!narrow) return OK;
    Tensor sum = tensor_slice(w->sum, 0, dh.dim[0]);
    return first ? convert(e, sum, dh) : add(e, sum, dh);
}

static Status piece_gradients(const Block *block, Pass *pass, const VocabLoss *w, const VocabLossArgs *a,
                              int piece) {
    const VocabPieces *pieces = pass->pieces;
    Shape shape = pass->shape;
    Exec *e = pass->exec;
    Tensor rows, grad = TENSOR_NONE;
    int64_t used;
    VocabPart part = vocab_piece(block, pass, piece, &used);
    TRY(pieces->open(pieces->context, piece, piece - 1, &rows));
    if (pieces->open_grad) TRY(pieces->open_grad(pieces->context, piece, &grad));
    Tensor logits = piece_logits(w, shape, piece, a->h.dim[0], used);
    Tensor dbias = a->dbias.data ? tensor_slice(a->dbias, piece * shape.piece_rows, used) : TENSOR_NONE;
    if (!w->all_pieces && piece + 1 < shape.pieces) TRY(compute_logits(pass, a, piece, logits, rows));
    TRY(xent_finish(e, a->losses, logits, a->stats, a->labels, part, pass->loss_grad[LOSS_TOKEN], true));
    if (grad.data) grad = tensor_slice(grad, 0, used);
    TRY(linear_backward_weight(e, grad, dbias, logits, a->h, true));
    if (pieces->open_grad) TRY(pieces->done_grad(pieces->context, piece));
    TRY(add_input_gradient(pass, w, a->dh, logits, tensor_slice(rows, 0, used), piece + 1 == shape.pieces));
    pieces->close(pieces->context, piece);
    return OK;
}

Status vocab_loss(const Block *block, Pass *pass, const VocabLoss *w, const VocabLossArgs *a) {
    Exec *e = pass->exec;
    int count = pass->shape.pieces;
    int64_t M = a->h.dim[0], used;
    Tensor parts = tensor_3d(w->parts.data, DT_F32, count, M, 3);
    for (int k = 0; k < count; k++)
        TRY(piece_scores(block, pass, w, a, k, tensor_matrix(tensor_slice(parts, k, 1))));
    TRY(xent_combine(e, a->stats, parts));
    if (pass->tp->size > 1) {
        TRY(all_gather(pass->tp, e->stream, a->tp_parts, a->stats, NULL));
        TRY(xent_combine(e, a->stats, a->tp_parts));
    }
    VocabPart part = vocab_piece(block, pass, 0, &used);
    TRY(xent_finish(e, a->losses, piece_logits(w, pass->shape, 0, M, used), a->stats, a->labels, part, 0,
                    false));
    TRY(head_sum(pass, LOSS_TOKEN, a->losses, a->stats, a->labels, part.valid));
    if (!pass->shape.train) return OK;
    for (int k = count - 1; k >= 0; k--) TRY(piece_gradients(block, pass, w, a, k));
    if (a->dh.dtype == DT_F32) return OK;
    return convert(e, a->dh, tensor_slice(w->sum, 0, M));
}
