/* Sweep cases: mixtures of experts.
 *
 * M rows, E experts, K of them per row, R slots, C and F widths */
#include <math.h>

#include "sweep.h"

/* Cases {B, T, E, K}. */
static void over_routes(Sweep *sweep, Body body, unsigned flags, double tolerance) {
    static const int64_t sizes[][4] = {{1, 1, 1, 1},   {1, 1, 8, 2},    {2, 3, 4, 4},    {3, 7, 8, 2},
                                       {2, 9, 12, 3},  {1, 5, 16, 1},   {2, 31, 60, 4},  {5, 13, 64, 8},
                                       {1, 17, 65, 6}, {3, 11, 128, 8}, {1, 6, 256, 10}, {1, 3, 1000, 20},
                                       {4, 300, 32, 4}};
    unsigned turn = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (unsigned f = 0; f < flags; f++) {
            const int64_t *n = sizes[s];
            if (f % 3 == s % 3 || s > 2)
                compare(sweep, body, (Args){{n[0], n[1], n[2], n[3], turn++}, f, tolerance});
        }
}

/* Flags: sigmoid, normalize, bias, groups. */
enum { SIGMOID = 1, NORMALIZE = 2, BIAS = 4, GROUPS = 8, ROUTES = 16 };

static Route some_route(Kit *kit, int64_t E, int64_t K, unsigned flags) {
    Route spec = {.score = flags & SIGMOID ? ROUTE_SIGMOID : ROUTE_SOFTMAX,
                  .normalize = flags & NORMALIZE,
                  .scale = E % 3 ? 0 : 2.5f};
    if (flags & BIAS) spec.bias = kit_uniform(kit, shape1(E), -0.4, 0.4);
    int groups = E % 8 == 0 ? E % 16 ? 8 : 4 : E % 5 == 0 ? 5 : 1;
    if (flags & GROUPS) spec.groups = groups, spec.top_groups = groups > 2 ? groups / 2 : groups;
    if (K > E / groups * spec.top_groups) spec.top_groups = groups;
    return spec;
}

/* Logits in steps of a power of two, so that some are equal, and different ones differ by more than rounding.
 */
static Tensor some_logits(Kit *kit, int64_t B, int64_t T, int64_t E) {
    Tensor logits = kit_uniform(kit, shape3(B, T, E), -4, 4);
    for (int64_t i = 0; i < tensor_count(logits); i++)
        tensor_f32(logits)[i] = roundf(tensor_f32(logits)[i] * 64) / 64;
    return logits;
}

/* Puts values that are not finite into some rows, among them one that is all NaN. */
static void put_special(Tensor logits) {
    int64_t E = tensor_cols(logits), M = tensor_rows(logits);
    static const float special[] = {NAN, INFINITY, -INFINITY, 100, -100, 3e38f};
    for (int64_t m = 0; m < M; m += 2)
        for (int64_t e = m % 3; e < E; e += 2 + m % 5)
            tensor_f32(logits)[m * E + e] = special[(m / 2 + (e % 7 == 0)) % 6];
    for (int64_t e = 0; e < E && M > 3; e++) tensor_f32(logits)[3 * E + e] = NAN;
}

/* The experts of a row that is not padding are in range and distinct, and each is the best of the rest. */
static void check_choice(const float *logits, int64_t E, const int32_t *experts, int64_t K, unsigned flags) {
    bool chosen[EXPERTS_MAX] = {false};
    for (int64_t k = 0; k < K; k++) {
        int32_t best = experts[k];
        assert_in_range(best, 0, E - 1);
        assert_false(chosen[best]);
        chosen[best] = true;
        for (int64_t e = 0; !(flags & (BIAS | GROUPS)) && e < E; e++) {
            if (chosen[e]) continue;
            bool equal = logits[e] == logits[best] || (isnan(logits[e]) && isnan(logits[best]));
            assert_true(equal ? e > best : isnan(logits[e]) || logits[e] < logits[best]);
        }
    }
}

/* Flags: a route, then what else: 0 nothing, 1 padding, 2 padding by positions of two parts, 3 values that
 * are not finite. */
static void route_forward_case(Kit *kit, const Args *args) {
    int64_t B = args->n[0], T = args->n[1], E = args->n[2], K = args->n[3];
    Tensor weights = kit_take(kit, shape3(B, T, K)), experts = weights, lens = TENSOR_NONE;
    experts.dtype = DT_I32;
    experts = kit_take(kit, experts);
    Tensor logits = some_logits(kit, B, T, E);
    Route spec = some_route(kit, E, K, args->flags % ROUTES);
    unsigned more = args->flags / ROUTES;
    Positions at = {0};
    if (more == 1 || more == 2) lens = kit_index(kit, shape1(B), 0, T + 2);
    if (more == 2) at = (Positions){1, T / 2, T};
    if (more == 3) put_special(logits);
    assert_ok(route_forward(&kit->exec, weights, experts, logits, lens, at, spec));
    Tensor got = kit_take(kit, shape3(B, T, K));
    for (int64_t m = 0; m < B * T; m++) {
        const int32_t *chosen = tensor_i32(experts) + m * K;
        if (!lens.data || position_of(&at, m % T) < tensor_i32(lens)[m / T])
            check_choice(tensor_f32(logits) + m * E, E, chosen, K, args->flags);
        for (int64_t k = 0; k < K; k++) tensor_f32(got)[m * K + k] = (float)chosen[k];
    }
    kit_output(kit, "experts", got);
    kit_output(kit, "weights", weights);
}

void route_forward_sweep(Sweep *sweep) {
    over_routes(sweep, route_forward_case, 4 * ROUTES, 1e-5);
}

/* Random distinct experts, of which every fifth row has none. */
static Tensor some_experts(Kit *kit, int64_t M, int64_t E, int64_t K) {
    Tensor experts = kit_index(kit, shape2(M, K), 0, E);
    for (int64_t m = 0; m < M; m++)
        for (int64_t k = 0; k < K; k++) {
            int32_t *row = tensor_i32(experts) + m * K;
            for (int64_t j = 0; j < k; j++)
                if (row[j] == row[k]) row[k] = (int32_t)((row[k] + 1) % E), j = -1;
        }
    for (int64_t m = 4; m < M; m += 5)
        for (int64_t k = 0; k < K; k++) tensor_i32(experts)[m * K + k] = -1;
    return experts;
}

/* The tensors of expert_sort. */
typedef struct Sorted {
    Tensor place, slots, offsets;
} Sorted;

static Sorted sorted_of(Kit *kit, Tensor experts, int64_t E) {
    Sorted s = {.place = kit_take(kit, experts),
                .slots = kit_take(kit, tensor_1d(NULL, DT_I32, tensor_count(experts))),
                .offsets = kit_take(kit, tensor_1d(NULL, DT_I32, E + 1))};
    assert_ok(expert_sort(&kit->exec, s.place, s.slots, s.offsets, experts));
    return s;
}

/* Flags: a route, then 0 no losses, 1 balance, 2 z loss, 3 both and logits that are not finite; plus 4
 * dlogits aliases logits. */
static void route_backward_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0] * args->n[1], E = args->n[2], K = args->n[3];
    unsigned more = args->flags / ROUTES;
    Tensor logits = some_logits(kit, args->n[0], args->n[1], E), experts = some_experts(kit, M, E, K);
    Tensor dweights = kit_random(kit, shape1(M * K)), place = sorted_of(kit, experts, E).place;
    Route spec = some_route(kit, E, K, args->flags % ROUTES);
    RouteLoss loss = {0};
    if (more % 4 == 1 || more % 4 == 3) loss.load = kit_uniform(kit, shape1(E), 0, 2), loss.balance = 0.7f;
    if (more % 4 > 1) loss.z = 0.2f;
    if (more % 4 == 3) put_special(logits);
    Tensor dlogits = more & 4 ? logits : kit_take(kit, logits);
    assert_ok(route_backward(&kit->exec, dlogits, dweights, place, logits, experts, loss, spec));
    kit_output(kit, "dlogits", dlogits);
}

void route_backward_sweep(Sweep *sweep) {
    over_routes(sweep, route_backward_case, 8 * ROUTES, 1e-5);
}

/* Flags: sigmoid, then with a load. */
static void route_count_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0] * args->n[1], E = args->n[2], K = args->n[3];
    Tensor counts = kit_take(kit, tensor_1d(NULL, DT_I64, E)), got = kit_take(kit, shape1(E)),
           totals = kit_take(kit, tensor_1d(NULL, DT_F64, 3));
    for (int64_t e = 0; e < E; e++) ((int64_t *)counts.data)[e] = e % 3;
    for (int i = 0; i < 3; i++) ((double *)totals.data)[i] = 0.5 * i;
    Tensor logits = some_logits(kit, args->n[0], args->n[1], E), experts = some_experts(kit, M, E, K);
    Tensor load = args->flags / 2 ? kit_uniform(kit, shape1(E), 0, 2) : TENSOR_NONE;
    for (int64_t i = 0; i < M * E; i += 7) tensor_f32(logits)[i] = -INFINITY;
    if (E > 1)
        for (int64_t m = 0; m < M; m++) tensor_f32(logits)[m * E + 1 + m % (E - 1)] = (float)(m % 90);
    Route spec = some_route(kit, E, K, args->flags % 2);
    assert_ok(route_count(&kit->exec, counts, totals, logits, experts, load, spec));
    for (int64_t e = 0; e < E; e++) tensor_f32(got)[e] = (float)((int64_t *)counts.data)[e];
    kit_output(kit, "counts", got);
    kit_output(kit, "totals", totals);
}

void route_count_sweep(Sweep *sweep) {
    over_routes(sweep, route_count_case, 4, 1e-5);
}

/* As fp32, for comparison. */
static void output_index(Kit *kit, const char *name, Tensor index) {
    Tensor got = kit_take(kit, shape1(tensor_count(index)));
    for (int64_t i = 0; i < tensor_count(index); i++) tensor_f32(got)[i] = (float)tensor_i32(index)[i];
    kit_output(kit, name, got);
}

/* Flags: random experts, all tokens to one, only some experts in use. */
static void expert_sort_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0] * args->n[1], E = args->n[2], K = args->n[3], R = M * K;
    Tensor experts = some_experts(kit, M, E, K);
    for (int64_t i = 0; args->flags && i < R; i++)
        if (tensor_i32(experts)[i] >= 0)
            tensor_i32(experts)[i] = (int32_t)(args->flags == 1 ? E - 1 : i % 2 ? E / 2 : E / 3);
    Sorted s = sorted_of(kit, experts, E);
    const int32_t *start = tensor_i32(s.offsets), *slots = tensor_i32(s.slots), *of = tensor_i32(experts);
    assert_int_equal(start[0], 0);
    for (int64_t e = 0; e < E; e++)
        for (int64_t j = start[e]; j < start[e + 1]; j++) {
            assert_int_equal(of[slots[j]], e);
            assert_int_equal(tensor_i32(s.place)[slots[j]], j);
            assert_true(j == start[e] || slots[j] > slots[j - 1]);
        }
    for (int64_t i = 0; i < R; i++) assert_true((of[i] < 0) == (tensor_i32(s.place)[i] < 0));
    for (int64_t j = start[E]; j < R; j++) assert_int_equal(slots[j], -1);
    output_index(kit, "place", s.place);
    output_index(kit, "slots", s.slots);
    output_index(kit, "offsets", s.offsets);
}

void expert_sort_sweep(Sweep *sweep) {
    over_routes(sweep, expert_sort_case, 3, 0);
}

/* Cases {M, K, C}. */
static void over_expert_rows(Sweep *sweep, Body body, unsigned flags, double tolerance) {
    static const int64_t sizes[][3] = {{1, 1, 1},   {1, 8, 33},    {7, 2, 16},    {13, 3, 100}, {5, 5, 64},
                                       {40, 4, 77}, {200, 2, 256}, {31, 6, 1030}, {9, 3, 2056}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (unsigned f = 0; f < flags; f++)
            compare(sweep, body, (Args){{sizes[s][0], sizes[s][1], sizes[s][2]}, f, tolerance});
}

/* Flags: with weights. */
static void expert_gather_case(Kit *kit, const Args *args) {
    enum { E = 9 };
    int64_t M = args->n[0], K = args->n[1], C = args->n[2], R = M * K;
    Tensor x = kit_random(kit, typed(kit, shape2(M, C))), out = kit_take(kit, typed(kit, shape2(R, C)));
    Tensor weights = TENSOR_NONE, out_weights = TENSOR_NONE, experts = some_experts(kit, M, E, K);
    if (args->flags) weights = kit_random(kit, shape2(M, K)), out_weights = kit_take(kit, shape1(R));
    Tensor slots = sorted_of(kit, experts, E).slots;
    assert_ok(expert_gather(&kit->exec, out, out_weights, x, weights, slots, K));
    kit_output(kit, "out", out);
    if (args->flags) kit_output(kit, "out_weights", out_weights);
}

void expert_gather_sweep(Sweep *sweep) {
    over_expert_rows(sweep, expert_gather_case, 2, 0);
}

/* Flags: accumulate. */
static void expert_combine_case(Kit *kit, const Args *args) {
    enum { E = 9 };
    int64_t M = args->n[0], K = args->n[1], C = args->n[2];
    Tensor xs = kit_random(kit, typed(kit, shape2(M * K, C))), y = typed(kit, shape2(M, C));
    y = args->flags ? kit_random(kit, y) : kit_take(kit, y);
    Tensor place = sorted_of(kit, some_experts(kit, M, E, K), E).place;
    assert_ok(expert_combine(&kit->exec, y, xs, place, args->flags));
    kit_output(kit, "y", y);
}

void expert_combine_sweep(Sweep *sweep) {
    over_expert_rows(sweep, expert_combine_case, 2, norm_wise);
}

/* How rows are distributed: evenly, unevenly with rows of no expert and experts without rows, or all to one
 * expert. */
enum { EVEN, UNEVEN, SINGLE, LOADS };

static Tensor some_offsets(Kit *kit, int64_t R, int64_t E, int load) {
    Tensor offsets = kit_take(kit, tensor_1d(NULL, DT_I32, E + 1));
    int64_t at = 0, used = load == UNEVEN ? R - R / 5 : R;
    for (int64_t e = 0; e <= E; e++) {
        tensor_i32(offsets)[e] = (int32_t)at;
        int64_t left = used - at;
        if (load == EVEN) at = used * (e + 1) / E;
        if (load == UNEVEN) at = e + 2 >= E ? used : e % 3 == 1 ? at : at + (left + 1) / 2;
        if (load == SINGLE) at = e >= E / 2 ? used : 0;
    }
    return offsets;
}

/* The other rows, which must not be used, become NaN. */
static void put_nan(Tensor x, Tensor offsets) {
    int64_t used = tensor_i32(offsets)[tensor_count(offsets) - 1] * tensor_cols(x);
    for (int64_t i = used; i < tensor_count(x); i++) tensor_put(x, i, NAN);
}

/* Cases {R, F, E, load}. */
static void over_expert_acts(Sweep *sweep, Body body, unsigned flags) {
    static const int64_t sizes[][3] = {{1, 1, 1},  {3, 17, 2},   {8, 33, 4},   {20, 100, 8},
                                       {2, 64, 9}, {19, 257, 5}, {64, 1024, 3}};
    unsigned turn = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (unsigned f = 0; f < flags; f++)
            compare(sweep, body,
                    (Args){{sizes[s][0], sizes[s][1], sizes[s][2], turn++ % LOADS}, f, norm_wise});
}

/* Flags: gated, weights, then an activation. */
static void expert_act_forward_case(Kit *kit, const Args *args) {
    int64_t R = args->n[0], F = args->n[1];
    bool gated = args->flags & 1;
    Tensor y = kit_take(kit, typed(kit, shape2(R, F)));
    Tensor x = kit_uniform(kit, typed(kit, shape2(R, gated ? 2 * F : F)), -6, 6);
    Tensor weights = args->flags & 2 ? kit_random(kit, shape1(R)) : TENSOR_NONE;
    Tensor offsets = some_offsets(kit, R, args->n[2], (int)args->n[3]);
    put_nan(x, offsets);
    assert_ok(expert_act_forward(&kit->exec, y, x, weights, offsets, args->flags / 4));
    kit_output(kit, "y", y);
}

void expert_act_forward_sweep(Sweep *sweep) {
    over_expert_acts(sweep, expert_act_forward_case, 4 * ACT_COUNT);
}

/* Flags: gated, weights, dweights, then 0 no y, 1 y aliases dy, 2 y alone, 3 y aliases dy and dx x; then an
 * activation. */
static void expert_act_backward_case(Kit *kit, const Args *args) {
    int64_t R = args->n[0], F = args->n[1];
    bool gated = args->flags & 1;
    unsigned where = args->flags / 8 % 4;
    Act act = args->flags / 32;
    Tensor dy = kit_uniform(kit, typed(kit, shape2(R, F)), 0.5, 1.5), forward = kit_take(kit, dy);
    double range = R * F < 8 ? 2 : 4; /* where tanh saturates, its derivative cancels */
    Tensor x = kit_uniform(kit, typed(kit, shape2(R, gated ? 2 * F : F)), -range, range);
    Tensor weights = args->flags & 2 ? kit_random(kit, shape1(R)) : TENSOR_NONE;
    Tensor dweights = args->flags & 4 ? kit_take(kit, shape1(R)) : TENSOR_NONE;
    Tensor offsets = some_offsets(kit, R, args->n[2], (int)args->n[3]);
    Tensor dx = where == 3 ? x : kit_take(kit, x);
    Tensor y = where == 0 ? TENSOR_NONE : where == 2 ? kit_take(kit, dy) : dy;
    assert_ok(expert_act_forward(&kit->exec, forward, x, weights, offsets, act));
    assert_ok(expert_act_backward(&kit->exec, dx, y, dweights, dy, x, weights, offsets, act));
    kit_output(kit, "dx", dx);
    if (dweights.data) kit_output(kit, "dweights", dweights);
    if (!y.data) return;
    int64_t used = tensor_i32(offsets)[args->n[2]];
    assert_memory_equal(y.data, forward.data, tensor_bytes(tensor_slice(y, 0, used)));
    kit_output(kit, "y", y);
}

void expert_act_backward_sweep(Sweep *sweep) {
    over_expert_acts(sweep, expert_act_backward_case, 32 * ACT_COUNT);
}

/* Cases {R, N, K, E, load}. */
static void over_grouped(Sweep *sweep, Body body, unsigned flags) {
    static const int64_t sizes[][4] = {
        {1, 1, 1, 1},       {1, 33, 17, 4},     {2, 40, 64, 9},    {5, 7, 3, 2},       {16, 48, 32, 3},
        {17, 64, 65, 1},    {40, 33, 31, 8},    {64, 96, 48, 64},  {100, 130, 70, 5},  {256, 64, 100, 4},
        {130, 40, 300, 7},  {300, 257, 129, 2}, {700, 90, 64, 3},  {35, 500, 40, 16},  {512, 31, 33, 33},
        {97, 1031, 260, 3}, {50, 64, 1030, 4},  {2100, 50, 40, 2}, {700, 300, 280, 3}, {280, 40, 4200, 1},
        {1500, 40, 48, 64}};
    unsigned turn = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int load = 0; load < LOADS; load++)
            compare(sweep, body,
                    (Args){{sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3], load},
                           turn++ % flags,
                           norm_wise});
}

static void grouped_forward_case(Kit *kit, const Args *args) {
    int64_t R = args->n[0], N = args->n[1], K = args->n[2], E = args->n[3];
    Tensor x = kit_random(kit, typed(kit, shape2(R, K))), w = kit_random(kit, typed(kit, shape3(E, N, K)));
    Tensor y = kit_take(kit, typed(kit, shape2(R, N))), offsets = some_offsets(kit, R, E, (int)args->n[4]);
    put_nan(x, offsets);
    assert_ok(grouped_forward(&kit->exec, y, x, w, offsets));
    kit_output(kit, "y", y);
}

void grouped_forward_sweep(Sweep *sweep) {
    over_grouped(sweep, grouped_forward_case, 1);
}

static void grouped_backward_input_case(Kit *kit, const Args *args) {
    int64_t R = args->n[0], N = args->n[1], K = args->n[2], E = args->n[3];
    Tensor dy = kit_random(kit, typed(kit, shape2(R, N))), w = kit_random(kit, typed(kit, shape3(E, N, K)));
    Tensor dx = kit_take(kit, typed(kit, shape2(R, K))), offsets = some_offsets(kit, R, E, (int)args->n[4]);
    put_nan(dy, offsets);
    assert_ok(grouped_backward_input(&kit->exec, dx, dy, w, offsets));
    kit_output(kit, "dx", dx);
}

void grouped_backward_input_sweep(Sweep *sweep) {
    over_grouped(sweep, grouped_backward_input_case, 1);
}

/* Flags: accumulate. */
static void grouped_backward_weight_case(Kit *kit, const Args *args) {
    int64_t R = args->n[0], N = args->n[1], K = args->n[2], E = args->n[3];
    Tensor dy = kit_random(kit, typed(kit, shape2(R, N))), x = kit_random(kit, typed(kit, shape2(R, K)));
    Tensor dw = shape3(E, N, K), offsets = some_offsets(kit, R, E, (int)args->n[4]);
    dw = args->flags ? kit_random(kit, dw) : kit_take(kit, dw);
    put_nan(dy, offsets);
    put_nan(x, offsets);
    assert_ok(grouped_backward_weight(&kit->exec, dw, dy, x, offsets, args->flags));
    kit_output(kit, "dw", dw);
}

void grouped_backward_weight_sweep(Sweep *sweep) {
    over_grouped(sweep, grouped_backward_weight_case, 2);
}
