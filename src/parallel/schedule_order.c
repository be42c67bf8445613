/* The order of computations on each stage.
 *
 * GPipe, 1F1B and interleaved 1F1B share one scheme: warm-up forwards, then alternating forward and backward,
 * then the remaining backwards. They differ in the length of the warm-up. Interleaving also changes the
 * sequence: micro-batches go in groups, each group through one chunk after the other (in backward, last chunk
 * first). With one micro-batch per stage in a group, the first input of the next chunk arrives just as the
 * previous chunk is finished.
 *
 * Zero-bubble is 1F1B with each backward split into an input half, for which other stages wait, and a weight
 * half. Stage s delays the weight half of a micro-batch by s backwards. It thus sends gradients earlier and
 * keeps s weight halves to fill the bubble, mostly at the end. 1F1B leaves stage s with p - s of p
 * micro-batches in flight, so with the delayed halves it holds p, as the first stage does anyway. */
#include "parallel/schedule_order.h"

#include "base/memory.h"

static int smaller(int a, int b) {
    return a < b ? a : b;
}

/* Groups of one micro-batch per stage, or slightly more if they do not divide evenly: in a smaller group a
 * stage would reach the next chunk before the last stage has sent its input. The first `larger` groups have
 * size + 1. */
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

/* Number of warm-up forwards. */
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

static void order_zero_bubble(const ScheduleSpec *spec, int stage, Action *action) {
    int warm = warm_up(spec, stage), count = 0, forwards = 0, weights = 0;
    while (forwards < warm) action[count++] = (Action){ACTION_FORWARD, forwards++, 0};
    for (int micro = 0; micro < spec->micros; micro++) {
        if (forwards < spec->micros) action[count++] = (Action){ACTION_FORWARD, forwards++, 0};
        action[count++] = (Action){ACTION_BACKWARD_INPUT, micro, 0};
        if (micro >= stage) action[count++] = (Action){ACTION_BACKWARD_WEIGHT, weights++, 0};
    }
    while (weights < spec->micros) action[count++] = (Action){ACTION_BACKWARD_WEIGHT, weights++, 0};
}

/* Time at which the input of a computation is available; -1 if not yet known. */
static int ready_at(const Orders *orders, int stage, Action action) {
    const ScheduleSpec *spec = &orders->spec;
    int part = schedule_part(spec, stage, action.chunk), last = spec->stages * spec->chunks - 1;
    int at = part * spec->micros + action.micro;
    if (action.kind == ACTION_FORWARD) return part == 0 ? 0 : orders->forward_end[at - spec->micros];
    if (action.kind == ACTION_BACKWARD_WEIGHT) return orders->backward_end[at];
    return part == last ? orders->forward_end[at] : orders->backward_end[at + spec->micros];
}

/* Advances one stage until its next input is unavailable; returns its new position. */
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
            return FAILED("internal: stage %d of %d is blocked after %d of %d computations (%s, %d chunks, "
                          "%d micro-batches)",
                          s, spec->stages, at[s], orders->count, schedule_name(spec->kind), spec->chunks,
                          spec->micros);
    return OK;
}

static Status find_orders(Orders *orders) {
    const ScheduleSpec *spec = &orders->spec;
    for (int s = 0; s < spec->stages; s++) {
        Action *action = orders->action + (size_t)s * (size_t)orders->count;
        if (spec->kind == SCHEDULE_ZERO_BUBBLE)
            order_zero_bubble(spec, s, action);
        else
            order_in_turn(spec, s, action);
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
    return MOVE(ret_orders, orders);
}

void orders_done(Orders *orders) {
    free(orders->action);
    free(orders->end);
    free(orders->forward_end);
    free(orders->backward_end);
    *orders = (Orders){0};
}
