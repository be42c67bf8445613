/* The tiny models of tests: sizes by row, and what all of them have. */
#ifndef WEFT_TESTS_TINY_H
#define WEFT_TESTS_TINY_H

#include "model/model.h"

typedef enum { TINY_BLOCK, TINY_COUNTED, TINY_TRACED, TINY_RESUMED, TINY_RECORDED, TINY_SAVED } Tiny;

static const struct {
    int layers, hidden, heads, kv_heads; /* kv_heads: of families with rotary positions */
    int inner, vocab, positions, labels;
    float init_std, dropout;
} tiny_models[] = {
    [TINY_BLOCK] = {2, 12, 2, 1, 20, 17, 9, 4, 0.02f, 0.2f},
    [TINY_COUNTED] = {6, 64, 4, 4, 256, 61, 32, 2, 0.02f, 0.1f},
    [TINY_TRACED] = {4, 16, 2, 2, 64, 61, 8, 2, 0.02f, 0},
    /* Two tensor-parallel ranks split the vocabulary: each has real rows, and the last also has padding. */
    [TINY_RESUMED] = {4, 24, 4, 2, 40, 200, 8, 2, 0.1f, 0.1f},
    [TINY_RECORDED] = {2, 16, 2, 2, 32, 31, 6, 2, 0.2f, 0},
    /* All sizes differ, so that swapped dimensions are noticed. */
    [TINY_SAVED] = {2, 12, 3, 3, 20, 37, 17, 5, 0.02f, 0.1f},
};

/* Changes the sizes of a preset. Experts keep the size of dense layers if the family has one field for both.
 */
static inline void tiny_resize(ModelConfig *config, Tiny tiny) {
    bool alike = config->expert_inner == config->inner;
    config->layers = tiny_models[tiny].layers;
    config->hidden = tiny_models[tiny].hidden;
    config->heads = tiny_models[tiny].heads;
    if (config->kv_heads)
        config->kv_heads = config->qk_norm_whole ? config->heads : tiny_models[tiny].kv_heads;
    config->inner = tiny_models[tiny].inner;
    if (config->experts) {
        config->experts = 4;
        config->top_k = 2;
        config->expert_inner = alike ? config->inner : config->inner / 2;
    }
    if (config->shared_inner) config->shared_inner = config->inner / 2;
    config->vocab = tiny_models[tiny].vocab;
    config->positions = tiny_models[tiny].positions;
    config->labels = tiny_models[tiny].labels;
}

/* Without special tokens. */
static inline ModelConfig tiny_config(const Family *family, unsigned outputs, Tiny tiny) {
    ModelConfig config;
    family->defaults(&config);
    config.outputs_mask = outputs;
    config.pooler = outputs & (OUTPUT_NSP | OUTPUT_CLASSIFY);
    config.kv_heads = config.position == POSITION_ROPE;
    tiny_resize(&config, tiny);
    config.head_width = config.head_width ? 8 : 0;
    config.window = config.window ? 3 : 0;
    config.norm_eps = 1e-5f;
    config.init_std = tiny_models[tiny].init_std;
    config.dropout_embed = config.dropout_attn = config.dropout_hidden = config.dropout_classify =
        tiny_models[tiny].dropout;
    config.tied = true;
    config.pad_token = config.bos_token = config.eos_token = -1;
    return config;
}

#endif
