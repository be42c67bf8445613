/* Sequence classification: cross-entropy over the labels, or for regression and multi-label classification a
 * loss per output. */
#include "model/heads/heads.h"

static int64_t width(const ModelConfig *config) {
    return config->labels;
}

static int64_t targets(const ModelConfig *config) {
    return config_problem(config) == PROBLEM_SINGLE_LABEL ? 0 : config->labels;
}

/* The loss of independent outputs (B,L), which have targets instead of labels. */
static Status target_loss(const Block *block, Pass *pass, Tensor logits, Tensor losses) {
    bool regression = config_problem(block->config) == PROBLEM_REGRESSION;
    float scale = pass->loss_grad[LOSS_CLASSIFY];
    TRY((regression ? mse_loss : bce_loss)(pass->exec, losses, logits, pass->micro->targets, scale,
                                           pass->shape.train));
    return sum(pass->exec, tensor_slice(pass->loss, LOSS_CLASSIFY, 1), losses);
}

static Status loss(const Block *block, Pass *pass, HeadId id, Tensor dx, Tensor x) {
    const ModelConfig *c = block->config;
    const Micro *micro = pass->micro;
    PoolScratch w;
    if (!micro->classes.data && !micro->targets.data) return OK;
    Dropout dropout = dropout_of_sequences(pass, c->dropout_classify, c->hidden, "head.classify");
    TRY(pooled_forward(block, pass, id, dropout, x, &w));
    if (micro->targets.data)
        TRY(target_loss(block, pass, w.logits, w.losses));
    else
        TRY(head_cross_entropy(pass, LOSS_CLASSIFY, w.logits, w.stats, w.losses, micro->classes));
    return pass->shape.train ? pooled_backward(block, pass, id, dropout, dx, &w) : OK;
}

const Head head_classify = {
    .traits = {.losses = 1 << LOSS_CLASSIFY, .pooled = true, .labeled = true, .judged = true},
    .width = width,
    .targets = targets,
    .describe = linear_head_describe,
    .measure = pooled_measure,
    .loss = loss,
    .logits = pooled_logits,
    .logits_scratch = pooled_logits_scratch,
};
