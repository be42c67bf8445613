/* Gradients of mixtures of experts.
 *
 * E experts, K of them per row, R slots */
#include "gradients.h"

typedef struct Routing {
    Tensor y, weights, experts, logits, lens, load, counts, totals;
    Route spec;
} Routing;

/* y: the weights, and the two losses. */
static void forward_route(Kit *kit, void *context) {
    Routing *r = context;
    int64_t count = tensor_count(r->weights);
    double *total = r->totals.data;
    assert_ok(route_forward(&kit->exec, r->weights, r->experts, r->logits, r->lens, (Positions){0}, r->spec));
    memset(total, 0, tensor_bytes(r->totals));
    assert_ok(route_count(&kit->exec, r->counts, r->totals, r->logits, r->experts, r->load, r->spec));
    memcpy(r->y.data, r->weights.data, tensor_bytes(r->weights));
    for (int i = 0; i < 2; i++) tensor_f32(r->y)[count + i] = (float)total[i];
}

/* Logits that differ by so much that a step does not change the choice. One row is padding. */
static void route_with(Kit *kit, Route spec, RouteLoss loss) {
    enum { B = 2, T = 3, E = 6, K = 3, R = B * T * K };
    Tensor index = kit_index(kit, shape3(B, T, K), 0, 1), logits = kit_uniform(kit, shape3(B, T, E), 0, 0.05);
    for (int i = 0; i < B * T * E; i++)
        tensor_f32(logits)[i] += 0.3f * (float)((2 * (i / E) + E - i % E) % E) - 0.7f;
    if (spec.bias.data) spec.bias = kit_uniform(kit, shape1(E), -0.004, 0.004);
    Routing r = {.y = kit_take(kit, shape1(R + 2)),
                 .weights = kit_take(kit, shape3(B, T, K)),
                 .experts = index,
                 .logits = logits,
                 .lens = kit_index(kit, shape1(B), T, T + 1),
                 .load = kit_uniform(kit, shape1(E), 0, 2),
                 .counts = kit_take(kit, tensor_1d(NULL, DT_I64, E)),
                 .totals = kit_take(kit, tensor_1d(NULL, DT_F64, 3)),
                 .spec = spec};
    tensor_i32(r.lens)[1] = T - 1;
    memset(r.counts.data, 0, tensor_bytes(r.counts));
    if (loss.balance != 0) loss.load = r.load;
    Problem problem = {kit, forward_route, &r, r.y, kit_random(kit, r.y)};
    tensor_f32(problem.weight)[R] = loss.balance;
    tensor_f32(problem.weight)[R + 1] = loss.z;
    objective(&problem);
    Tensor place = kit_take(kit, index), slots = kit_take(kit, index), dweights = kit_take(kit, shape1(R)),
           dlogits = kit_take(kit, logits);
    Tensor offsets = kit_take(kit, tensor_1d(NULL, DT_I32, E + 1));
    assert_ok(expert_sort(&kit->exec, place, slots, offsets, r.experts));
    for (int i = 0; i < R; i++)
        if (tensor_i32(place)[i] >= 0)
            tensor_f32(dweights)[tensor_i32(place)[i]] = tensor_f32(problem.weight)[i];
    assert_ok(route_backward(&kit->exec, dlogits, dweights, place, logits, r.experts, loss, spec));
    check_gradient(&problem, "logits of a router", logits, dlogits);
    for (int e = 0; e < E; e++) assert_true(tensor_f32(dlogits)[(B * T - 1) * E + e] == 0);
    kit_clear(kit);
}

void test_route(void **state) {
    static float present;
    for (int flags = 0; flags < 16; flags++) {
        Route spec = {.score = flags & 1 ? ROUTE_SIGMOID : ROUTE_SOFTMAX,
                      .normalize = flags & 2,
                      .scale = flags & 4 ? 1.5f : 0};
        if (flags & 8) spec.groups = 3, spec.top_groups = 2;
        if (flags & 8) spec.bias.data = &present;
        route_with(*state, spec, (RouteLoss){0});
        route_with(*state, spec, (RouteLoss){.balance = 0.8f});
        route_with(*state, spec, (RouteLoss){.balance = 0.6f, .z = 0.3f});
    }
}

typedef struct Experts {
    Tensor y, x, w, weights, out_weights, place, slots, offsets;
    int64_t K;
    Act act;
} Experts;

static void forward_rows(Kit *kit, void *context) {
    Experts *f = context;
    assert_ok(expert_gather(&kit->exec, f->y, f->out_weights, f->x, f->weights, f->slots, f->K));
}

static void forward_combine(Kit *kit, void *context) {
    Experts *f = context;
    assert_ok(expert_combine(&kit->exec, f->y, f->x, f->place, false));
}

/* Each is the gradient of the other. One row has no experts. */
void test_expert_rows(void **state) {
    Kit *kit = *state;
    enum { M = 5, K = 2, E = 4, C = 3, R = M * K };
    Tensor experts = kit_index(kit, shape2(M, K), 0, E);
    for (int k = 0; k < K; k++) tensor_i32(experts)[2 * K + k] = -1;
    Experts f = {.y = kit_take(kit, shape2(R, C)),
                 .x = kit_random(kit, shape2(M, C)),
                 .place = kit_take(kit, experts),
                 .slots = kit_take(kit, experts),
                 .offsets = kit_take(kit, tensor_1d(NULL, DT_I32, E + 1)),
                 .K = K};
    assert_ok(expert_sort(&kit->exec, f.place, f.slots, f.offsets, experts));
    Problem gather = {kit, forward_rows, &f, f.y, kit_random(kit, f.y)};
    Tensor dx = kit_take(kit, f.x);
    assert_ok(expert_combine(&kit->exec, dx, gather.weight, f.place, false));
    check_gradient(&gather, "rows of experts", f.x, dx);
    Experts back = f;
    back.x = kit_random(kit, f.y), back.y = kit_take(kit, f.x);
    Problem combine = {kit, forward_combine, &back, back.y, kit_random(kit, back.y)};
    Tensor dxs = kit_take(kit, back.x);
    assert_ok(expert_gather(&kit->exec, dxs, TENSOR_NONE, combine.weight, TENSOR_NONE, f.slots, K));
    check_gradient(&combine, "combined rows", back.x, dxs);
}

static void forward_expert_act(Kit *kit, void *context) {
    Experts *f = context;
    assert_ok(expert_act_forward(&kit->exec, f->y, f->x, f->weights, f->offsets, f->act));
}

static Tensor zeros(Kit *kit, Tensor shape) {
    Tensor tensor = kit_take(kit, shape);
    memset(tensor.data, 0, tensor_bytes(tensor));
    return tensor;
}

/* The offsets of three experts; the second has no rows, and the last row belongs to none. */
static Tensor three_experts(Kit *kit, int32_t R) {
    Tensor offsets = kit_take(kit, tensor_1d(NULL, DT_I32, 4));
    const int32_t at[4] = {0, 2, 2, R - 1};
    memcpy(offsets.data, at, sizeof at);
    return offsets;
}

void test_expert_act(void **state) {
    Kit *kit = *state;
    enum { R = 6, F = 5 };
    for (int i = 0; i < 2 * ACT_COUNT; i++) {
        bool gated = i % 2;
        Experts f = {.y = zeros(kit, shape2(R, F)),
                     .x = kit_random(kit, shape2(R, gated ? 2 * F : F)),
                     .weights = kit_random(kit, shape1(R)),
                     .offsets = three_experts(kit, R),
                     .act = i / 2};
        avoid_zero(f.x);
        Problem problem = {kit, forward_expert_act, &f, f.y, kit_random(kit, f.y)};
        Tensor dx = zeros(kit, f.x), dweights = zeros(kit, f.weights);
        assert_ok(expert_act_backward(&kit->exec, dx, TENSOR_NONE, dweights, problem.weight, f.x, f.weights,
                                      f.offsets, f.act));
        check_gradient(&problem, "inner rows of experts", f.x, dx);
        check_gradient(&problem, "weights of experts", f.weights, dweights);
        kit_clear(kit);
    }
}

static void forward_grouped(Kit *kit, void *context) {
    Experts *f = context;
    assert_ok(grouped_forward(&kit->exec, f->y, f->x, f->w, f->offsets));
}

void test_grouped(void **state) {
    Kit *kit = *state;
    enum { R = 7, N = 4, K = 3, E = 3 };
    Experts f = {.y = zeros(kit, shape2(R, N)),
                 .x = kit_random(kit, shape2(R, K)),
                 .w = kit_random(kit, shape3(E, N, K)),
                 .offsets = three_experts(kit, R)};
    Problem problem = {kit, forward_grouped, &f, f.y, kit_random(kit, f.y)};
    Tensor dx = zeros(kit, f.x), dw = ones(kit, f.w), alone = kit_take(kit, f.w);
    assert_ok(grouped_backward_input(&kit->exec, dx, problem.weight, f.w, f.offsets));
    assert_ok(grouped_backward_weight(&kit->exec, dw, problem.weight, f.x, f.offsets, true));
    assert_ok(grouped_backward_weight(&kit->exec, alone, problem.weight, f.x, f.offsets, false));
    check_gradient(&problem, "grouped input", f.x, dx);
    check_gradient(&problem, "grouped weights", f.w, less_one(dw));
    check_gradient(&problem, "grouped weights alone", f.w, alone);
}
