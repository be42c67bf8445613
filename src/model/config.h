/* What a model is: sizes, details and heads. The same structure describes GPT-2 and BERT; a
 * checkpoint's config.json becomes one and is written from one (checkpoint/hf_config.c). */
#ifndef WEFT_MODEL_CONFIG_H
#define WEFT_MODEL_CONFIG_H

#include "kernels/kernels.h"

typedef enum { FAMILY_GPT2, FAMILY_BERT } Family;

/* Heads a model may carry; a set of bits. */
typedef enum {
    OUTPUT_LM = 1,       /* GPT-2: next token */
    OUTPUT_MLM = 2,      /* BERT: masked tokens */
    OUTPUT_NSP = 4,      /* BERT: next sentence */
    OUTPUT_SPAN = 8,     /* BERT: start and end of an answer */
    OUTPUT_CLASSIFY = 16 /* BERT: a label for the sequence */
} OutputHead;

enum { MAX_LABELS = 1 << 20, MORE_ENDS = 7 };

typedef struct ModelConfig {
    Family family;
    unsigned outputs_mask; /* OutputHead bits; BERT with none is the bare encoder */
    bool pooler;           /* BERT's dense + tanh on the first token; NSP and CLASSIFY need it */
    int64_t layers, hidden, heads, inner, vocab, positions, types, labels;
    int64_t
        head_width; /* 0: hidden / heads; else heads were pruned, and hidden / head_width is what they were */
    Act act;
    float norm_eps;
    float init_std;
    float dropout_embed, dropout_attn, dropout_hidden, dropout_classify;
    bool tied;                               /* the LM or MLM output matrix is the token embedding */
    bool scale_attn;                         /* scores are divided by sqrt(head width) */
    bool scale_attn_by_layer;                /* GPT-2: and by the layer's number, from 1 */
    int64_t pad_token, bos_token, eos_token; /* -1: none */
    int64_t eos_more[MORE_ENDS];             /* tokens that end a text as eos_token does */
    int eos_more_count;
    bool sparse;          /* stored without the weights that are 0 (checkpoint/hf_sparse.h)... */
    bool sparse_products; /* ...and kept so: for inference on a CPU in fp32 */
    bool int8;            /* the layers' matrices are of 8 bits: for inference, on a CPU in fp32 */
    bool int8_embedding;  /* and the token embedding and the output matrix */
    bool int4;            /* int8, but the layers' matrices are of 4 bits */
    bool int4_embedding;  /* int8_embedding, but of 4 bits */
    bool int8_held;       /* int8, with inputs rounded by what was found beforehand, not as they come */
} ModelConfig;

static inline int64_t config_head_width(const ModelConfig *config) {
    return config->head_width ? config->head_width : config->hidden / config->heads;
}
/* Of all heads together: q, k and v are so wide each. */
static inline int64_t config_attention(const ModelConfig *config) {
    return config->heads * config_head_width(config);
}

/* A preset by name, or a usage error that suggests the nearest. */
MUST_USE Status config_preset(const char *name, ModelConfig *ret_config);
/* Names of the presets, NULL-terminated. */
const char *const *config_presets(void);
/* One sentence when the sizes cannot make a model. */
MUST_USE Status config_check(const ModelConfig *config);

const char *output_name(OutputHead head); /* "lm", "mlm", "nsp", "span", "classify" */
bool config_has(const ModelConfig *config, OutputHead head);

#endif
