/* B sequences, T positions here; P ranks of context parallelism; N heads of width D in all, n on each rank.
 *
 *   own (B,T,N,D) -> send (P,B,T,n,D) -> all-to-all -> receive (P,B,T,n,D) -> whole (B,P,T,n,D)
 *
 * and the same backwards. With one sequence, receive is whole. */
#include "model/parts/context.h"

ContextBuffers context_buffers(Tensor own, Bump *scratch) {
    Tensor all = tensor_1d(NULL, own.dtype, tensor_count(own));
    return (ContextBuffers){.send = tensor_take(scratch, all), .receive = tensor_take(scratch, all)};
}

typedef struct Sizes {
    int64_t B, P, T, D, row; /* row: elements of one in own */
} Sizes;

static Sizes sizes_of(const Pass *pass, Tensor own) {
    int64_t rows = own.dim[0] * own.dim[1];
    return (Sizes){.B = own.dim[0],
                   .P = pass->cp->size,
                   .T = own.dim[1],
                   .D = own.dim[own.ndim - 1],
                   .row = tensor_count(own) / rows};
}

static Tensor as_elements(Tensor t, Tensor like) {
    return tensor_1d(t.data, like.dtype, tensor_count(like));
}

/* Copies rows of own to send, or back. */
static Status pack(const Pass *pass, Tensor send, Tensor own, HeadCounts heads, bool back) {
    Sizes s = sizes_of(pass, own);
    int64_t rows = s.B * s.T, part = s.row / s.P;
    for (int64_t kind = 0, at = 0; kind < 3; kind++) {
        int64_t width = heads.count[kind] * s.D, each = width / s.P;
        Blocks blocks = {.size = each, .count = {s.P, rows, 1}};
        blocks.to = (BlockSpan){at / s.P, {rows * part, part, 0}};
        blocks.from = (BlockSpan){at, {each, s.row, 0}};
        if (back) {
            BlockSpan to = blocks.to;
            blocks.to = blocks.from, blocks.from = to;
        }
        TRY(back ? copy_blocks(pass->exec, as_elements(own, own), send, blocks)
                 : copy_blocks(pass->exec, send, as_elements(own, own), blocks));
        at += width;
    }
    return OK;
}

/* Copies what was received to whole, or back. */
static Status place(const Pass *pass, Tensor whole, Tensor received, Sizes s, bool back) {
    int64_t each = s.T * s.row / s.P; /* elements of a part of a sequence */
    BlockSpan ordered = {0, {each, s.P * each, 0}}, ranks = {0, {s.B * each, each, 0}};
    Blocks blocks = {.size = each, .count = {s.P, s.B, 1}, .to = ordered, .from = ranks};
    if (!back) return copy_blocks(pass->exec, whole, received, blocks);
    blocks.to = ranks, blocks.from = ordered;
    return copy_blocks(pass->exec, received, whole, blocks);
}

Status context_to_heads(const Pass *pass, ContextBuffers buffers, Tensor whole, Tensor own,
                        HeadCounts heads) {
    Sizes s = sizes_of(pass, own);
    Tensor send = as_elements(buffers.send, own), receive = as_elements(buffers.receive, own);
    whole = as_elements(whole, own);
    if (s.B == 1) receive = whole;
    TRY(pack(pass, send, own, heads, false));
    TRY(all_to_all(pass->cp, pass->exec->stream, receive, send, NULL, NULL, NULL));
    return s.B == 1 ? OK : place(pass, whole, receive, s, false);
}

Status context_to_rows(const Pass *pass, ContextBuffers buffers, Tensor own, Tensor whole, HeadCounts heads) {
    Sizes s = sizes_of(pass, own);
    Tensor send = as_elements(buffers.send, own), receive = as_elements(buffers.receive, own);
    whole = as_elements(whole, own);
    if (s.B == 1)
        send = whole;
    else
        TRY(place(pass, whole, send, s, true));
    TRY(all_to_all(pass->cp, pass->exec->stream, receive, send, NULL, NULL, NULL));
    return pack(pass, receive, own, heads, true);
}
