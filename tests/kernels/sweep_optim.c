/* Sweep cases of the optimizers other than AdamW. */
#include <math.h>

#include "sweep.h"

void exchange_halves(Tensor param, Tensor upper, Tensor rest, bool back) {
    uint16_t *high = upper.data, *low = rest.data;
    for (int64_t i = 0; i < tensor_count(param); i++)
        if (back)
            tensor_f32(param)[i] = f32_from_halves(high[i], low[i]);
        else
            high[i] = f32_halves(tensor_f32(param)[i], &low[i]);
}

/* Parameters as an update takes them: fp32 with a copy in the compute type, which is absent in fp32, or, with
 * HALVES, in bf16, halves. */
typedef struct Params {
    Tensor whole, param, copy;
} Params;
enum { HALVES = 8 };

static Params params_begin(Kit *kit, const Args *args, Tensor whole) {
    Params params = {.whole = whole, .param = whole};
    if (kit->compute != DT_F32) params.copy = kit_take(kit, typed(kit, whole));
    if (!(args->flags & HALVES) || kit->compute != DT_BF16) return params;
    params.param = kit_take(kit, tensor_1d(NULL, DT_F32_LOWER, tensor_count(whole)));
    exchange_halves(whole, params.copy, params.param, false);
    return params;
}

/* Checks copies, and joins halves. */
static void params_end(const Params *params) {
    Tensor copy = params->copy;
    if (params->param.dtype == DT_F32_LOWER) {
        exchange_halves(params->whole, copy, params->param, true);
        return;
    }
    for (int64_t i = 0; copy.data && i < tensor_count(copy); i++) {
        Tensor one = tensor_1d(&(double){0}, copy.dtype, 1);
        tensor_put(one, 0, tensor_get(params->whole, i));
        assert_true(tensor_get(copy, i) == tensor_get(one, 0));
    }
}

/* Random numbers; with `zeros`, every second one is zero. */
static Tensor some_zeros(Kit *kit, int64_t count, bool zeros) {
    Tensor param = kit_random(kit, shape1(count));
    for (int64_t i = 0; zeros && i < count; i += 2) tensor_f32(param)[i] = i % 4 ? 0.0f : -0.0f;
    return param;
}

static void check_zeros(Tensor x, bool zeros) {
    for (int64_t i = 0; zeros && i < tensor_count(x); i += 2) assert_true(tensor_f32(x)[i] == 0);
}

/* Flags: weight decay, zero gradients and state, keep_zeros. The update is a sign, so values that are small
 * after rounding are avoided: no element of the direction is near zero unless it is zero exactly. */
static void lion_step_case(Kit *kit, const Args *args) {
    bool zeros = args->flags & 4;
    Tensor param = some_zeros(kit, args->n[0], zeros), m = kit_random(kit, param);
    Tensor grad = kit_random(kit, param);
    Params params = params_begin(kit, args, param);
    for (int64_t i = 0; i < args->n[0]; i++) {
        float *g = &tensor_f32(grad)[i], *s = &tensor_f32(m)[i];
        if (fabsf(0.9f * *s + 0.07f * *g) < 1e-3f) *g = *s = 0.5f;
        if (args->flags & 2 && i % 3 == 0) *g = *s = 0;
    }
    Lion spec = {.lr = 1e-2f,
                 .beta1 = 0.9f,
                 .beta2 = 0.99f,
                 .decay = args->flags & 1 ? 0.1f : 0,
                 .grad_scale = 0.7f,
                 .keep_zeros = zeros};
    assert_ok(lion_step(&kit->exec, params.param, m, params.copy, grad, spec));
    params_end(&params);
    check_zeros(param, zeros);
    check_zeros(m, zeros);
    kit_output(kit, "param", param);
    kit_output(kit, "m", m);
}

void lion_step_sweep(Sweep *sweep) {
    over_counts(sweep, lion_step_case, 2 * HALVES, 1e-6);
}

/* Flags: weight decay, Nesterov momentum, keep_zeros. */
static void sgd_step_case(Kit *kit, const Args *args) {
    bool zeros = args->flags & 4;
    Tensor param = some_zeros(kit, args->n[0], zeros), m = kit_random(kit, param);
    Tensor grad = kit_random(kit, param);
    Params params = params_begin(kit, args, param);
    Sgd spec = {.lr = 1e-2f,
                .momentum = 0.9f,
                .decay = args->flags & 1 ? 0.1f : 0,
                .grad_scale = 0.7f,
                .nesterov = args->flags & 2,
                .keep_zeros = zeros};
    assert_ok(sgd_step(&kit->exec, params.param, m, params.copy, grad, spec));
    params_end(&params);
    check_zeros(param, zeros);
    check_zeros(m, zeros);
    kit_output(kit, "param", param);
    kit_output(kit, "m", m);
}

void sgd_step_sweep(Sweep *sweep) {
    over_counts(sweep, sgd_step_case, 2 * HALVES, 1e-6);
}

/* Flags: Nesterov momentum, keep_zeros. */
static void momentum_step_case(Kit *kit, const Args *args) {
    bool zeros = args->flags & 2;
    Tensor param = some_zeros(kit, args->n[0], zeros), m = kit_random(kit, param), grad = kit_random(kit, m);
    Momentum spec = {
        .beta = 0.95f, .grad_scale = 0.7f, .nesterov = args->flags & 1, .keep_zeros = args->flags & 2};
    Params params = params_begin(kit, args, param);
    assert_ok(momentum_step(&kit->exec, grad, m, params.param, params.copy, spec));
    check_zeros(grad, zeros);
    check_zeros(m, zeros);
    kit_output(kit, "grad", grad);
    kit_output(kit, "m", m);
}

void momentum_step_sweep(Sweep *sweep) {
    over_counts(sweep, momentum_step_case, 2 * HALVES, 1e-6);
}

/* Flags: weight decay, keep_zeros. */
static void apply_step_case(Kit *kit, const Args *args) {
    bool zeros = args->flags & 2;
    Tensor param = some_zeros(kit, args->n[0], zeros), update = kit_random(kit, param);
    Params params = params_begin(kit, args, param);
    Apply spec = {.lr = 1e-2f, .decay = args->flags & 1 ? 0.1f : 0, .keep_zeros = zeros};
    assert_ok(apply_step(&kit->exec, params.param, params.copy, update, spec));
    params_end(&params);
    check_zeros(param, zeros);
    kit_output(kit, "param", param);
}

void apply_step_sweep(Sweep *sweep) {
    over_counts(sweep, apply_step_case, 2 * HALVES, 1e-6);
}

static void normalize_case(Kit *kit, const Args *args) {
    Tensor x = kit_random(kit, shape1(args->n[0])), y = kit_take(kit, typed(kit, x));
    Tensor total = kit_take(kit, tensor_1d(NULL, DT_F64, 1));
    *(double *)total.data = args->flags ? 0 : 0.3 * (double)args->n[0];
    assert_ok(normalize(&kit->exec, y, x, total, args->flags ? 2.0f : 1e-7f));
    kit_output(kit, "y", y);
}

void normalize_sweep(Sweep *sweep) {
    over_counts(sweep, normalize_case, 2, 1e-6);
}
