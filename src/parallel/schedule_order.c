/* In which order each stage computes.
 *
 * GPipe, 1F1B and interleaved 1F1B are one scheme: some forwards to warm up, then forward and backward in
 * turn, then the backwards that are left. They differ in the length of the warm-up, and interleaving in
 * the sequence: micro-batches go in groups, a group through one chunk after the other (backward: from the
 * last chunk to the first). In a group of as many micro-batches as there are stages, a stage gets the next
 * chunk's first input just when it is done with the chunk before.
 *
 * The zero-bubble order is that of 1F1B with backwards cut in half, of which other stages wait only for the
 * input half. Stage s does the weight half of a micro-batch s backwards late, so it starts sending gradients
 * earlier and has s weight halves left for where it would wait, most of them at the end. 1F1B leaves it
 * p - s of p micro-batches in flight, so with these it holds p, as the first stage does anyway. */
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
