#include "model/heads/heads.h"

#include <stdio.h>
#include <string.h>

Status describe_linear(const Block *block, ParamList *list, int id, int64_t out, const char *name) {
    const ModelConfig *c = block->config;
    TRY(describe_matrix(list, id, c->init, c->init_std, -1, out, c->hidden, 0, "%s.weight", name));
    return describe_bias(list, id + 1, -1, out, 0, "%s.bias", name);
}

Status linear_head_describe(const Block *block, HeadId id, ParamList *list) {
    char name[PARAM_NAME];
    snprintf(name, sizeof name, "head.%s", head_name(id));
    return describe_linear(block, list, HEAD_PARAM(id), head_at(id)->width(block->config), name);
}

Bump head_scratch(const Block *block, const Pass *pass) {
    Bump bump = bump_over(pass->scratch);
    head_rows_buffer(block, pass->shape, &bump);
    return bump;
}

Status head_cross_entropy(Pass *pass, LossId loss, Tensor logits, Tensor stats, Tensor losses,
                          Tensor labels) {
    VocabPart all = {.start = 0, .valid = logits.dim[1]};
    TRY(xent_loss(pass->exec, losses, stats, logits, labels, all, pass->loss_grad[loss], pass->shape.train));
    return head_sum(pass, loss, losses, stats, labels, all.valid);
}

/* ---- pooled heads ---- */

static PoolScratch pooled_scratch(const Block *block, HeadId id, Shape shape, int64_t B, Bump *bump) {
    const Head *head = head_at(id);
    Tensor width = tensor_3d(NULL, shape.dtype, B, 1, block->config->hidden);
    PoolScratch w;
    w.x = tensor_take(bump, width);
    w.pre = tensor_take(bump, width);
    w.pooled = tensor_take(bump, width);
    w.dropped = tensor_take(bump, width);
    w.d = tensor_take(bump, width);
    w.logits = tensor_take(bump, tensor_2d(NULL, DT_F32, B, head->width(block->config)));
    w.stats = tensor_take(bump, tensor_2d(NULL, DT_F32, B, 3));
    bool targets = head->targets && head->targets(block->config) > 0;
    w.losses = tensor_take(bump, targets ? w.logits : tensor_1d(NULL, DT_F32, B));
    return w;
}

void pooled_measure(const Block *block, HeadId id, Shape shape, Bump *scratch) {
    pooled_scratch(block, id, shape, shape.B, scratch);
}

/* Logits from the pooled first tokens w->x. */
static Status pooled_scores(const Block *block, Pass *pass, const PoolScratch *w, Dropout dropout,
                            Linear head) {
    Linear pooler = linear_of(block, pass->param, POOLER_W);
    TRY(linear_forward(pass->exec, w->pooled, w->pre, w->x, pooler.weight, pooler.bias, ACT_TANH));
    TRY(dropout_add_forward(pass->exec, w->dropped, TENSOR_NONE, w->pooled, dropout));
    return linear_forward(pass->exec, w->logits, TENSOR_NONE, w->dropped, head.weight, head.bias, ACT_NONE);
}

Status pooled_forward(const Block *block, Pass *pass, HeadId id, Dropout dropout, Tensor x,
                      PoolScratch *ret_scratch) {
    Bump bump = head_scratch(block, pass);
    PoolScratch w = pooled_scratch(block, id, pass->shape, pass->shape.B, &bump);
    TRY(bump_check(&bump, "the pooled heads' scratch"));
    TRY(gather_rows(pass->exec, tensor_matrix(w.x), x, pass->micro->first_rows));
    *ret_scratch = w;
    return pooled_scores(block, pass, &w, dropout, linear_of(block, pass->param, HEAD_PARAM(id)));
}

Status pooled_backward(const Block *block, Pass *pass, HeadId id, Dropout dropout, Tensor dx,
                       const PoolScratch *w) {
    Exec *e = pass->exec;
    Linear own = linear_of(block, pass->param, HEAD_PARAM(id));
    Linear own_grad = linear_of(block, pass->grad, HEAD_PARAM(id));
    Linear pooler = linear_of(block, pass->param, POOLER_W), grad = linear_of(block, pass->grad, POOLER_W);
    TRY(linear_backward_weight(e, own_grad.weight, own_grad.bias, w->logits, w->dropped, true));
    TRY(linear_backward_input(e, w->d, TENSOR_NONE, w->logits, own.weight, ACT_NONE, TENSOR_NONE, false));
    TRY(dropout_backward(e, w->d, TENSOR_NONE, w->d, dropout));
    TRY(act_backward(e, w->d, w->d, w->pre, ACT_TANH));
    TRY(linear_backward_weight(e, grad.weight, grad.bias, w->d, w->x, true));
    TRY(linear_backward_input(e, w->dropped, TENSOR_NONE, w->d, pooler.weight, ACT_NONE, TENSOR_NONE, false));
    return scatter_add_rows(e, dx, tensor_matrix(w->dropped), pass->micro->first_rows);
}

Status pooled_logits(const Block *block, Pass *pass, HeadId id, Tensor out, Tensor rows) {
    Bump bump = bump_over(pass->scratch);
    PoolScratch w = pooled_scratch(block, id, pass->shape, rows.dim[0], &bump);
    TRY(bump_check(&bump, "the pooled heads' scratch"));
    memcpy(w.x.dim, (int64_t[]){rows.dim[0], 1, rows.dim[1]}, 3 * sizeof(int64_t));
    w.x.data = rows.data;
    w.logits = out;
    return pooled_scores(block, pass, &w, (Dropout){0}, linear_of(block, pass->param, HEAD_PARAM(id)));
}

void pooled_logits_scratch(const Block *block, HeadId id, Shape shape, int64_t rows, Bump *scratch) {
    pooled_scratch(block, id, shape, rows, scratch);
}
