/* Tests every backward kernel of the reference, or of the cuda backend on a GPU, against finite differences.
 *
 * The objective is the dot product of a forward kernel's outputs with a fixed random c, so c is the output
 * gradient passed to the backward kernel. Each input element is perturbed by +-h and +-2h (fourth-order
 * differences), and the resulting slopes are compared with the backward kernel's gradient, relative to the
 * norm. */
#include <math.h>

#include "gradients.h"

static const double step = 0.03, tolerance = 5e-4;

double objective(const Problem *problem) {
    problem->forward(problem->kit, problem->context);
    double total = 0;
    for (int64_t i = 0; i < tensor_count(problem->y); i++)
        total += (double)tensor_f32(problem->y)[i] * tensor_f32(problem->weight)[i];
    return total;
}

static double objective_at(const Problem *problem, float *element, double value) {
    float saved = *element;
    *element = (float)value;
    double total = objective(problem);
    *element = saved;
    return total;
}

void check_gradient(const Problem *problem, const char *what, Tensor x, Tensor dx) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < tensor_count(x); i++) {
        float *element = tensor_f32(x) + i;
        double at = *element;
        double near = objective_at(problem, element, at + step) - objective_at(problem, element, at - step);
        double far =
            objective_at(problem, element, at + 2 * step) - objective_at(problem, element, at - 2 * step);
        double slope = (8 * near - far) / (12 * step);
        difference += pow(slope - tensor_f32(dx)[i], 2);
        norm += slope * slope;
    }
    if (!(sqrt(difference) <= tolerance * sqrt(norm) + 1e-6))
        fail_msg("%s: the gradient differs from finite differences by %g; their norm is %g", what,
                 sqrt(difference), sqrt(norm));
}

Tensor ones(Kit *kit, Tensor shape) {
    Tensor tensor = kit_take(kit, shape);
    for (int64_t i = 0; i < tensor_count(tensor); i++) tensor_f32(tensor)[i] = 1;
    return tensor;
}

Tensor less_one(Tensor tensor) {
    for (int64_t i = 0; i < tensor_count(tensor); i++) tensor_f32(tensor)[i] -= 1;
    return tensor;
}

static Dropout some_dropout(Kit *kit, int64_t first, int64_t second) {
    return (Dropout){.p = 0.3f, .key = kit_key(kit), .origin = {2, 0, 0}, .extent = {first, second}};
}

typedef struct Linear {
    Tensor y, x, w, b, inner, pre;
    Act act;
} Linear;

/* y = act(pre) w^T + b: an activation followed by a linear layer. */
static void forward_linear(Kit *kit, void *context) {
    Linear *l = context;
    assert_ok(act_forward(&kit->exec, l->x, l->pre, l->act));
    assert_ok(linear_forward(&kit->exec, l->y, TENSOR_NONE, l->x, l->w, l->b, ACT_NONE));
}

void avoid_zero(Tensor x) {
    for (int64_t i = 0; i < tensor_count(x); i++) tensor_f32(x)[i] += tensor_f32(x)[i] < 0 ? -0.1f : 0.1f;
}

static void linear_with(Kit *kit, Act act, bool accumulate) {
    enum { M = 5, K = 7, N = 4 };
    Linear l = {.y = kit_take(kit, shape2(M, N)),
                .x = kit_take(kit, shape2(M, K)),
                .w = kit_random(kit, shape2(N, K)),
                .b = kit_random(kit, shape1(N)),
                .pre = kit_random(kit, shape2(M, K)),
                .act = act};
    avoid_zero(l.pre);
    Problem problem = {kit, forward_linear, &l, l.y, kit_random(kit, shape2(M, N))};
    Tensor dpre = accumulate ? ones(kit, shape2(M, K)) : kit_take(kit, shape2(M, K));
    Tensor dw = ones(kit, l.w), db = ones(kit, l.b);
    objective(&problem);
    assert_ok(
        linear_backward_input(&kit->exec, dpre, TENSOR_NONE, problem.weight, l.w, act, l.pre, accumulate));
    assert_ok(linear_backward_weight(&kit->exec, dw, db, problem.weight, l.x, true));
    check_gradient(&problem, "linear input", l.pre, accumulate ? less_one(dpre) : dpre);
    check_gradient(&problem, "linear weight", l.w, less_one(dw));
    check_gradient(&problem, "linear bias", l.b, less_one(db));
}

static void test_linear(void **state) {
    for (int act = 0; act < ACT_COUNT; act++) {
        linear_with(*state, act, false);
        linear_with(*state, act, true);
    }
}

static void forward_fused(Kit *kit, void *context) {
    Linear *l = context;
    assert_ok(linear_forward(&kit->exec, l->y, l->inner, l->x, l->w, l->b, l->act));
}

/* y = act(x w^T + b) in one kernel, and act_backward() from the saved pre-activation. */
static void test_act(void **state) {
    Kit *kit = *state;
    for (int act = ACT_GELU_TANH; act < ACT_COUNT; act++) {
        Linear l = {.y = kit_take(kit, shape2(6, 5)),
                    .x = kit_random(kit, shape2(6, 1)),
                    .w = ones(kit, shape2(5, 1)),
                    .inner = kit_take(kit, shape2(6, 5)),
                    .act = act};
        l.b = kit_uniform(kit, shape1(5), 2, 3);
        Problem problem = {kit, forward_fused, &l, l.y, kit_random(kit, shape2(6, 5))};
        Tensor d = kit_take(kit, l.y), db = ones(kit, l.b);
        objective(&problem);
        assert_ok(act_backward(&kit->exec, d, problem.weight, l.inner, act));
        assert_ok(linear_backward_weight(&kit->exec, ones(kit, l.w), db, d, l.x, true));
        check_gradient(&problem, "act", l.b, less_one(db));
    }
}

typedef struct Norm {
    Tensor y, sum, mean, rstd, x, res, gamma, beta;
    Dropout dropout;
    HeadRange heads;
} Norm;

static void forward_norm(Kit *kit, void *context) {
    Norm *n = context;
    assert_ok(layernorm_forward(&kit->exec, n->y, n->mean, n->rstd, n->x, n->gamma, n->beta, 1e-5f));
}

static void forward_add_norm(Kit *kit, void *context) {
    Norm *n = context;
    assert_ok(dropout_add_norm_forward(&kit->exec, n->sum, n->y, n->mean, n->rstd, n->res, n->x, n->gamma,
                                       n->beta, 1e-5f, n->dropout));
}

static Norm some_norm(Kit *kit, Tensor shape) {
    int64_t C = tensor_cols(shape), rows = tensor_rows(shape);
    return (Norm){.y = kit_take(kit, shape),
                  .sum = kit_take(kit, shape),
                  .mean = kit_take(kit, shape1(rows)),
                  .rstd = kit_take(kit, shape1(rows)),
                  .x = kit_random(kit, shape),
                  .res = kit_random(kit, shape),
                  .gamma = kit_random(kit, shape1(C)),
                  .beta = kit_random(kit, shape1(C)),
                  .dropout = some_dropout(kit, shape.dim[1], C)};
}

static void test_layernorm(void **state) {
    Kit *kit = *state;
    Norm n = some_norm(kit, shape3(2, 2, 9));
    Problem problem = {kit, forward_norm, &n, n.y, kit_random(kit, n.y)};
    Tensor dx = kit_take(kit, n.x), dgamma = ones(kit, n.gamma), dbeta = ones(kit, n.beta);
    Tensor dres = ones(kit, n.x);
    objective(&problem);
    assert_ok(layernorm_backward(&kit->exec, dx, dgamma, dbeta, problem.weight, n.x, n.mean, n.rstd, n.gamma,
                                 TENSOR_NONE, (NormSums){0}));
    check_gradient(&problem, "layernorm x", n.x, dx);
    check_gradient(&problem, "layernorm gamma", n.gamma, less_one(dgamma));
    check_gradient(&problem, "layernorm beta", n.beta, less_one(dbeta));
    assert_ok(layernorm_backward(&kit->exec, dx, dgamma, dbeta, problem.weight, n.x, n.mean, n.rstd, n.gamma,
                                 dres, (NormSums){0}));
    check_gradient(&problem, "layernorm x with a residual", n.x, less_one(dx));
}

static void test_dropout_add_norm(void **state) {
    Kit *kit = *state;
    Norm n = some_norm(kit, shape3(2, 3, 8));
    Problem problem = {kit, forward_add_norm, &n, n.y, kit_random(kit, n.y)};
    Tensor dsum = kit_take(kit, n.x), dx = kit_take(kit, n.x);
    objective(&problem);
    assert_ok(layernorm_backward(&kit->exec, dsum, ones(kit, n.gamma), ones(kit, n.beta), problem.weight,
                                 n.sum, n.mean, n.rstd, n.gamma, TENSOR_NONE, (NormSums){0}));
    assert_ok(dropout_backward(&kit->exec, dx, TENSOR_NONE, dsum, n.dropout));
    check_gradient(&problem, "residual", n.res, dsum);
    check_gradient(&problem, "dropped branch", n.x, dx);
}

static void forward_dropout(Kit *kit, void *context) {
    Norm *n = context;
    assert_ok(dropout_add_forward(&kit->exec, n->y, n->res, n->x, n->dropout));
}

static void test_dropout(void **state) {
    Kit *kit = *state;
    Norm n = some_norm(kit, shape3(2, 5, 13));
    Problem problem = {kit, forward_dropout, &n, n.y, kit_random(kit, n.y)};
    Tensor dx = kit_take(kit, n.x);
    assert_ok(dropout_backward(&kit->exec, dx, TENSOR_NONE, problem.weight, n.dropout));
    check_gradient(&problem, "dropout", n.x, dx);
    int64_t dropped = 0;
    for (int64_t i = 0; i < tensor_count(dx); i++) dropped += tensor_f32(dx)[i] == 0;
    assert_in_range(dropped, 20, 60); /* about 0.3 of 130 */
}

static void forward_rmsnorm(Kit *kit, void *context) {
    Norm *n = context;
    assert_ok(rmsnorm_forward(&kit->exec, n->y, n->rstd, n->x, n->gamma, 1e-5f, n->heads));
}

static void forward_add_rmsnorm(Kit *kit, void *context) {
    Norm *n = context;
    assert_ok(dropout_add_rmsnorm_forward(&kit->exec, n->sum, n->y, n->rstd, n->res, n->x, n->gamma, 1e-5f,
                                          n->dropout));
}

static void test_rmsnorm(void **state) {
    Kit *kit = *state;
    Norm n = some_norm(kit, shape3(2, 2, 9));
    Problem problem = {kit, forward_rmsnorm, &n, n.y, kit_random(kit, n.y)};
    Tensor dx = kit_take(kit, n.x), dgamma = ones(kit, n.gamma), dres = ones(kit, n.x);
    objective(&problem);
    assert_ok(
        rmsnorm_backward(&kit->exec, dx, dgamma, problem.weight, n.x, n.rstd, n.gamma, TENSOR_NONE, n.heads));
    check_gradient(&problem, "rmsnorm x", n.x, dx);
    check_gradient(&problem, "rmsnorm gamma", n.gamma, less_one(dgamma));
    assert_ok(rmsnorm_backward(&kit->exec, dx, dgamma, problem.weight, n.x, n.rstd, n.gamma, dres, n.heads));
    check_gradient(&problem, "rmsnorm x with a residual", n.x, less_one(dx));
}

/* Heads 1 and 2 of 4; the others have no gradient, because they are not part of the output. */
static void test_rmsnorm_heads(void **state) {
    Kit *kit = *state;
    Norm n = some_norm(kit, shape4(2, 3, 4, 5));
    n.heads = (HeadRange){1, 2};
    n.rstd = kit_take(kit, shape1(2 * 3 * 2));
    memset(n.y.data, 0, tensor_bytes(n.y));
    Problem problem = {kit, forward_rmsnorm, &n, n.y, kit_random(kit, n.y)};
    Tensor dx = kit_take(kit, n.x), dgamma = ones(kit, n.gamma);
    memset(dx.data, 0, tensor_bytes(dx));
    objective(&problem);
    assert_ok(
        rmsnorm_backward(&kit->exec, dx, dgamma, problem.weight, n.x, n.rstd, n.gamma, TENSOR_NONE, n.heads));
    check_gradient(&problem, "rmsnorm x of heads", n.x, dx);
    check_gradient(&problem, "rmsnorm gamma of heads", n.gamma, less_one(dgamma));
}

static void test_dropout_add_rmsnorm(void **state) {
    Kit *kit = *state;
    Norm n = some_norm(kit, shape3(2, 3, 8));
    Problem problem = {kit, forward_add_rmsnorm, &n, n.y, kit_random(kit, n.y)};
    Tensor dsum = kit_take(kit, n.x), dx = kit_take(kit, n.x);
    objective(&problem);
    assert_ok(rmsnorm_backward(&kit->exec, dsum, ones(kit, n.gamma), problem.weight, n.sum, n.rstd, n.gamma,
                               TENSOR_NONE, n.heads));
    assert_ok(dropout_backward(&kit->exec, dx, TENSOR_NONE, dsum, n.dropout));
    check_gradient(&problem, "residual of rmsnorm", n.res, dsum);
    check_gradient(&problem, "dropped branch of rmsnorm", n.x, dx);
}

typedef struct Rotation {
    Tensor y, x, table, positions;
} Rotation;

static void forward_rotation(Kit *kit, void *context) {
    Rotation *r = context;
    memcpy(r->y.data, r->x.data, tensor_bytes(r->x));
    assert_ok(rope_forward(&kit->exec, r->y, r->table, r->positions, 0, (HeadRange){0, 2}));
}

/* A table whose rows are not unit vectors, as those of some scaled embeddings. */
static void test_rope(void **state) {
    Kit *kit = *state;
    Rotation r = {.y = kit_take(kit, shape4(2, 3, 3, 8)),
                  .x = kit_random(kit, shape4(2, 3, 3, 8)),
                  .table = kit_random(kit, shape2(9, 6)),
                  .positions = kit_index(kit, shape2(2, 3), 0, 9)};
    Problem problem = {kit, forward_rotation, &r, r.y, kit_random(kit, r.y)};
    Tensor dx = kit_copy(kit, problem.weight);
    assert_ok(rope_backward(&kit->exec, dx, r.table, r.positions, 0, (HeadRange){0, 2}));
    check_gradient(&problem, "rope", r.x, dx);
}

static void forward_glu(Kit *kit, void *context) {
    Linear *l = context;
    assert_ok(glu_forward(&kit->exec, l->y, l->x, l->act));
}

static void test_glu(void **state) {
    Kit *kit = *state;
    for (int act = 0; act < ACT_COUNT; act++) {
        Linear l = {.y = kit_take(kit, shape2(3, 5)), .x = kit_random(kit, shape2(3, 10)), .act = act};
        avoid_zero(l.x);
        Problem problem = {kit, forward_glu, &l, l.y, kit_random(kit, l.y)};
        Tensor dx = kit_take(kit, l.x);
        assert_ok(glu_backward(&kit->exec, dx, TENSOR_NONE, problem.weight, l.x, act));
        check_gradient(&problem, "glu", l.x, dx);
    }
}

typedef struct Heads {
    Tensor out, lse, qkv, lens;
    Attention spec;
} Heads;

static void forward_attention(Kit *kit, void *context) {
    Heads *a = context;
    assert_ok(attention_forward(&kit->exec, a->out, a->lse, a->qkv, a->lens, a->spec));
}

/* Two key heads with two query heads each, a window of 2 and documents of 3 and 4 positions. */
static void test_attention_groups(void **state) {
    Kit *kit = *state;
    enum { B = 2, T = 7, H = 4, G = 2, D = 3 };
    for (int flags = 0; flags < 8; flags++) {
        Heads a = {.out = kit_take(kit, shape4(B, T, H, D)),
                   .lse = kit_take(kit, shape3(B, H, T)),
                   .qkv = kit_random(kit, shape4(B, T, H + 2 * G, D)),
                   .spec = {.causal = true, .scale = 0.5f, .kv_heads = G}};
        if (flags & 1) a.spec.window = 2;
        if (flags & 2) a.spec.starts = kit_index(kit, shape2(B, T), 0, 1);
        for (int i = 0; flags & 2 && i < B * T; i++) tensor_i32(a.spec.starts)[i] = i % T < 3 ? 0 : 3;
        if (flags & 4) a.spec.dropout = some_dropout(kit, H, T);
        Problem problem = {kit, forward_attention, &a, a.out, kit_random(kit, a.out)};
        Tensor dqkv = kit_take(kit, a.qkv);
        objective(&problem);
        assert_ok(attention_backward(&kit->exec, dqkv, problem.weight, a.out, a.lse, a.qkv, a.lens, a.spec));
        check_gradient(&problem, "grouped attention", a.qkv, dqkv);
        kit_clear(kit);
    }
}

/* Keys in two parts, combined. There are six positions; the queries are at 1, 2, 4 and 5. */
typedef struct PartedHeads {
    Tensor out, lse, part, part_lse, qkv, kv[2];
    Attention spec;
} PartedHeads;

static Attention part_spec(const PartedHeads *a, int i) {
    Attention spec = a->spec;
    spec.queries = (Positions){1, 2, 4};
    spec.keys = i == 0 ? (Positions){0, 1, 3} : spec.queries;
    spec.kv = a->kv[i];
    return spec;
}

static void forward_parts(Kit *kit, void *context) {
    PartedHeads *a = context;
    assert_ok(attention_forward(&kit->exec, a->out, a->lse, a->qkv, TENSOR_NONE, part_spec(a, 0)));
    assert_ok(attention_forward(&kit->exec, a->part, a->part_lse, a->qkv, TENSOR_NONE, part_spec(a, 1)));
    assert_ok(attention_combine(&kit->exec, a->out, a->lse, a->part, a->part_lse));
}

static void test_attention_parts(void **state) {
    Kit *kit = *state;
    enum { B = 2, H = 4, G = 2, D = 3 };
    for (int flags = 0; flags < 4; flags++) {
        PartedHeads a = {
            .qkv = kit_random(kit, shape4(B, 4, H + 2 * G, D)),
            .kv = {kit_random(kit, shape4(B, 2, 2 * G, D)), kit_random(kit, shape4(B, 4, 2 * G + 1, D))},
            .spec = {.causal = flags & 1, .scale = 0.5f, .kv_heads = G}};
        a.out = kit_take(kit, shape4(B, 4, H, D)), a.part = kit_take(kit, a.out);
        a.lse = kit_take(kit, shape3(B, H, 4)), a.part_lse = kit_take(kit, a.lse);
        if (flags & 2) a.spec.dropout = some_dropout(kit, H, 6);
        Problem problem = {kit, forward_parts, &a, a.out, kit_random(kit, a.out)};
        Tensor dqkv = kit_take(kit, a.qkv), dkv[2];
        memset(dqkv.data, 0, tensor_bytes(dqkv));
        objective(&problem);
        for (int i = 0; i < 2; i++) {
            Attention spec = part_spec(&a, i);
            spec.dkv = dkv[i] = kit_take(kit, a.kv[i]);
            memset(dkv[i].data, 0, tensor_bytes(dkv[i]));
            assert_ok(
                attention_backward(&kit->exec, dqkv, problem.weight, a.out, a.lse, a.qkv, TENSOR_NONE, spec));
        }
        check_gradient(&problem, "queries of parts", a.qkv, dqkv);
        for (int i = 0; i < 2; i++) check_gradient(&problem, "keys of parts", a.kv[i], dkv[i]);
        kit_clear(kit);
    }
}

static void attention_with(Kit *kit, bool causal, bool padded, bool dropped) {
    enum { B = 3, T = 5, H = 2, D = 4 };
    Heads a = {.out = kit_take(kit, shape4(B, T, H, D)),
               .lse = kit_take(kit, shape3(B, H, T)),
               .qkv = kit_random(kit, shape_qkv(B, T, H, D)),
               .spec = {.causal = causal, .scale = 0.5f}};
    if (dropped) a.spec.dropout = some_dropout(kit, H, T);
    if (padded) {
        a.lens = kit_index(kit, shape1(B), 0, T);
        tensor_i32(a.lens)[0] = 0; /* only padding */
        tensor_i32(a.lens)[1] = 3;
        tensor_i32(a.lens)[2] = T;
    }
    Problem problem = {kit, forward_attention, &a, a.out, kit_random(kit, a.out)};
    Tensor dqkv = kit_take(kit, a.qkv);
    objective(&problem);
    assert_ok(attention_backward(&kit->exec, dqkv, problem.weight, a.out, a.lse, a.qkv, a.lens, a.spec));
    check_gradient(&problem, "attention", a.qkv, dqkv);
    for (int64_t i = 0; padded && i < T * H * D; i++) assert_true(tensor_f32(a.out)[i] == 0);
    for (int64_t i = 0; padded && i < H * T; i++) assert_true(tensor_f32(a.lse)[i] == -INFINITY);
    for (int64_t i = 0; padded && i < 3 * T * H * D; i++) assert_true(tensor_f32(dqkv)[i] == 0);
}

static void test_attention(void **state) {
    for (int flags = 0; flags < 8; flags++) {
        attention_with(*state, flags & 1, flags & 2, flags & 4);
        kit_clear(*state);
    }
}

typedef struct Embed {
    Tensor x, tokens, types, positions, wte, wpe, wtype;
    VocabPart part;
} Embed;

static void forward_embedding(Kit *kit, void *context) {
    Embed *e = context;
    assert_ok(embedding_forward(&kit->exec, e->x, e->tokens, e->types, e->positions, e->wte, e->wpe, e->wtype,
                                e->part));
}

/* Tokens 0..11, of which this part stores 4..8, with row 9 as padding. Tokens repeat and fall outside the
 * part. */
static void embedding_with(Kit *kit, bool positions) {
    Embed e = {.x = kit_take(kit, shape3(3, 4, 5)),
               .tokens = kit_index(kit, shape2(3, 4), 0, 12),
               .types = kit_index(kit, shape2(3, 4), 0, 2),
               .positions = positions ? kit_index(kit, shape2(3, 4), 0, 7) : TENSOR_NONE,
               .wte = kit_random(kit, shape2(6, 5)),
               .wpe = kit_random(kit, shape2(7, 5)),
               .wtype = kit_random(kit, shape2(2, 5)),
               .part = {.start = 4, .valid = 9}};
    Problem problem = {kit, forward_embedding, &e, e.x, kit_random(kit, e.x)};
    Tensor dwte = ones(kit, e.wte), dwpe = ones(kit, e.wpe), dwtype = ones(kit, e.wtype);
    assert_ok(embedding_backward(&kit->exec, dwte, dwpe, dwtype, problem.weight, e.tokens, e.types,
                                 e.positions, e.part));
    check_gradient(&problem, "token table", e.wte, less_one(dwte));
    check_gradient(&problem, "position table", e.wpe, less_one(dwpe));
    check_gradient(&problem, "type table", e.wtype, less_one(dwtype));
}

static void test_embedding(void **state) {
    embedding_with(*state, false);
    kit_clear(*state);
    embedding_with(*state, true);
}

typedef struct Loss {
    Tensor losses, logits, stats, labels;
    VocabPart part;
} Loss;

static void forward_loss(Kit *kit, void *context) {
    Loss *l = context;
    assert_ok(xent_partial(&kit->exec, l->stats, l->logits, l->labels, l->part));
    assert_ok(xent_finish(&kit->exec, l->losses, l->logits, l->stats, l->labels, l->part, 1, false));
}

static void test_xent(void **state) {
    Kit *kit = *state;
    const float factor = 0.25f;
    enum { M = 6, V = 11, REAL = 9 };
    Loss l = {.losses = kit_take(kit, shape1(M)),
              .logits = kit_random(kit, shape2(M, V)),
              .stats = kit_take(kit, shape2(M, 3)),
              .labels = kit_index(kit, shape1(M), 0, REAL),
              .part = {.start = 0, .valid = REAL}};
    tensor_i32(l.labels)[1] = -100;
    tensor_i32(l.labels)[4] = -1;
    Problem problem = {kit, forward_loss, &l, l.losses, kit_take(kit, l.losses)};
    for (int i = 0; i < M; i++) tensor_f32(problem.weight)[i] = factor;
    objective(&problem);
    assert_true(tensor_f32(l.losses)[1] == 0);
    Tensor dlogits = kit_copy(kit, l.logits), again = kit_take(kit, l.losses);
    assert_ok(xent_finish(&kit->exec, again, dlogits, l.stats, l.labels, l.part, factor, true));
    assert_memory_equal(again.data, l.losses.data, tensor_bytes(again));
    check_gradient(&problem, "logits", l.logits, dlogits);
    for (int m = 0; m < M; m++)
        for (int v = REAL; v < V; v++) assert_true(tensor_f32(dlogits)[m * V + v] == 0);
}

typedef struct TargetLoss {
    Status (*loss)(Exec *exec, Tensor losses, Tensor logits, Tensor targets, float scale, bool gradient);
    Tensor losses, logits, targets;
} TargetLoss;

static void forward_targets(Kit *kit, void *context) {
    TargetLoss *l = context;
    assert_ok(l->loss(&kit->exec, l->losses, l->logits, l->targets, 1, false));
}

/* An ignored target contributes nothing. */
static void test_targets(void **state) {
    Kit *kit = *state;
    const float factor = 0.25f;
    for (int bce = 0; bce < 2; bce++) {
        TargetLoss l = {.loss = bce ? bce_loss : mse_loss,
                        .losses = kit_take(kit, shape2(4, 3)),
                        .logits = kit_random(kit, shape2(4, 3)),
                        .targets = kit_uniform(kit, shape2(4, 3), 0, 1)};
        tensor_f32(l.targets)[5] = NAN;
        Problem problem = {kit, forward_targets, &l, l.losses, kit_take(kit, l.losses)};
        for (int i = 0; i < 12; i++) tensor_f32(problem.weight)[i] = factor;
        objective(&problem);
        assert_true(tensor_f32(l.losses)[5] == 0);
        Tensor dlogits = kit_copy(kit, l.logits), again = kit_take(kit, l.losses);
        assert_ok(l.loss(&kit->exec, again, dlogits, l.targets, factor, true));
        assert_memory_equal(again.data, l.losses.data, tensor_bytes(again));
        check_gradient(&problem, bce ? "bce logits" : "mse logits", l.logits, dlogits);
        assert_true(tensor_f32(dlogits)[5] == 0);
    }
}

typedef struct Rows {
    Tensor out, x, index;
} Rows;

static void forward_gather(Kit *kit, void *context) {
    Rows *r = context;
    assert_ok(gather_rows(&kit->exec, r->out, r->x, r->index));
}

static void test_rows(void **state) {
    Kit *kit = *state;
    Rows r = {.out = kit_take(kit, shape2(8, 3)),
              .x = kit_random(kit, shape2(5, 3)),
              .index = kit_index(kit, shape1(8), 0, 5)};
    Problem problem = {kit, forward_gather, &r, r.out, kit_random(kit, r.out)};
    Tensor dx = ones(kit, r.x);
    assert_ok(scatter_add_rows(&kit->exec, dx, problem.weight, r.index));
    check_gradient(&problem, "gathered rows", r.x, less_one(dx));
}

static int setup(void **state) {
    static Kit kit;
    kit_init(&kit, test_on_cuda() ? "cuda" : "ref", 1);
    *state = &kit;
    return 0;
}

static int teardown(void **state) {
    kit_done(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_act),
        cmocka_unit_test(test_layernorm),
        cmocka_unit_test(test_dropout_add_norm),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_groups),
        cmocka_unit_test(test_attention_parts),
        cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_xent),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_rmsnorm_heads),
        cmocka_unit_test(test_dropout_add_rmsnorm),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_glu),
        cmocka_unit_test(test_route),
        cmocka_unit_test(test_expert_rows),
        cmocka_unit_test(test_expert_act),
        cmocka_unit_test(test_grouped),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
