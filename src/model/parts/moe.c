/* B sequences, T positions, C hidden size; of a set: E experts, K of them per token, F inner size on this
 * rank, R = B*T*K rows. */
#include "model/parts/fake_quant.h"
#include "model/parts/moe_set.h"

/* The sets of a model, in the order in which they are computed; returns their number. The experts, which may
 * be on several ranks, come last: their rows travel while the shared expert computes. */
static int experts_of(const ModelConfig *c, Shape shape, Experts set[EXPERT_SETS]) {
    int sets = 0;
    if (c->shared_inner)
        set[sets++] = (Experts){.router = SHARED_ROUTER_W,
                                .up = SHARED_UP_W,
                                .down = SHARED_DOWN_W,
                                .name = "moe.shared",
                                .count = 1,
                                .top = 1,
                                .inner = c->shared_inner,
                                .ranks = 1,
                                .route = {.score = ROUTE_SIGMOID}};
    set[sets++] = (Experts){.router = ROUTER_W,
                            .up = EXPERTS_UP_W,
                            .down = EXPERTS_DOWN_W,
                            .name = "moe",
                            .count = c->experts,
                            .top = c->top_k,
                            .inner = c->expert_inner,
                            .ranks = shape.ep > 1 ? shape.ep : 1,
                            .route = {.score = ROUTE_SOFTMAX, .normalize = c->norm_top_k}};
    return sets;
}

bool moe_in(const Block *block) {
    return config_sparse(block->config, block->index);
}

static Status describe_experts(const Block *block, ParamList *list, const Experts *set) {
    const ModelConfig *c = block->config;
    int64_t E = set->count, C = c->hidden, F = set->inner;
    TRY(describe_matrix(list, set->router, c->init, c->init_std, -1, E, C, 0, "layer.%d.%s.router.weight",
                        block->index, set->name));
    list->desc[list->count - 1].partial = true;
    TRY(describe_matrix(list, set->up, c->init, c->init_std, 1, 2 * E, F, C, "layer.%d.%s.up.weight",
                        block->index, set->name));
    TRY(describe_matrix(list, set->down, c->init, c->init_std, 2, E, C, F, "layer.%d.%s.down.weight",
                        block->index, set->name));
    for (size_t i = list->count - 3; i < list->count; i++) list->desc[i].overwritten = true;
    bool shared = set->up == SHARED_UP_W;
    for (size_t i = list->count - 2; i < list->count; i++) list->desc[i].expert = !shared;
    return OK;
}

Status describe_moe(const Block *block, ParamList *list) {
    Experts set[EXPERT_SETS];
    int sets = experts_of(block->config, (Shape){0}, set);
    for (int i = 0; i < sets; i++) TRY(describe_experts(block, list, &set[i]));
    return OK;
}

/* ---- memory ---- */

/* Of experts on several ranks, it is where they are. */
static Tensor pre_shape(const Experts *set, Shape shape) {
    if (set->ranks > 1) return tensor_2d(NULL, shape.dtype, 0, 2 * set->inner / shape.tp);
    return tensor_2d(NULL, shape.dtype, shape.B * shape.T * set->top, 2 * set->inner / shape.tp);
}

int64_t moe_pre_count(const Block *block, Shape shape) {
    Experts set[EXPERT_SETS];
    int64_t count = 0;
    for (int i = experts_of(block->config, shape, set) - 1; i >= 0; i--)
        count += tensor_count(pre_shape(&set[i], shape));
    return count;
}

/* What a set has of a tensor of moe_pre_count elements. */
static Tensor pre_of(const ModelConfig *c, Shape shape, int at, Tensor all) {
    Experts set[EXPERT_SETS];
    experts_of(c, shape, set);
    Tensor pre = pre_shape(&set[at], shape);
    size_t before = at ? tensor_bytes(pre_shape(&set[0], shape)) : 0; /* there are at most two */
    if (all.data) pre.data = (char *)all.data + before;
    return pre;
}

MoeSaved moe_saved(const Block *block, Shape shape, Tensor pre, Bump *saved, Bump *scratch) {
    Experts set[EXPERT_SETS];
    MoeSaved all = {0};
    for (int i = 0, sets = experts_of(block->config, shape, set); i < sets; i++) {
        MoeRows *s = &all.set[i];
        int64_t B = shape.B, T = shape.T, K = set[i].top, R = B * T * K;
        s->logits = tensor_take(saved, tensor_3d(NULL, DT_F32, B, T, set[i].count));
        s->chosen = tensor_take(saved, tensor_3d(NULL, DT_I32, B, T, K));
        s->place = tensor_take(saved, tensor_3d(NULL, DT_I32, B, T, K));
        s->slots = tensor_take(saved, tensor_1d(NULL, DT_I32, R));
        s->offsets = tensor_take(saved, tensor_1d(NULL, DT_I32, set[i].count + 1));
        s->weights = tensor_take(saved, tensor_1d(NULL, DT_F32, R));
        s->pre = pre_of(block->config, shape, i, pre);
        if (set[i].ranks > 1)
            s->tally = tensor_take(saved, tensor_1d(NULL, DT_I32, 2 * set[i].count));
        else
            s->act = tensor_take(scratch, tensor_2d(NULL, shape.dtype, R, set[i].inner / shape.tp));
        s->rows = tensor_take(scratch, tensor_2d(NULL, shape.dtype, R, block->config->hidden));
        s->each = tensor_take(scratch, tensor_3d(NULL, DT_F32, B, T, K));
    }
    return all;
}

double moe_flops(const ModelConfig *c) {
    Experts set[EXPERT_SETS];
    double flops = 0;
    for (int i = experts_of(c, (Shape){0}, set) - 1; i >= 0; i--)
        flops += 2 * (double)c->hidden * (double)(set[i].count + 3 * set[i].top * set[i].inner);
    return flops;
}

/* ---- parameters ---- */

static Tensor router_of(const Block *block, const Tensor *views, const Experts *set) {
    return block_param(block, views, set->router);
}

Tensor experts_up(const Block *block, const Tensor *views, const Experts *set) {
    Tensor t = block_param(block, views, set->up);
    return t.data ? tensor_3d(t.data, t.dtype, t.dim[0] / 2, 2 * t.dim[1], t.dim[2]) : t;
}

Tensor experts_down(const Block *block, const Tensor *views, const Experts *set) {
    return block_param(block, views, set->down);
}

static Status quantize_rows(const Block *block, Pass *pass, bool cut, const Received *received, Tensor *x) {
    return received ? fake_quant_rows(pass, cut, received->rounded.data, received->largest, x)
                    : fake_quant_input(block, pass, cut, x);
}

Status experts_run(const Block *block, Pass *pass, Tensor y, Tensor x, Tensor w, bool cut, Tensor offsets,
                   const Received *received) {
    TRY(quantize_rows(block, pass, cut, received, &x));
    TRY(fake_quant_weights(block, pass, cut, &w));
    return grouped_forward(pass->exec, y, x, w, offsets);
}

Status experts_back(const Block *block, Pass *pass, Tensor dx, Tensor dy, Tensor w, bool cut,
                    Tensor offsets) {
    TRY(fake_quant_weights(block, pass, cut, &w));
    return grouped_backward_input(pass->exec, dx, dy, w, offsets);
}

Status experts_gradient(const Block *block, Pass *pass, int id, Tensor dw, Tensor dy, Tensor x,
                        Tensor offsets, const Received *received) {
    if (!dw.data) return OK;
    TRY(quantize_rows(block, pass, id == EXPERTS_DOWN_W || id == SHARED_DOWN_W, received, &x));
    return grouped_backward_weight(pass->exec, dw, dy, x, offsets, !grad_is_unwritten(block, pass, id));
}

static Status router_gradient(const Block *block, const Pass *pass, const Experts *set, const MoeRows *s,
                              Tensor x) {
    Tensor dw = router_of(block, pass->grad, set);
    if (!dw.data) return OK;
    return linear_backward_weight(pass->exec, dw, TENSOR_NONE, s->logits, x,
                                  !grad_is_unwritten(block, pass, set->router));
}

/* ---- forward ---- */

static Status count_choices(const Block *block, const Pass *pass, const Experts *set, const MoeRows *s) {
    const Balance *balance = &pass->balance;
    if (!balance->counts.data || pass->again || set->router != ROUTER_W) return OK;
    Tensor counts = as_vector(tensor_slice(balance->counts, block->index, 1));
    Tensor totals = as_vector(tensor_slice(balance->totals, block->index, 1)), load = balance->load;
    if (load.data) load = as_vector(tensor_slice(load, block->index, 1));
    return route_count(pass->exec, counts, totals, s->logits, s->chosen, load, set->route);
}

static Status route(const Block *block, Pass *pass, const Experts *set, const MoeRows *s, Tensor x) {
    Exec *e = pass->exec;
    Tensor lens = pass->decode ? pass->decode->fresh : pass->micro->lens;
    TRY(linear_forward(e, s->logits, TENSOR_NONE, x, router_of(block, pass->param, set), TENSOR_NONE,
                       ACT_NONE));
    TRY(route_forward(e, s->each, s->chosen, s->logits, lens, pass->at, set->route));
    TRY(count_choices(block, pass, set, s));
    return expert_sort(e, s->place, s->slots, s->offsets, s->chosen);
}

/* The rows and their weights, by expert. */
static Status run_router(const Block *block, Pass *pass, const Experts *set, const MoeRows *s, Tensor x) {
    TRY(route(block, pass, set, s, x));
    return expert_gather(pass->exec, s->rows, s->weights, x, s->each, s->slots, set->top);
}

static Status run_up(const Block *block, Pass *pass, const Experts *set, const MoeRows *s) {
    return experts_run(block, pass, s->pre, s->rows, experts_up(block, pass->param, set), false, s->offsets,
                       NULL);
}

static Status run_here(const Block *block, Pass *pass, const Experts *set, const MoeRows *s) {
    TRY(run_up(block, pass, set, s));
    TRY(expert_act_forward(pass->exec, s->act, s->pre, s->weights, s->offsets, block->config->act));
    return experts_run(block, pass, s->rows, s->act, experts_down(block, pass->param, set), true, s->offsets,
                       NULL);
}

/* Routes all sets, and starts to send the rows of the last, if its experts are on several ranks. */
static Status run_routers(const Block *block, Pass *pass, const Experts *set, int sets, const MoeSaved *saved,
                          Tensor x, MoeSent *sent) {
    for (int i = sets - 1; i >= 0; i--) {
        TRY(run_router(block, pass, &set[i], &saved->set[i], x));
        if (set[i].ranks > 1) TRY(moe_ranks_send(block, pass, &set[i], &saved->set[i], false, sent));
    }
    return OK;
}

Status moe_run(const Block *block, Pass *pass, const MoeSaved *saved, Tensor y, Tensor x) {
    Experts set[EXPERT_SETS];
    CLEANUP(moe_sent_done) MoeSent sent = {0};
    int sets = experts_of(block->config, pass->shape, set);
    TRY(run_routers(block, pass, set, sets, saved, x, &sent));
    for (int i = 0; i < sets; i++) {
        const MoeRows *s = &saved->set[i];
        TRY(set[i].ranks > 1 ? moe_ranks_run(block, pass, &set[i], s, &sent)
                             : run_here(block, pass, &set[i], s));
        TRY(expert_combine(pass->exec, y, s->rows, s->place, i > 0));
    }
    return OK;
}

Status moe_rerun(const Block *block, Pass *pass, const MoeSaved *saved, Tensor x) {
    Experts set[EXPERT_SETS];
    CLEANUP(moe_sent_done) MoeSent sent = {0};
    int sets = experts_of(block->config, pass->shape, set);
    TRY(run_routers(block, pass, set, sets, saved, x, &sent));
    for (int i = 0; i < sets; i++)
        TRY(set[i].ranks > 1 ? moe_ranks_rerun(block, pass, &set[i], &sent)
                             : run_up(block, pass, &set[i], &saved->set[i]));
    return OK;
}

/* ---- backward ---- */

static Status back_down(const Block *block, Pass *pass, const Experts *set, const MoeRows *s, Tensor dpre) {
    Exec *e = pass->exec;
    TRY(experts_back(block, pass, s->act, s->rows, experts_down(block, pass->param, set), true, s->offsets));
    TRY(expert_act_backward(e, dpre, s->act, as_vector(s->each), s->act, s->pre, s->weights, s->offsets,
                            block->config->act));
    if (pass->deferred.data) return OK;
    return experts_gradient(block, pass, set->down, experts_down(block, pass->grad, set), s->rows, s->act,
                            s->offsets, NULL);
}

Status moe_back(const Block *block, Pass *pass, const MoeSaved *saved, Tensor dpre, Tensor dy) {
    Experts set[EXPERT_SETS];
    CLEANUP(moe_sent_done) MoeSent sent = {0};
    int sets = experts_of(block->config, pass->shape, set);
    for (int i = sets - 1; i >= 0; i--) {
        const MoeRows *s = &saved->set[i];
        TRY(expert_gather(pass->exec, s->rows, TENSOR_NONE, dy, TENSOR_NONE, s->slots, set[i].top));
        if (set[i].ranks > 1) TRY(moe_ranks_send(block, pass, &set[i], s, true, &sent));
    }
    for (int i = 0; i < sets; i++)
        TRY(set[i].ranks > 1 ? moe_ranks_back(block, pass, &set[i], &sent)
                             : back_down(block, pass, &set[i], &saved->set[i],
                                         pre_of(block->config, pass->shape, i, dpre)));
    return OK;
}

/* The losses that balance the experts count once. */
static RouteLoss losses_of(const Block *block, const Pass *pass, const Experts *set) {
    RouteLoss loss = {0};
    if (set->router != ROUTER_W || pass->tp->rank > 0 || !pass->shape.train) return loss;
    loss.z = pass->balance.z;
    if (!pass->balance.load.data) return loss;
    loss.load = as_vector(tensor_slice(pass->balance.load, block->index, 1));
    loss.balance = pass->balance.loss;
    return loss;
}

/* s->rows: the gradients of rows, by expert. */
static Status back_up(const Block *block, Pass *pass, const Experts *set, const MoeRows *s, Tensor dpre,
                      Tensor x) {
    Exec *e = pass->exec;
    Tensor dup = pass->deferred.data ? TENSOR_NONE : experts_up(block, pass->grad, set);
    if (dup.data) {
        TRY(expert_gather(e, s->rows, TENSOR_NONE, x, TENSOR_NONE, s->slots, set->top));
        TRY(experts_gradient(block, pass, set->up, dup, dpre, s->rows, s->offsets, NULL));
    }
    return experts_back(block, pass, s->rows, dpre, experts_up(block, pass->param, set), false, s->offsets);
}

Status moe_back_input(const Block *block, Pass *pass, const MoeSaved *saved, Tensor dx, bool add, Tensor dpre,
                      Tensor x) {
    Exec *e = pass->exec;
    Experts set[EXPERT_SETS];
    for (int i = 0, sets = experts_of(block->config, pass->shape, set); i < sets; i++) {
        const MoeRows *s = &saved->set[i];
        Tensor gradient = pre_of(block->config, pass->shape, i, dpre);
        TRY(set[i].ranks > 1 ? moe_ranks_back_input(block, pass, &set[i], s)
                             : back_up(block, pass, &set[i], s, gradient, x));
        TRY(expert_combine(e, dx, s->rows, s->place, add || i > 0));
        TRY(route_backward(e, s->logits, as_vector(s->each), s->place, s->logits, s->chosen,
                           losses_of(block, pass, &set[i]), set[i].route));
        if (!pass->deferred.data) TRY(router_gradient(block, pass, &set[i], s, x));
        TRY(linear_backward_input(e, dx, TENSOR_NONE, s->logits, router_of(block, pass->param, &set[i]),
                                  ACT_NONE, TENSOR_NONE, true));
    }
    return OK;
}

Status moe_weight_down(const Block *block, Pass *pass, const MoeSaved *saved, Tensor dy) {
    Exec *e = pass->exec;
    Experts set[EXPERT_SETS];
    for (int i = 0, sets = experts_of(block->config, pass->shape, set); i < sets; i++) {
        const MoeRows *s = &saved->set[i];
        if (set[i].ranks > 1) {
            TRY(moe_ranks_weights(block, pass, &set[i], s));
            continue;
        }
        TRY(expert_gather(e, s->rows, TENSOR_NONE, dy, TENSOR_NONE, s->slots, set[i].top));
        TRY(expert_act_forward(e, s->act, s->pre, s->weights, s->offsets, block->config->act));
        TRY(experts_gradient(block, pass, set[i].down, experts_down(block, pass->grad, &set[i]), s->rows,
                             s->act, s->offsets, NULL));
    }
    return OK;
}

Status moe_weight_up(const Block *block, Pass *pass, const MoeSaved *saved, Tensor dpre, Tensor x) {
    Exec *e = pass->exec;
    Experts set[EXPERT_SETS];
    for (int i = 0, sets = experts_of(block->config, pass->shape, set); i < sets; i++) {
        const MoeRows *s = &saved->set[i];
        TRY(router_gradient(block, pass, &set[i], s, x));
        if (set[i].ranks > 1) continue; /* done with down's */
        TRY(expert_gather(e, s->rows, TENSOR_NONE, x, TENSOR_NONE, s->slots, set[i].top));
        TRY(experts_gradient(block, pass, set[i].up, experts_up(block, pass->grad, &set[i]),
                             pre_of(block->config, pass->shape, i, dpre), s->rows, s->offsets, NULL));
    }
    return OK;
}
