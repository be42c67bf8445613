/* Expert parallelism: each of P ranks has E/P of the experts. Rows of tokens travel to the ranks of their
 * experts and back, each as often as its token chose an expert there:
 *
 *   rows (R,C) by expert -> all-to-all -> arrived (N,C) by rank, then expert -> rows (N,C) by expert -> ...
 *
 * There, they are tokens that chose one expert each, so the same operations sort them. How many arrive
 * depends on what all ranks' routers chose, so their memory grows with it. Weights travel beside the rows;
 * gradients take the same ways. What arrived is kept for backward, except by layers that are recomputed. */
#include <math.h>

#include "base/memory.h"
#include "model/parts/moe_set.h"

static void traffic_done(Traffic *traffic) {
    free(traffic->counts);
}

/* ---- memory ---- */

static void layout(const Block *block, const Pass *pass, const Experts *set, int64_t N, Bump *bump,
                   Received *r) {
    Shape shape = pass->shape;
    int64_t C = block->config->hidden, F = set->inner / shape.tp;
    Bump *saved = &bump[RECEIVED_SAVED], *scratch = &bump[RECEIVED_SCRATCH];
    Bump *late = pass->deferred.data ? &bump[RECEIVED_DEFERRED] : scratch;
    r->chosen = tensor_take(saved, tensor_2d(NULL, DT_I32, N, 1));
    r->place = tensor_take(saved, tensor_2d(NULL, DT_I32, N, 1));
    r->slots = tensor_take(saved, tensor_1d(NULL, DT_I32, N));
    r->offsets = tensor_take(saved, tensor_1d(NULL, DT_I32, set->count / set->ranks + 1));
    r->weights = tensor_take(saved, tensor_1d(NULL, DT_F32, N));
    r->inputs = tensor_take(saved, tensor_2d(NULL, shape.dtype, N, C));
    r->pre = tensor_take(saved, tensor_2d(NULL, shape.dtype, N, 2 * F));
    r->grads = tensor_take(late, tensor_2d(NULL, shape.dtype, N, C));
    r->act = tensor_take(late, tensor_2d(NULL, shape.dtype, N, F));
    r->arrived = tensor_take(scratch, tensor_2d(NULL, shape.dtype, N, C));
    r->rows = tensor_take(scratch, tensor_2d(NULL, shape.dtype, N, C));
    r->each = tensor_take(scratch, tensor_2d(NULL, DT_F32, N, 1));
    r->by_row = tensor_take(scratch, tensor_1d(NULL, DT_F32, N));
    if (!shape.fake_quant) return;
    r->rounded = tensor_take(scratch, tensor_2d(NULL, shape.dtype, N, C > F ? C : F));
    r->largest = tensor_take(scratch, tensor_1d(NULL, DT_F32, N));
}

/* A little more than asked for, so that it rarely grows again. */
static Status grow(Device *device, MemTag tag, size_t bytes, Buffer *buffer) {
    if (buffer->bytes >= bytes) return OK;
    bool first = !buffer->data;
    dev_free(buffer);
    return dev_alloc(device, tag, first ? bytes : bytes + bytes / 8, buffer);
}

/* The memory for N rows, at least one, since tensors without memory are absent; it keeps its contents if it
 * has been large enough. */
static Status memory(const Block *block, const Pass *pass, const Experts *set, int64_t N, Received *r) {
    Bump bump[RECEIVED_COUNT] = {{0}};
    layout(block, pass, set, N ? N : 1, bump, r);
    for (int i = 0; i < RECEIVED_COUNT; i++) {
        MemTag tag = i == RECEIVED_SCRATCH ? MEM_SCRATCH : MEM_ACTIVATIONS;
        if (!bump[i].used) continue;
        TRY(grow(pass->exec->stream->device, tag, bump[i].used, pass->received[i]));
        bump[i] = (Bump){.base = pass->received[i]->data, .size = pass->received[i]->bytes};
    }
    layout(block, pass, set, N, bump, r);
    return OK;
}

/* ---- traffic ---- */

/* In plans, tokens of all ranks choose the experts of this one `imbalance` times as often as the mean, and
 * the others alike. */
static void plan_traffic(const Pass *pass, const Experts *set, const MoeRows *s, Traffic *t) {
    int ranks = set->ranks, self = pass->expert->rank;
    int64_t R = tensor_count(s->slots);
    double more = pass->shape.imbalance > 1 ? pass->shape.imbalance : 1, own = ceil(more * (double)R / ranks);
    int64_t here = own < (double)R ? (int64_t)own : R, rest = R - here;
    for (int i = 0, other = 0; i < ranks; i++) {
        t->out[i] = i == self ? here : rest * (other + 1) / (ranks - 1) - rest * other / (ranks - 1);
        t->in[i] = here;
        other += i != self;
    }
}

/* Ranks tell each other how many rows they have for each expert. */
static Status count_traffic(const Pass *pass, const Experts *set, const MoeRows *s, Traffic *t) {
    Stream *stream = pass->exec->stream;
    int64_t E = set->count, here = E / set->ranks;
    CLEANUP(mem_freep) int32_t *offsets = NULL;
    TRY(mem_new((size_t)(2 * E + 1), sizeof *offsets, &offsets));
    int32_t *counts = offsets + E + 1;
    TRY(stream_copy(stream, offsets, s->offsets.data, tensor_bytes(s->offsets), COPY_TO_HOST));
    TRY(stream_sync(stream));
    for (int64_t e = 0; e < E; e++) {
        counts[e] = offsets[e + 1] - offsets[e];
        t->out[e / here] += counts[e];
    }
    TRY(stream_copy(stream, s->tally.data, counts, (size_t)E * sizeof *counts, COPY_TO_DEVICE));
    Tensor mine = tensor_2d(s->tally.data, DT_I32, E, 1), theirs = mine;
    theirs.data = tensor_i32(s->tally) + E;
    TRY(all_to_all(pass->expert, stream, theirs, mine, NULL, NULL, NULL));
    TRY(stream_copy(stream, counts, theirs.data, (size_t)E * sizeof *counts, COPY_TO_HOST));
    TRY(stream_sync(stream));
    for (int64_t i = 0; i < E; i++) {
        t->counts[i] = counts[i];
        t->in[i / here] += counts[i];
    }
    return OK;
}

/* In backward, what forward has found. */
static Status known_traffic(const Pass *pass, const Experts *set, const MoeRows *s, Traffic *t) {
    Stream *stream = pass->exec->stream;
    int64_t E = set->count, here = E / set->ranks;
    CLEANUP(mem_freep) int32_t *counts = NULL;
    TRY(mem_new((size_t)(2 * E), sizeof *counts, &counts));
    TRY(stream_copy(stream, counts, s->tally.data, (size_t)(2 * E) * sizeof *counts, COPY_TO_HOST));
    TRY(stream_sync(stream));
    for (int64_t e = 0; e < E; e++) {
        t->out[e / here] += counts[e];
        t->in[e / here] += counts[E + e];
    }
    return OK;
}

static Status traffic_of(const Pass *pass, const Experts *set, const MoeRows *s, bool known, Traffic *t) {
    size_t ranks = (size_t)set->ranks;
    TRY(mem_new((size_t)set->count + 2 * ranks, sizeof *t->counts, &t->counts));
    t->out = t->counts + set->count;
    t->in = t->out + ranks;
    TRY(known ? known_traffic(pass, set, s, t) : count_traffic(pass, set, s, t));
    if (device_is_dryrun(pass->exec->stream->device)) plan_traffic(pass, set, s, t);
    for (int i = 0; i < set->ranks; i++) {
        t->sent += t->out[i];
        t->arrived += t->in[i];
    }
    return OK;
}

/* Moves rows to their experts, or back. */
static Status send_rows(const Pass *pass, const Traffic *t, Tensor arrived, Tensor own, Ticket *ret_ticket) {
    return all_to_all(pass->expert, pass->exec->stream, arrived, tensor_slice(own, 0, t->sent), t->in, t->out,
                      ret_ticket);
}
static Status return_rows(const Pass *pass, const Traffic *t, Tensor own, Tensor arrived) {
    return all_to_all(pass->expert, pass->exec->stream, tensor_slice(own, 0, t->sent), arrived, t->out, t->in,
                      NULL);
}

static Tensor as_column(Tensor t) {
    return tensor_2d(t.data, t.dtype, tensor_count(t), 1);
}

/* ---- forward ---- */

/* The experts of the rows that arrived: each rank's rows are in the order of experts. */
static Status sort(const Pass *pass, const Experts *set, const Traffic *t, const Received *r) {
    int64_t E = set->count / set->ranks, at = 0;
    CLEANUP(mem_freep) int32_t *chosen = NULL;
    TRY(mem_new((size_t)t->arrived, sizeof *chosen, &chosen));
    for (int64_t i = 0; i < set->count; i++)
        for (int64_t k = 0; k < t->counts[i]; k++) chosen[at++] = (int32_t)(i % E);
    TRY(stream_copy(pass->exec->stream, r->chosen.data, chosen, (size_t)t->arrived * sizeof *chosen,
                    COPY_TO_DEVICE));
    TRY(stream_sync(pass->exec->stream));
    return expert_sort(pass->exec, r->place, r->slots, r->offsets, r->chosen);
}

/* What has been sent is in place. */
static Status run_up(const Block *block, Pass *pass, const Experts *set, MoeSent *sent) {
    Exec *e = pass->exec;
    const Received *r = &sent->received;
    TRY(sort(pass, set, &sent->traffic, r));
    TRY(ticket_wait(e->stream, &sent->rows));
    TRY(ticket_wait(e->stream, &sent->weights));
    TRY(expert_gather(e, r->inputs, r->weights, r->arrived, r->each, r->slots, 1));
    return experts_run(block, pass, r->pre, r->inputs, experts_up(block, pass->param, set), false, r->offsets,
                       r);
}

void moe_sent_done(MoeSent *sent) {
    free(sent->traffic.counts);
}

Status moe_ranks_send(const Block *block, Pass *pass, const Experts *set, const MoeRows *s, bool back,
                      MoeSent *sent) {
    Received *r = &sent->received;
    TRY(traffic_of(pass, set, s, back, &sent->traffic));
    TRY(memory(block, pass, set, sent->traffic.arrived, r));
    TRY(send_rows(pass, &sent->traffic, r->arrived, s->rows, &sent->rows));
    return back ? OK : send_rows(pass, &sent->traffic, r->each, as_column(s->weights), &sent->weights);
}

Status moe_ranks_run(const Block *block, Pass *pass, const Experts *set, const MoeRows *s, MoeSent *sent) {
    Exec *e = pass->exec;
    const Received *r = &sent->received;
    TRY(run_up(block, pass, set, sent));
    TRY(expert_act_forward(e, r->act, r->pre, r->weights, r->offsets, block->config->act));
    TRY(experts_run(block, pass, r->rows, r->act, experts_down(block, pass->param, set), true, r->offsets,
                    r));
    TRY(expert_combine(e, r->arrived, r->rows, r->place, false));
    return return_rows(pass, &sent->traffic, s->rows, r->arrived);
}

Status moe_ranks_rerun(const Block *block, Pass *pass, const Experts *set, MoeSent *sent) {
    return run_up(block, pass, set, sent);
}

/* ---- backward ---- */

static Status down_gradient(const Block *block, Pass *pass, const Experts *set, const Received *r) {
    return experts_gradient(block, pass, set->down, experts_down(block, pass->grad, set), r->grads, r->act,
                            r->offsets, r);
}
static Status up_gradient(const Block *block, Pass *pass, const Experts *set, const Received *r) {
    return experts_gradient(block, pass, set->up, experts_up(block, pass->grad, set), r->pre, r->inputs,
                            r->offsets, r);
}

Status moe_ranks_back(const Block *block, Pass *pass, const Experts *set, MoeSent *sent) {
    Exec *e = pass->exec;
    const Received *r = &sent->received;
    TRY(ticket_wait(e->stream, &sent->rows));
    TRY(expert_gather(e, r->grads, TENSOR_NONE, r->arrived, TENSOR_NONE, r->slots, 1));
    TRY(experts_back(block, pass, r->act, r->grads, experts_down(block, pass->param, set), true, r->offsets));
    TRY(expert_act_backward(e, r->pre, r->act, r->by_row, r->act, r->pre, r->weights, r->offsets,
                            block->config->act));
    return pass->deferred.data ? OK : down_gradient(block, pass, set, r);
}

Status moe_ranks_back_input(const Block *block, Pass *pass, const Experts *set, const MoeRows *s) {
    Exec *e = pass->exec;
    CLEANUP(traffic_done) Traffic t = {0};
    Received r;
    TRY(traffic_of(pass, set, s, true, &t));
    TRY(memory(block, pass, set, t.arrived, &r));
    if (!pass->deferred.data) TRY(up_gradient(block, pass, set, &r));
    TRY(experts_back(block, pass, r.rows, r.pre, experts_up(block, pass->param, set), false, r.offsets));
    TRY(expert_combine(e, r.arrived, r.rows, r.place, false));
    TRY(expert_combine(e, r.each, as_column(r.by_row), r.place, false));
    TRY(return_rows(pass, &t, s->rows, r.arrived));
    return return_rows(pass, &t, as_column(s->each), r.each);
}

Status moe_ranks_weights(const Block *block, Pass *pass, const Experts *set, const MoeRows *s) {
    CLEANUP(traffic_done) Traffic t = {0};
    Received r;
    TRY(traffic_of(pass, set, s, true, &t));
    TRY(memory(block, pass, set, t.arrived, &r));
    TRY(down_gradient(block, pass, set, &r));
    return up_gradient(block, pass, set, &r);
}
