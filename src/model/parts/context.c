/* B sequences, T positions here; P ranks that swap or gather; N heads of width D in all, n on each rank after
 * a swap; M: the heads of k and v.
 *
 *   swap     own (B,T,N,D) -> send (P,B,T,n,D) -> all-to-all -> receive (P,B,T,n,D) -> whole (B,P T,n,D)
 *   gather   own (B,T,N,D) -> send (B,T,M,D) -> all-gather -> receive (P,B,T,M,D) -> kv (B,P T,M,D)
 *
 * and the same backwards. With one sequence, and ranks in the order of its positions, receive is whole. */
#include "model/parts/context.h"

#include "model/parts/common.h"

const char *const context_mode_names[] = {"auto", "heads", "gather", "ring", "heads+ring", NULL};

/* ---- positions ---- */

static bool has_ends(const ModelConfig *c, Shape shape) {
    return config_causal(c) && shape.cp_mode != CONTEXT_HEADS && shape.T % 2 == 0;
}

/* The positions of `ranks` adjacent ranks together, from rank `first` on, which is a multiple of that. */
static Positions positions_of(const ModelConfig *config, Shape shape, int first, int ranks) {
    int64_t T = shape.T, half = T / 2, group = first / ranks, groups = shape.cp / ranks;
    if (shape.cp <= 1 || !has_ends(config, shape)) return (Positions){.first = first * T};
    return (Positions){
        .first = first * half, .turn = ranks * half, .second = (2 * groups - 1 - group) * ranks * half};
}

Positions context_positions(const ModelConfig *config, Shape shape, int rank) {
    int place = shape.cp > 1 ? rank % shape.cp_heads : 0;
    Positions at = positions_of(config, shape, rank - place, shape.cp > 1 ? shape.cp_heads : 1);
    at.first += place * (at.turn ? shape.T / 2 : shape.T);
    if (at.turn) at.second += place * (shape.T / 2), at.turn = shape.T / 2;
    return at;
}

/* Copies rows of B sequences of all ranks, (P,B,T,width), to where they are in the sequences, (B,P T,width),
 * or back. Ranks that swap have their tails in the same order as their heads, others in the opposite one. */
static Status place(const Pass *pass, const ModelConfig *c, int64_t P, Tensor whole, Tensor parts,
                    bool back) {
    int64_t B = pass->shape.B, T = pass->shape.T;
    int64_t row = tensor_count(parts) / (P * B * T), chunks = has_ends(c, pass->shape) ? 2 : 1;
    int64_t size = T / chunks * row;
    bool opposite = pass->shape.cp_mode == CONTEXT_GATHER;
    for (int64_t i = 0; i < chunks; i++) {
        bool turned = opposite && i;
        BlockSpan in_parts = {i * size, {B * T * row, T * row, 0}};
        BlockSpan in_whole = {turned ? (2 * P - 1) * size : i * P * size,
                              {turned ? -size : size, P * T * row, 0}};
        Blocks blocks = {size, {P, B, 1}, in_whole, in_parts};
        if (back) blocks.to = in_parts, blocks.from = in_whole;
        TRY(back ? copy_blocks(pass->exec, parts, whole, blocks)
                 : copy_blocks(pass->exec, whole, parts, blocks));
    }
    return OK;
}

/* Whether rows by rank and by position are the same. */
static bool in_order(const Pass *pass, const ModelConfig *c) {
    return pass->shape.B == 1 && !has_ends(c, pass->shape);
}

static Tensor as_elements(Tensor t) {
    return tensor_1d(t.data, t.dtype, tensor_count(t));
}

/* ---- memory ---- */

typedef struct Heads {
    int64_t of_q, of_k, D;
} Heads;

static Heads heads_of(Tensor qkv, Tensor att) {
    int64_t D = att.dim[3], H = att.dim[2], all = tensor_count(qkv) / (att.dim[0] * att.dim[1] * D);
    return (Heads){H, (all - H) / 2, D};
}

bool context_swaps(Shape shape) {
    return shape.cp > 1 && shape.cp_heads > 1;
}
static bool goes_around(Shape shape) {
    return shape.cp_mode != CONTEXT_GATHER && shape.cp_heads < shape.cp;
}

/* A tensor with some of the heads, and the rows of all `ranks` ranks that swap, in place of its own. */
static Tensor of_whole(Tensor own, int ranks) {
    own.data = NULL;
    own.dim[1] *= ranks;
    own.dim[own.ndim - 2] /= ranks;
    return own;
}

static void take_swap(ContextSaved *s, Shape shape, Tensor qkv, Tensor att, Bump *saved, Bump *scratch) {
    Tensor all = tensor_1d(NULL, qkv.dtype, tensor_count(qkv));
    s->whole.qkv = tensor_take(saved, of_whole(qkv, shape.cp_heads));
    s->whole.att = tensor_take(saved, of_whole(att, shape.cp_heads));
    s->send = tensor_take(scratch, all);
    s->receive = tensor_take(scratch, all);
    if (!shape.train) return;
    s->whole.dqkv = tensor_take(scratch, s->whole.qkv);
    s->whole.datt = tensor_take(scratch, s->whole.att);
}

/* `rows` has the keys and values of a rank. */
static void take_ring(ContextSaved *s, Shape shape, Tensor rows, Tensor att, Bump *scratch) {
    for (int i = 0; i < 2; i++) s->kv[i] = tensor_take(scratch, rows);
    s->part = tensor_take(scratch, att);
    s->part_lse = tensor_take(scratch, s->lse);
    for (int i = 0; i < 2 && shape.train; i++) s->dkv[i] = tensor_take(scratch, rows);
}

ContextSaved context_saved(const ModelConfig *config, Shape shape, Tensor qkv, Tensor att, Bump *saved,
                           Bump *scratch) {
    Heads heads = heads_of(qkv, att);
    int64_t B = shape.B, T = shape.T * shape.cp_heads, H = heads.of_q / shape.cp_heads;
    int64_t M = 2 * heads.of_k / shape.cp_heads, P = shape.cp;
    Tensor rows = tensor_4d(NULL, shape.dtype, B, T, M, heads.D), all = rows;
    ContextSaved s = {.lse = tensor_take(saved, tensor_3d(NULL, DT_F32, B, H, T))};
    if (context_swaps(shape)) take_swap(&s, shape, qkv, att, saved, scratch);
    if (goes_around(shape))
        take_ring(&s, shape, rows, tensor_4d(NULL, shape.dtype, B, T, H, heads.D), scratch);
    if (shape.cp_mode != CONTEXT_GATHER) return s;
    all.dim[1] *= P;
    s.send = tensor_take(scratch, rows);
    s.kv[0] = tensor_take(scratch, all);
    s.receive = B == 1 && !has_ends(config, shape) ? s.kv[0] : tensor_take(scratch, all);
    if (shape.train) s.dkv[0] = tensor_take(scratch, all);
    return s;
}

/* ---- swap ---- */

/* Copies own rows (B,T,...) to send (P,B,T,...), or back; `count` says how many heads of each kind, or 0,
 * follow one another in a row. */
static Status pack_heads(const Pass *pass, Tensor send, Tensor own, const int64_t count[3], bool back) {
    int64_t rows = own.dim[0] * own.dim[1], D = own.dim[own.ndim - 1], row = tensor_count(own) / rows;
    int64_t P = pass->swap->size, part = row / P;
    own = as_elements(own);
    for (int64_t kind = 0, at = 0; kind < 3; kind++) {
        int64_t width = count[kind] * D, each = width / P;
        BlockSpan sent = {at / P, {rows * part, part, 0}}, owned = {at, {each, row, 0}};
        Blocks blocks = {each, {P, rows, 1}, sent, owned};
        if (back) blocks.to = owned, blocks.from = sent;
        TRY(back ? copy_blocks(pass->exec, own, send, blocks) : copy_blocks(pass->exec, send, own, blocks));
        at += width;
    }
    return OK;
}

static Tensor sized(Tensor buffer, Tensor like) {
    return tensor_1d(buffer.data, like.dtype, tensor_count(like));
}

/* whole (B,P T,n,D) from own (B,T,N,D), and back. */
static Status to_heads(const Pass *pass, const ModelConfig *c, const ContextSaved *s, Tensor whole,
                       Tensor own, const int64_t count[3]) {
    bool ordered = in_order(pass, c);
    Tensor send = sized(s->send, own), receive = sized(ordered ? whole : s->receive, own);
    TRY(pack_heads(pass, send, own, count, false));
    TRY(all_to_all(pass->swap, pass->exec->stream, receive, send, NULL, NULL, NULL));
    return ordered ? OK : place(pass, c, pass->swap->size, as_elements(whole), receive, false);
}

static Status to_rows(const Pass *pass, const ModelConfig *c, const ContextSaved *s, Tensor own, Tensor whole,
                      const int64_t count[3]) {
    bool ordered = in_order(pass, c);
    Tensor send = sized(ordered ? whole : s->send, own), receive = sized(s->receive, own);
    if (!ordered) TRY(place(pass, c, pass->swap->size, as_elements(whole), send, true));
    TRY(all_to_all(pass->swap, pass->exec->stream, receive, send, NULL, NULL, NULL));
    return pack_heads(pass, receive, own, count, true);
}

/* With some of the heads. */
static Attention spec_of_heads(const Pass *pass, Attention spec, Heads heads) {
    spec.kv_heads /= pass->swap->size;
    spec.dropout.origin[1] += pass->swap->rank * heads.of_q / pass->swap->size;
    return spec;
}

/* ---- gather ---- */

/* Copies the keys and values of own rows to rows (B,T,M,D), or back. */
static Status pack_keys(const Pass *pass, Tensor rows, Tensor own, bool back) {
    int64_t count = own.dim[0] * own.dim[1], row = tensor_count(own) / count,
            width = tensor_count(rows) / count;
    BlockSpan packed = {0, {width, 0, 0}}, owned = {row - width, {row, 0, 0}};
    Blocks blocks = {width, {count, 1, 1}, packed, owned};
    if (back) blocks.to = owned, blocks.from = packed;
    own = as_elements(own), rows = as_elements(rows);
    return back ? copy_blocks(pass->exec, own, rows, blocks) : copy_blocks(pass->exec, rows, own, blocks);
}

static Status start_keys(const Pass *pass, const ContextSaved *s, Tensor qkv, Ticket *ret_keys) {
    TRY(pack_keys(pass, s->send, qkv, false));
    return all_gather(pass->cp, pass->exec->stream, as_elements(s->receive), as_elements(s->send), ret_keys);
}

static Status place_keys(const Pass *pass, const ModelConfig *c, const ContextSaved *s) {
    if (in_order(pass, c)) return OK;
    return place(pass, c, pass->cp->size, as_elements(s->kv[0]), as_elements(s->receive), false);
}

Status context_start_back(Pass *pass, const ContextSaved *s, Tensor qkv) {
    if (pass->shape.cp_mode != CONTEXT_GATHER || pass->rerun) return OK;
    return start_keys(pass, s, qkv, &pass->keys);
}

/* Keys that are there still, have been on their way since the layer's backward began, or are not. */
static Status fetch_keys(Pass *pass, const ModelConfig *c, const ContextSaved *s, Tensor qkv) {
    if (pass->rerun) return OK;
    if (pass->keys.group)
        TRY(ticket_wait(pass->exec->stream, &pass->keys));
    else
        TRY(start_keys(pass, s, qkv, NULL));
    return place_keys(pass, c, s);
}

static Status back_gather(Pass *pass, const ModelConfig *c, const ContextSaved *s, Tensor dqkv, Tensor datt,
                          Tensor att, Tensor qkv, Attention spec) {
    Stream *stream = pass->exec->stream;
    spec.queries = pass->at;
    Tensor sums = as_elements(in_order(pass, c) ? s->dkv[0] : s->receive);
    TRY(fetch_keys(pass, c, s, qkv));
    TRY(stream_zero(stream, dqkv.data, tensor_bytes(dqkv)));
    TRY(stream_zero(stream, s->dkv[0].data, tensor_bytes(s->dkv[0])));
    spec.kv = s->kv[0];
    spec.dkv = s->dkv[0];
    TRY(attention_backward(pass->exec, dqkv, datt, att, s->lse, qkv, pass->micro->lens, spec));
    if (!in_order(pass, c)) TRY(place(pass, c, pass->cp->size, as_elements(s->dkv[0]), sums, true));
    TRY(reduce_scatter(pass->cp, stream, as_elements(s->send), sums, REDUCE_SUM, NULL));
    return pack_keys(pass, s->send, dqkv, true);
}

/* ---- ring ---- */

/* Starts to send one of two buffers to the next rank and to receive the other from the one before. */
static Status pass_on(const Pass *pass, const Tensor *buffer, int full, Ticket ticket[2]) {
    int P = pass->ring->size, rank = pass->ring->rank;
    return comm_swap(pass->ring, pass->exec->stream, as_elements(buffer[full]), (rank + 1) % P,
                     as_elements(buffer[1 - full]), (rank + P - 1) % P, ticket);
}

static Status arrived(const Pass *pass, Ticket ticket[2]) {
    TRY(ticket_wait(pass->exec->stream, &ticket[0]));
    return ticket_wait(pass->exec->stream, &ticket[1]);
}

/* The positions with which a rank of the ring attends. */
static Positions positions_at(const Pass *pass, const ModelConfig *c, int rank) {
    int ranks = pass->shape.cp_heads;
    return positions_of(c, pass->shape, rank * ranks, ranks);
}

/* The keys that are here in a step, and where they are in the sequences. */
static Attention spec_of_step(const Pass *pass, const ModelConfig *c, const ContextSaved *s, Attention spec,
                              int step) {
    int P = pass->ring->size;
    spec.kv = s->kv[step % 2];
    spec.dkv = s->dkv[step % 2];
    spec.keys = positions_at(pass, c, (pass->ring->rank - step + P) % P);
    return spec;
}

static Status ring(const Pass *pass, const ModelConfig *c, const ContextSaved *s, Tensor att, Tensor qkv,
                   Attention spec) {
    Exec *e = pass->exec;
    spec.queries = positions_at(pass, c, pass->ring->rank);
    TRY(pack_keys(pass, s->kv[0], qkv, false));
    for (int step = 0; step < pass->ring->size; step++) {
        Attention here = spec_of_step(pass, c, s, spec, step);
        Tensor lens = pass->micro->lens;
        Ticket ticket[2] = {0};
        if (step + 1 < pass->ring->size) TRY(pass_on(pass, s->kv, step % 2, ticket));
        if (step == 0)
            TRY(attention_forward(e, att, s->lse, qkv, lens, here));
        else
            TRY(attention_forward(e, s->part, s->part_lse, qkv, lens, here));
        if (step > 0) TRY(attention_combine(e, att, s->lse, s->part, s->part_lse));
        TRY(arrived(pass, ticket));
    }
    return OK;
}

static Status back_ring(const Pass *pass, const ModelConfig *c, const ContextSaved *s, Tensor dqkv,
                        Tensor datt, Tensor att, Tensor qkv, Attention spec) {
    Exec *e = pass->exec;
    int P = pass->ring->size;
    Ticket gradients[2] = {0};
    spec.queries = positions_at(pass, c, pass->ring->rank);
    TRY(pack_keys(pass, s->kv[0], qkv, false));
    TRY(stream_zero(e->stream, dqkv.data, tensor_bytes(dqkv)));
    TRY(stream_zero(e->stream, s->dkv[0].data, tensor_bytes(s->dkv[0])));
    for (int step = 0; step < P; step++) {
        Attention here = spec_of_step(pass, c, s, spec, step);
        Ticket ticket[2] = {0};
        if (step + 1 < P) TRY(pass_on(pass, s->kv, step % 2, ticket));
        TRY(arrived(pass, gradients));
        TRY(attention_backward(e, dqkv, datt, att, s->lse, qkv, pass->micro->lens, here));
        TRY(pass_on(pass, s->dkv, step % 2, gradients));
        TRY(arrived(pass, ticket));
    }
    TRY(arrived(pass, gradients));
    return pack_keys(pass, s->dkv[P % 2], dqkv, true);
}

/* ---- all ---- */

/* With the rows and heads that are here after swaps. */
static Status attend(const Pass *pass, const ModelConfig *c, const ContextSaved *s, Tensor att, Tensor qkv,
                     Attention spec) {
    if (goes_around(pass->shape)) return ring(pass, c, s, att, qkv, spec);
    if (pass->shape.cp_mode == CONTEXT_GATHER) {
        TRY(start_keys(pass, s, qkv, NULL));
        TRY(place_keys(pass, c, s));
        spec.queries = pass->at;
        spec.kv = s->kv[0];
    }
    return attention_forward(pass->exec, att, s->lse, qkv, pass->micro->lens, spec);
}

Status context_attend(const Block *block, const Pass *pass, const ContextSaved *s, Tensor att, Tensor qkv,
                      Attention spec) {
    const ModelConfig *c = block->config;
    Heads heads = heads_of(qkv, att);
    const int64_t all[3] = {heads.of_q, heads.of_k, heads.of_k}, out[3] = {heads.of_q};
    if (!context_swaps(pass->shape)) return attend(pass, c, s, att, qkv, spec);
    TRY(to_heads(pass, c, s, s->whole.qkv, qkv, all));
    TRY(attend(pass, c, s, s->whole.att, s->whole.qkv, spec_of_heads(pass, spec, heads)));
    return to_rows(pass, c, s, att, s->whole.att, out);
}

static Status attend_back(Pass *pass, const ModelConfig *c, const ContextSaved *s, Tensor dqkv, Tensor datt,
                          Tensor att, Tensor qkv, Attention spec) {
    if (goes_around(pass->shape)) return back_ring(pass, c, s, dqkv, datt, att, qkv, spec);
    if (pass->shape.cp_mode == CONTEXT_GATHER) return back_gather(pass, c, s, dqkv, datt, att, qkv, spec);
    return attention_backward(pass->exec, dqkv, datt, att, s->lse, qkv, pass->micro->lens, spec);
}

Status context_attend_back(const Block *block, Pass *pass, const ContextSaved *s, Tensor dqkv, Tensor datt,
                           Tensor att, Tensor qkv, Attention spec) {
    const ModelConfig *c = block->config;
    Heads heads = heads_of(qkv, att);
    const int64_t all[3] = {heads.of_q, heads.of_k, heads.of_k}, out[3] = {heads.of_q};
    if (!context_swaps(pass->shape)) return attend_back(pass, c, s, dqkv, datt, att, qkv, spec);
    TRY(to_heads(pass, c, s, s->whole.datt, datt, out));
    TRY(attend_back(pass, c, s, s->whole.dqkv, s->whole.datt, s->whole.att, s->whole.qkv,
                    spec_of_heads(pass, spec, heads)));
    return to_rows(pass, c, s, dqkv, s->whole.dqkv, all);
}
