/* Bandwidth-optimized collectives: the algorithm of comm/placement.h, chunk by chunk.
 *
 * An exchange proceeds in rounds. Each round covers one chunk of every part:
 *
 *   put       every rank copies its contributions to the other ranks of its domain into its input ring
 *   sum       handlers reduce the contributions of their domain to parts of other domains, and send them
 *   combine   owners reduce the contributions of their domain and the partial sums that have arrived
 *   show      handlers copy results of their parts into their result ring; owners send theirs
 *   take      every rank copies the others' results from their rings
 *
 * A reduce-scatter ends after combine; an all-gather is show and take; a broadcast is an all-gather in which
 * one rank has all data, and domains form a chain. A domain of one rank only combines and exchanges messages.
 *
 * Rings hold WINDOW rounds. Rounds are numbered through all operations of a group, which all ranks start in
 * the same order, so a rank's progress is one number per stage, and operations use the rings in turn, without
 * gaps. They wait for nothing but each other, so operations of several groups cannot block each other.
 */
#include "base/memory.h"
#include "comm/mpi/traffic.h"

enum { PARTIAL_OUT, PARTIAL_IN, RESULT_OUT, RESULT_IN, BLOCKS };
_Static_assert(BLOCKS == sizeof((Exchange){0}.flows) / sizeof(int), "an entry per block");

static Rings *rings_of(const Op *op) {
    return &((MpiGroup *)op->group->impl)->rings;
}

static const Placement *placement_of(const Op *op) {
    return op->group->placement;
}

static Flow *flow_of(const Op *op, int block, int i) {
    return &op->flow[op->exchange.first[block] + i];
}

/* ---- parts and chunks ---- */

static int64_t size_of(const Op *op) {
    return op->exchange.reduces ? (int64_t)dtype_size(op->dtype) : 1;
}

static int64_t elements_of(const Op *op, int part) {
    const Exchange *x = &op->exchange;
    if (x->root >= 0) return part == x->root ? x->count : 0;
    return part_count(x->count, op->group->size, part);
}

static int64_t first_of(const Op *op, int part) {
    return op->exchange.root >= 0 ? 0 : part_first(op->exchange.count, op->group->size, part);
}

/* Elements of a part in a round. */
static int64_t chunk_of(const Op *op, int part, int64_t round) {
    int64_t left = elements_of(op, part) - round * op->exchange.chunk;
    return left < 0 ? 0 : left < op->exchange.chunk ? left : op->exchange.chunk;
}

/* The parts that local rank i handles, its own first. */
static const int *parts_of(const Op *op, int i, int *ret_count) {
    const Placement *p = placement_of(op);
    *ret_count = p->handled_start[i + 1] - p->handled_start[i];
    return p->handled + p->handled_start[i];
}

/* A chunk in a tensor that has all parts. */
static char *chunk_at(const Op *op, char *tensor, int part, int64_t round) {
    return tensor + (first_of(op, part) + round * op->exchange.chunk) * size_of(op);
}

static char *segment_at(const Op *op, int i, uint64_t round, size_t ring, size_t stride) {
    return (char *)rings_of(op)->segment[i] + SEGMENT_HEAD + ring + round % WINDOW * stride;
}

/* A chunk in the input ring of local rank i; `round` counts all rounds of the group. */
static char *input_at(const Op *op, int i, int part, uint64_t round) {
    return segment_at(op, i, round, 0, rings_of(op)->bytes.input) + part * op->exchange.chunk * size_of(op);
}

/* The same in the result ring of the part's handler. */
static char *result_at(const Op *op, int i, int part, uint64_t round) {
    const RoundBytes *bytes = &rings_of(op)->bytes;
    int place = op->exchange.root >= 0 ? 0 : placement_of(op)->place[part];
    return segment_at(op, i, round, WINDOW * bytes->input, bytes->result) +
           place * op->exchange.chunk * size_of(op);
}

/* ---- progress ---- */

static bool shares(const Op *op) {
    return placement_of(op)->locals > 1;
}

static Progress *progress_of(const Op *op, int i) {
    return &rings_of(op)->segment[i]->progress;
}

static Progress *own_progress(const Op *op) {
    return progress_of(op, placement_of(op)->local);
}

static uint64_t read_counter(_Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_acquire);
}

static void set_counter(_Atomic uint64_t *counter, uint64_t value) {
    atomic_store_explicit(counter, value, memory_order_release);
}

/* Whether `next`, a number of finished rounds, is a round of this operation, which starts at `first`. */
static bool has_turn(const Op *op, uint64_t next, uint64_t first) {
    return next >= first && next < first + (uint64_t)op->exchange.rounds;
}

/* How many of this operation's rounds are among the first `finished`. */
static int64_t rounds_in(const Op *op, uint64_t finished, uint64_t first) {
    if (finished <= first) return 0;
    int64_t rounds = (int64_t)(finished - first);
    return rounds < op->exchange.rounds ? rounds : op->exchange.rounds;
}

static bool flow_has(const Flow *flow, int64_t round) {
    return flow->done > round || flow->done == flow->count;
}

static bool block_has(const Op *op, int block, int64_t round) {
    for (int i = 0; i < op->exchange.flows[block]; i++)
        if (!flow_has(flow_of(op, block, i), round)) return false;
    return true;
}

static bool inputs_ready(const Op *op, uint64_t round) {
    const Placement *p = placement_of(op);
    for (int i = 0; i < p->locals; i++)
        if (i != p->local && read_counter(&progress_of(op, i)->put) <= round) return false;
    return true;
}

/* ---- stages ---- */

static bool input_is_free(const Op *op, uint64_t round) {
    const Placement *p = placement_of(op);
    for (int i = 0; i < p->locals; i++)
        if (i != p->local && read_counter(&progress_of(op, i)->used) + WINDOW <= round) return false;
    return true;
}

static bool put(Op *op) {
    const Placement *p = placement_of(op);
    _Atomic uint64_t *count = &own_progress(op)->put;
    uint64_t at = atomic_load_explicit(count, memory_order_relaxed);
    if (!has_turn(op, at, op->exchange.put) || !input_is_free(op, at)) return false;
    int64_t round = (int64_t)(at - op->exchange.put);
    for (int q = 0; q < p->size; q++) {
        int64_t bytes = chunk_of(op, q, round) * size_of(op);
        if (p->handler[q] != p->rank && bytes > 0)
            memcpy(input_at(op, p->local, q, at), chunk_at(op, op->exchange.src, q, round), (size_t)bytes);
    }
    set_counter(count, at + 1);
    return true;
}

/* The contributions of this domain's ranks. */
static void add_inputs(const Op *op, int part, uint64_t at) {
    const Placement *p = placement_of(op);
    const int *member = p->member + p->start[p->domain[p->rank]];
    int64_t round = (int64_t)(at - op->exchange.put);
    for (int i = 0; i < p->locals; i++) {
        const char *data =
            i == p->local ? chunk_at(op, op->exchange.src, part, round) : input_at(op, i, part, at);
        op->exchange.source[member[i]] = (Source){data, member[i] + 1, false};
    }
}

/* Places the partial sums of a domain in a message of `count` elements: wide ones first, for alignment. */
static void place_partials(const Op *op, int domain, char *message, int64_t count, Source *ret_source) {
    const Placement *p = placement_of(op);
    for (int wide = 1; wide >= 0; wide--)
        for (int i = p->partials[domain]; i < p->partials[domain + 1]; i++) {
            RankSpan span = p->partial[i];
            if ((span.end - span.first > 1) != wide) continue;
            int64_t size = (int64_t)dtype_size(op->dtype);
            ret_source[span.first] = (Source){message, span.end, wide};
            message += count * (wide && size < 4 ? 4 : size);
        }
}

/* Releases the inputs of a round to the other ranks. */
static void release_inputs(const Op *op) {
    const Rings *rings = rings_of(op);
    if (!shares(op)) return;
    bool sums = op->exchange.flows[PARTIAL_OUT] > 0;
    set_counter(&own_progress(op)->used,
                sums && rings->summed < rings->combined ? rings->summed : rings->combined);
}

static bool sum(Op *op) {
    Rings *rings = rings_of(op);
    const Placement *p = placement_of(op);
    Exchange *x = &op->exchange;
    uint64_t at = rings->summed;
    int domain = p->domain[p->rank];
    if (!has_turn(op, at, x->put) || rings->sent + WINDOW <= at || !inputs_ready(op, at)) return false;
    int64_t round = (int64_t)(at - x->put);
    for (int i = 0; i < x->flows[PARTIAL_OUT]; i++) {
        Flow *flow = flow_of(op, PARTIAL_OUT, i);
        int64_t count = chunk_of(op, flow->peer, round);
        Source *to = x->source + p->size;
        place_partials(op, domain, flow->base + at % WINDOW * (uint64_t)flow->stride, count, to);
        add_inputs(op, flow->peer, at);
        for (int k = p->partials[domain]; k < p->partials[domain + 1] && count > 0; k++) {
            RankSpan span = p->partial[k];
            const Source *out = &to[span.first];
            reduce_tree((void *)(uintptr_t)out->data, x->source, span, count, op->dtype, op->reduce,
                        out->wide);
        }
        flow->limit = round + 1 < flow->count ? round + 1 : flow->count;
    }
    rings->summed++;
    release_inputs(op);
    return true;
}

static bool combine(Op *op) {
    Rings *rings = rings_of(op);
    const Placement *p = placement_of(op);
    Exchange *x = &op->exchange;
    uint64_t at = rings->combined;
    if (!has_turn(op, at, x->put)) return false;
    int64_t round = (int64_t)(at - x->put), count = chunk_of(op, p->rank, round);
    if (!block_has(op, PARTIAL_IN, round) || (shares(op) && !inputs_ready(op, at))) return false;
    add_inputs(op, p->rank, at);
    for (int i = 0; i < x->flows[PARTIAL_IN]; i++) {
        const Flow *flow = flow_of(op, PARTIAL_IN, i);
        place_partials(op, p->domain[flow->peer], flow->base + at % WINDOW * (uint64_t)flow->stride, count,
                       x->source);
    }
    reduce_tree(x->own + round * x->chunk * size_of(op), x->source, (RankSpan){0, p->size}, count, op->dtype,
                op->reduce, false);
    rings->combined++;
    release_inputs(op);
    return true;
}

static bool result_is_free(const Op *op, uint64_t round) {
    const Placement *p = placement_of(op);
    for (int i = 0; i < p->locals; i++)
        if (i != p->local && read_counter(&progress_of(op, i)->taken) + WINDOW <= round) return false;
    return true;
}

static bool show(Op *op) {
    const Placement *p = placement_of(op);
    const Exchange *x = &op->exchange;
    _Atomic uint64_t *count = &own_progress(op)->shown;
    uint64_t at = atomic_load_explicit(count, memory_order_relaxed);
    if (!has_turn(op, at, x->show) || !result_is_free(op, at)) return false;
    int64_t round = (int64_t)(at - x->show);
    if (x->reduces && rounds_in(op, rings_of(op)->combined, x->put) <= round) return false;
    if (!block_has(op, RESULT_IN, round)) return false;
    int parts;
    const int *part = parts_of(op, p->local, &parts);
    for (int i = 0; i < parts; i++) {
        int64_t bytes = chunk_of(op, part[i], round) * size_of(op);
        if (bytes > 0)
            memcpy(result_at(op, p->local, part[i], at), chunk_at(op, x->dst, part[i], round), (size_t)bytes);
    }
    set_counter(count, at + 1);
    return true;
}

/* Takes what local rank i shows. */
static bool take_from(Op *op, int i) {
    uint64_t *took = &rings_of(op)->took[i], at = *took;
    if (!has_turn(op, at, op->exchange.show) || read_counter(&progress_of(op, i)->shown) <= at) return false;
    int64_t round = (int64_t)(at - op->exchange.show);
    int parts;
    const int *part = parts_of(op, i, &parts);
    for (int k = 0; k < parts; k++) {
        int64_t bytes = chunk_of(op, part[k], round) * size_of(op);
        if (bytes > 0)
            memcpy(chunk_at(op, op->exchange.dst, part[k], round), result_at(op, i, part[k], at),
                   (size_t)bytes);
    }
    (*took)++;
    return true;
}

static uint64_t took_least(const Op *op) {
    const Placement *p = placement_of(op);
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < p->locals; i++)
        if (i != p->local && rings_of(op)->took[i] < least) least = rings_of(op)->took[i];
    return least;
}

static bool take(Op *op) {
    const Placement *p = placement_of(op);
    bool moved = false;
    for (int i = 1; i < p->locals; i++) moved |= take_from(op, (p->local + i) % p->locals);
    if (moved) set_counter(&own_progress(op)->taken, took_least(op));
    return moved;
}

/* ---- flows ---- */

static void set_limit(Flow *flow, int64_t limit) {
    flow->limit = limit < flow->count ? limit : flow->count;
}

/* Rounds of results that have arrived from all other domains. */
static int64_t received(const Op *op) {
    int64_t least = op->exchange.rounds;
    for (int i = 0; i < op->exchange.flows[RESULT_IN]; i++) {
        const Flow *flow = flow_of(op, RESULT_IN, i);
        if (flow->done < flow->count && flow->done < least) least = flow->done;
    }
    return least;
}

/* Partial sums are received while there is staging memory; a result is received into memory whose
 * contribution is no longer needed, and sent when it is complete. Short messages leave before the receiver
 * asks for them, so a rank sends no more than WINDOW rounds beyond those it has received: it then is at most
 * so far ahead of the others. */
static void open_flows(Op *op) {
    Rings *rings = rings_of(op);
    const Exchange *x = &op->exchange;
    if (x->flows[PARTIAL_OUT] && has_turn(op, rings->sent, x->put) && shares(op)) {
        int64_t sent = x->rounds;
        for (int i = 0; i < x->flows[PARTIAL_OUT]; i++) {
            const Flow *flow = flow_of(op, PARTIAL_OUT, i);
            if (flow->done < flow->count && flow->done < sent) sent = flow->done;
        }
        /* A part that has one round less is complete only after the last. */
        int64_t summed = rounds_in(op, rings->summed, x->put);
        rings->sent = x->put + (uint64_t)(sent < summed ? sent : summed);
    }
    int64_t room = rings->combined + WINDOW > x->put ? (int64_t)(rings->combined + WINDOW - x->put) : 0;
    for (int i = 0; i < x->flows[PARTIAL_IN]; i++) set_limit(flow_of(op, PARTIAL_IN, i), room);
    for (int i = 0; !shares(op) && i < x->flows[PARTIAL_OUT]; i++)
        set_limit(flow_of(op, PARTIAL_OUT, i), room);
    for (int i = 0; !x->reduces && x->root < 0 && i < x->flows[RESULT_OUT]; i++)
        set_limit(flow_of(op, RESULT_OUT, i), received(op) + WINDOW);
    for (int i = 0; x->reduces && i < x->flows[RESULT_OUT]; i++)
        set_limit(flow_of(op, RESULT_OUT, i), rounds_in(op, rings->combined, x->put));
    for (int i = 0; x->reduces && i < x->flows[RESULT_IN]; i++)
        set_limit(flow_of(op, RESULT_IN, i), flow_of(op, PARTIAL_OUT, i)->done);
    /* The middle of a chain forwards what has arrived. */
    if (x->root >= 0 && x->flows[RESULT_OUT] && x->flows[RESULT_IN])
        set_limit(flow_of(op, RESULT_OUT, 0), flow_of(op, RESULT_IN, 0)->done);
}

static bool is_done(const Op *op) {
    const Rings *rings = rings_of(op);
    const Exchange *x = &op->exchange;
    uint64_t put_end = x->put + (uint64_t)x->rounds, show_end = x->show + (uint64_t)x->rounds;
    if (!flows_done(op)) return false;
    if (x->reduces && rings->combined < put_end) return false;
    if (!shares(op)) return true;
    if (x->flows[PARTIAL_OUT] && rings->sent < put_end) return false;
    Progress *own = own_progress(op);
    if (x->reduces && atomic_load_explicit(&own->used, memory_order_relaxed) < put_end) return false;
    if (x->reduces && atomic_load_explicit(&own->put, memory_order_relaxed) < put_end) return false;
    if (!x->spreads) return true;
    return atomic_load_explicit(&own->shown, memory_order_relaxed) >= show_end && took_least(op) >= show_end;
}

static bool step_exchange(Traffic *traffic, Op *op) {
    const Exchange *x = &op->exchange;
    bool moved = flows_move(traffic, op), more = false;
    if (x->reduces && shares(op)) more |= put(op);
    if (x->reduces && shares(op) && x->flows[PARTIAL_OUT]) more |= sum(op);
    if (x->reduces) more |= combine(op);
    if (x->spreads && shares(op)) more |= show(op);
    if (x->spreads && shares(op)) more |= take(op);
    open_flows(op);
    if (more || moved) flows_move(traffic, op);
    op->done = is_done(op);
    return moved || more;
}

/* Partial sums: one flow to the owner of each other part that this rank handles, and one from the handler of
 * this rank's part in each other domain. */
static void set_partials(Op *op, int tag) {
    const Placement *p = placement_of(op);
    const Rings *rings = rings_of(op);
    const Exchange *x = &op->exchange;
    int parts, own = p->domain[p->rank];
    const int *part = parts_of(op, p->local, &parts);
    char *staging = rings->staging;
    int64_t each = partial_bytes(p, own, op->dtype);
    for (int i = 1; i < parts; i++) {
        Flow *flow = flow_of(op, PARTIAL_OUT, i - 1);
        bool staged = shares(op);
        flow_set(flow, part[i], tag, true, staged ? staging : chunk_at(op, x->src, part[i], 0),
                 elements_of(op, part[i]) * each, x->chunk * each);
        if (!staged) continue;
        flow->stride = (int64_t)rings->bytes.staging;
        flow->turn = x->put;
        flow->limit = 0;
        staging += flow->piece;
    }
    for (int i = 1; i < p->domains; i++) {
        int domain = (own + i) % p->domains;
        each = partial_bytes(p, domain, op->dtype);
        Flow *flow = flow_of(op, PARTIAL_IN, i - 1);
        flow_set(flow, p->peer[domain], tag, false, staging, elements_of(op, p->rank) * each,
                 x->chunk * each);
        flow->stride = (int64_t)rings->bytes.staging;
        flow->turn = x->put;
        flow->limit = 0;
        staging += flow->piece;
    }
}

static void set_result(Op *op, int block, int i, int peer, int tag, char *base, int64_t elements) {
    const Exchange *x = &op->exchange;
    int64_t size = size_of(op);
    Flow *flow = flow_of(op, block, i);
    flow_set(flow, peer, tag, block == RESULT_OUT, base, elements * size, x->chunk * size);
    if (x->reduces) flow->limit = 0;
}

/* Results: the reverse. */
static void set_results(Op *op, int tag) {
    const Placement *p = placement_of(op);
    const Exchange *x = &op->exchange;
    int parts, own = p->domain[p->rank];
    const int *part = parts_of(op, p->local, &parts);
    for (int i = 1; i < p->domains; i++)
        set_result(op, RESULT_OUT, i - 1, p->peer[(own + i) % p->domains], tag, x->own,
                   elements_of(op, p->rank));
    for (int i = 1; i < parts; i++)
        set_result(op, RESULT_IN, i - 1, part[i], tag, chunk_at(op, x->dst, part[i], 0),
                   elements_of(op, part[i]));
}

/* Broadcasts: from the handler in the previous domain of the chain to the one in the next. */
static void set_chain(Op *op, int tag) {
    const Placement *p = placement_of(op);
    const Exchange *x = &op->exchange;
    int own = p->domain[p->rank], before = (own + p->domains - 1) % p->domains;
    if (x->flows[RESULT_OUT])
        set_result(op, RESULT_OUT, 0, placement_handler(p, (own + 1) % p->domains, x->root), tag, x->dst,
                   x->count);
    if (!x->flows[RESULT_IN]) return;
    set_result(op, RESULT_IN, 0, placement_handler(p, before, x->root), tag, x->dst, x->count);
    if (x->flows[RESULT_OUT]) flow_of(op, RESULT_OUT, 0)->limit = 0;
}

static void count_flows(const Op *op, Exchange *x) {
    const Placement *p = placement_of(op);
    int parts, own = p->domain[p->rank];
    parts_of(op, p->local, &parts);
    if (x->reduces) {
        x->flows[PARTIAL_OUT] = parts - 1;
        x->flows[PARTIAL_IN] = p->domains - 1;
    }
    if (x->spreads && x->root < 0) {
        x->flows[RESULT_OUT] = p->domains - 1;
        x->flows[RESULT_IN] = parts - 1;
    } else if (x->spreads && p->handler[x->root] == p->rank) {
        x->flows[RESULT_OUT] = (own + 1) % p->domains != p->domain[x->root];
        x->flows[RESULT_IN] = x->root != p->rank;
    }
    for (int block = 1; block < BLOCKS; block++) x->first[block] = x->first[block - 1] + x->flows[block - 1];
}

/* Assigns rounds, on all ranks alike. */
static void assign_rounds(Op *op, Exchange *x) {
    Rings *rings = rings_of(op);
    int64_t largest = x->root >= 0 ? x->count : part_count(x->count, op->group->size, 0);
    x->rounds = (largest + x->chunk - 1) / x->chunk;
    x->put = rings->puts;
    x->show = rings->shows;
    if (x->reduces) rings->puts += (uint64_t)x->rounds;
    if (x->spreads) rings->shows += (uint64_t)x->rounds;
}

/* Messages for a chunk of the largest flow of any rank: all ranks divide chunks alike. */
static int messages_for(const Op *op, const Exchange *x) {
    const Placement *p = placement_of(op);
    int64_t each = x->reduces ? (int64_t)dtype_size(op->dtype) : 1;
    for (int domain = 0; x->reduces && domain < p->domains; domain++) {
        int64_t partial = partial_bytes(p, domain, op->dtype);
        if (partial > each) each = partial;
    }
    return x->root < 0 ? messages_of(x->chunk * each) : 1;
}

Status exchange_prepare(Op *op, Exchange x, Tags tags) {
    const Placement *p = placement_of(op);
    x.chunk = x.reduces ? reduce_chunk(p, op->dtype) : x.root < 0 ? gather_chunk(p) : broadcast_chunk(p);
    x.source = op->exchange.source;
    count_flows(op, &x);
    TRY(rings_prepare(op->group, op->device));
    TRY(op_add_flows(op, x.first[BLOCKS - 1] + x.flows[BLOCKS - 1], messages_for(op, &x)));
    assign_rounds(op, &x);
    op->exchange = x;
    op->step = step_exchange;
    if (x.reduces) set_partials(op, tags.data);
    if (x.spreads && x.root < 0) set_results(op, tags.gather);
    if (x.spreads && x.root >= 0) set_chain(op, tags.gather);
    return OK;
}
