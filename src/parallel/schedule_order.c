/* In which order each stage computes.
 *
 * GPipe, 1F1B and interleaved 1F1B are one scheme: some forwards to warm up, then forward and backward in
 * turn, then the backwards that are left. They differ in the length of the warm-up, and interleaving in
 * the sequence: micro-batches go in groups, a group through one chunk after the other (backward: from the
 * last chunk to the first). In a group of as many micro-batches as there are stages, a stage gets the next
 * chunk's first input just when it is done with the chunk before.
 *
 * The zero-bubble order is found by carrying out the pipeline with unit costs. A stage takes a backward's
 * input half when one is ready, for others wait for it; else the next forward; else, where 1F1B would wait,
 * a weight half. The bounds on the number of micro-batches in flight are what ends a run of forwards: those
 * of 1F1B without the deferred weight halves, and the number of stages with them. */
#include "parallel/schedule_order.h"

#include "base/memory.h"

static int smaller(int a, int b) {
    return a < b ? a : b;
}

/* Micro-batches in groups of as many as there are stages, or a few more where they do not divide evenly:
 * with fewer, a stage would come to a group's next chunk before the last stage has sent it. The first
 * `larger` groups have one more than `size`. */
typedef struct Groups {
    int size, larger;
} Groups;

static Groups groups_of(const ScheduleSpec *spec) {
    int count = spec->micros < spec->stages ? 1 : spec->micros / spec->stages;
    return (Groups){spec->micros / count, spec->micros % count};
}

/* The k-th forward of a stage. */
static Action nth_forward(const ScheduleSpec *spec, int k) {
    Groups groups = groups_of(spec);
    int size = groups.size + 1, first = 0, in_larger = groups.larger * size * spec->chunks;
    if (k >= in_larger) {
        first = groups.larger * size;
        k -= in_larger;
        size--;
    }
    first += k / (size * spec->chunks) * size;
    k %= size * spec->chunks;
    return (Action){ACTION_FORWARD, first + k % size, k / size};
}

static Action nth_backward(const ScheduleSpec *spec, int k) {
    Action action = nth_forward(spec, k);
    return (Action){ACTION_BACKWARD, action.micro, spec->chunks - 1 - action.chunk};
}

/* Forwards before the first backward's turn. */
static int warm_up(const ScheduleSpec *spec, int stage) {
    int total = spec->micros * spec->chunks, after = spec->stages - 1 - stage;
    if (spec->kind == SCHEDULE_GPIPE || spec->kind == SCHEDULE_EVAL) return total;
    if (spec->chunks == 1) return smaller(after, total);
    Groups groups = groups_of(spec);
    return smaller(2 * after + (spec->chunks - 1) * (groups.size + (groups.larger > 0)), total);
}

static void order_in_turn(const ScheduleSpec *spec, int stage, Action *action) {
    int total = spec->micros * spec->chunks, forwards = 0, backwards = 0, count = 0;
    int warm = warm_up(spec, stage), all = spec->kind == SCHEDULE_EVAL ? total : 2 * total;
    while (count < all) {
        bool forward = forwards < total && forwards <= warm + backwards;
        action[count++] = forward ? nth_forward(spec, forwards++) : nth_backward(spec, backwards++);
    }
}

/* How far a stage has come in the zero-bubble order. */
typedef struct Progress {
    int forwards, inputs, weights;
} Progress;

static ActionKind zero_bubble_next(const Orders *orders, const Progress *progress, int stage, int now) {
    const ScheduleSpec *spec = &orders->spec;
    Progress p = progress[stage];
    bool last = stage + 1 == spec->stages;
    const int *before = orders->forward_end + (stage - 1) * spec->micros;
    const int *after = orders->backward_end + (stage + 1) * spec->micros;
    bool can_back =
        p.inputs < p.forwards && (last || (p.inputs < progress[stage + 1].inputs && after[p.inputs] <= now));
    if (can_back) return ACTION_BACKWARD_INPUT;
    bool room = p.forwards - p.inputs < spec->stages - stage && p.forwards - p.weights < spec->stages;
    bool can_forward =
        p.forwards < spec->micros && room &&
        (stage == 0 || (p.forwards < progress[stage - 1].forwards && before[p.forwards] <= now));
    if (can_forward) return ACTION_FORWARD;
    return p.weights < p.inputs ? ACTION_BACKWARD_WEIGHT : ACTION_KINDS;
}

static Status order_zero_bubble(Orders *orders) {
    const ScheduleSpec *spec = &orders->spec;
    CLEANUP(mem_freep) Progress *progress = NULL;
    TRY(mem_new((size_t)spec->stages, sizeof *progress, &progress));
    int left = spec->stages * orders->count;
    for (int now = 0; left > 0; now++) {
        for (int s = 0; s < spec->stages; s++) {
            Progress *p = &progress[s];
            ActionKind kind = zero_bubble_next(orders, progress, s, now);
            if (kind == ACTION_KINDS) continue;
            int *done = kind == ACTION_FORWARD          ? &p->forwards
                        : kind == ACTION_BACKWARD_INPUT ? &p->inputs
                                                        : &p->weights;
            int at = s * orders->count + p->forwards + p->inputs + p->weights;
            orders->action[at] = (Action){kind, *done, 0};
            int *end = kind == ACTION_FORWARD ? orders->forward_end : orders->backward_end;
            if (kind != ACTION_BACKWARD_WEIGHT) end[s * spec->micros + *done] = now + 1;
            ++*done;
            left--;
        }
    }
    return OK;
}

/* When what a computation takes is there; -1 while it is not. */
static int ready_at(const Orders *orders, int stage, Action action) {
    const ScheduleSpec *spec = &orders->spec;
    int part = schedule_part(spec, stage, action.chunk), last = spec->stages * spec->chunks - 1;
    int at = part * spec->micros + action.micro;
    if (action.kind == ACTION_FORWARD) return part == 0 ? 0 : orders->forward_end[at - spec->micros];
    if (action.kind == ACTION_BACKWARD_WEIGHT) return orders->backward_end[at];
    return part == last ? orders->forward_end[at] : orders->backward_end[at + spec->micros];
}

/* Carries out one stage as far as it comes; returns how far. */
static int advance(Orders *orders, int stage, int at) {
    const ScheduleSpec *spec = &orders->spec;
    const Action *action = orders->action + (size_t)stage * (size_t)orders->count;
    int *end = orders->end + (size_t)stage * (size_t)orders->count;
    for (; at < orders->count; at++) {
        int start = ready_at(orders, stage, action[at]), before = at ? end[at - 1] : 0;
        if (start < 0) break;
        end[at] = (start > before ? start : before) + (action[at].kind == ACTION_BACKWARD ? 2 : 1);
        int slot = schedule_part(spec, stage, action[at].chunk) * spec->micros + action[at].micro;
        if (action[at].kind == ACTION_FORWARD) orders->forward_end[slot] = end[at];
        if (action[at].kind == ACTION_BACKWARD || action[at].kind == ACTION_BACKWARD_INPUT)
            orders->backward_end[slot] = end[at];
    }
    return at;
}

static Status find_ends(Orders *orders) {
    const ScheduleSpec *spec = &orders->spec;
    CLEANUP(mem_freep) int *at = NULL;
    TRY(mem_new((size_t)spec->stages, sizeof *at, &at));
    for (int i = 0; i < spec->stages * spec->chunks * spec->micros; i++)
        orders->forward_end[i] = orders->backward_end[i] = -1;
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < spec->stages; s++) {
            int to = advance(orders, s, at[s]);
            moved |= to > at[s];
            at[s] = to;
        }
    }
    for (int s = 0; s < spec->stages; s++)
        if (at[s] < orders->count)
            return FAILED("internal: stage %d of %d cannot go on after %d of %d computations (%s, %d chunks, "
                          "%d micro-batches)",
                          s, spec->stages, at[s], orders->count, schedule_name(spec->kind), spec->chunks,
                          spec->micros);
    return OK;
}

static Status find_orders(Orders *orders) {
    const ScheduleSpec *spec = &orders->spec;
    if (spec->kind == SCHEDULE_ZERO_BUBBLE) {
        TRY(order_zero_bubble(orders));
    } else {
        for (int s = 0; s < spec->stages; s++)
            order_in_turn(spec, s, orders->action + (size_t)s * (size_t)orders->count);
    }
    return find_ends(orders);
}

Status orders_init(Orders *ret_orders, const ScheduleSpec *spec) {
    int halves = spec->kind == SCHEDULE_EVAL ? 1 : spec->kind == SCHEDULE_ZERO_BUBBLE ? 3 : 2;
    CLEANUP(orders_done) Orders orders = {.spec = *spec, .count = spec->micros * spec->chunks * halves};
    size_t all = (size_t)spec->stages * (size_t)orders.count;
    TRY(mem_new(all, sizeof *orders.action, &orders.action));
    TRY(mem_new(all, sizeof *orders.end, &orders.end));
    TRY(mem_new(all, sizeof *orders.forward_end, &orders.forward_end));
    TRY(mem_new(all, sizeof *orders.backward_end, &orders.backward_end));
    TRY(find_orders(&orders));
    *ret_orders = orders;
    orders = (Orders){0};
    return OK;
}

void orders_done(Orders *orders) {
    free(orders->action);
    free(orders->end);
    free(orders->forward_end);
    free(orders->backward_end);
    *orders = (Orders){0};
}
