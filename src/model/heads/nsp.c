/* Next sentence: whether the second part of a pair follows the first or is random. */
#include "model/heads/heads.h"

static int64_t width(const ModelConfig *config) {
    (void)config;
    return 2;
}

static Status loss(const Block *block, Pass *pass, HeadId id, Tensor dx, Tensor x) {
    Dropout none = {0};
    PoolScratch w;
    if (!pass->micro->nsp.data) return OK;
    TRY(pooled_forward(block, pass, id, none, x, &w));
    TRY(head_cross_entropy(pass, LOSS_NSP, w.logits, w.stats, w.losses, pass->micro->nsp));
    return pass->shape.train ? pooled_backward(block, pass, id, none, dx, &w) : OK;
}

const Head head_nsp = {
    .traits = {.losses = 1 << LOSS_NSP, .pooled = true, .judged = true},
    .width = width,
    .describe = linear_head_describe,
    .measure = pooled_measure,
    .loss = loss,
    .logits = pooled_logits,
    .logits_scratch = pooled_logits_scratch,
};
