/* The model configuration: sizes, variants and output heads. Each variant is a property of its own; a family
 * (model/family.h) only chooses their values, and code asks for properties. */
#ifndef WEFT_MODEL_CONFIG_H
#define WEFT_MODEL_CONFIG_H

#include "kernels/kernels.h"
#include "param/param.h"

typedef struct Family Family;

/* Output heads, as bits. */
typedef enum {
    OUTPUT_LM = 1,       /* next token */
    OUTPUT_MLM = 2,      /* masked tokens */
    OUTPUT_NSP = 4,      /* next sentence */
    OUTPUT_SPAN = 8,     /* start and end of an answer */
    OUTPUT_CLASSIFY = 16 /* sequence classification */
} OutputHead;

/* What the classification head predicts; problem_type in config.json. */
typedef enum {
    PROBLEM_AUTO,         /* not set, see config_problem */
    PROBLEM_SINGLE_LABEL, /* one of the labels: softmax and cross-entropy */
    PROBLEM_REGRESSION,   /* a number per label: mean squared error */
    PROBLEM_MULTI_LABEL,  /* any subset of the labels: binary cross-entropy */
} ProblemType;

/* Where a layer normalizes: the input of attention and MLP (with a final norm before the output head), or
 * their sum with the residual. */
typedef enum { NORM_BEFORE, NORM_AFTER } NormPlace;

/* Which positions a token attends to: itself and earlier ones, or all. */
typedef enum { ATTEND_CAUSAL, ATTEND_ALL } AttentionKind;

/* Which matrices of a layer have a bias, as bits. */
enum { BIAS_QKV = 1, BIAS_OUT = 2, BIAS_MLP = 4, BIAS_ALL = 7 };

enum { MAX_LABELS = 1 << 20, MORE_EOS = 7 };

typedef struct ModelConfig {
    const Family *family;
    unsigned outputs_mask; /* OutputHead bits; 0 for a bare encoder */
    bool pooler;           /* dense + tanh on the first token; required by NSP and CLASSIFY */
    int64_t layers, hidden, heads, inner, vocab, positions, labels;
    int64_t types;       /* token types with an embedding; 0: none */
    ProblemType problem; /* of the CLASSIFY head */
    int64_t head_width;  /* 0: hidden / heads; otherwise heads were pruned from hidden / head_width */
    NormPlace norm_place;
    float norm_eps;
    bool embed_norm; /* the sum of the embeddings is normalized */
    AttentionKind attention;
    bool scale_attn;          /* divide attention scores by sqrt(head width) */
    bool scale_attn_by_layer; /* also divide by the layer number, from 1 */
    unsigned biases;          /* BIAS bits */
    Act act;
    bool tied;                 /* the LM or MLM output matrix is the token embedding */
    bool pad_fixed;            /* the lookup gives the padding token no gradient */
    InitKind init;             /* of matrices: */
    float init_std;            /* standard deviation */
    bool init_residual;        /* divided by sqrt(2 * layers) for the outputs of attention and MLP */
    float init_position_scale; /* multiplied by this for position embeddings */
    float dropout_embed, dropout_attn, dropout_hidden, dropout_classify;
    int64_t pad_token, bos_token, eos_token; /* -1: not set */
    int64_t eos_more[MORE_EOS];              /* further end-of-sequence tokens */
    int eos_more_count;
    bool sparse;          /* the checkpoint omits zero weights (checkpoint/hf_sparse.h) */
    bool sparse_products; /* sparse weights stay sparse in memory: CPU inference in fp32 */
    bool int8;            /* int8 weight matrices in layers; inference only */
    bool int8_embedding;  /* int8 token embedding and output matrix as well */
    bool int4;            /* with int8: layer matrices are int4 */
    bool int4_embedding;  /* with int8_embedding: int4 instead */
    bool int8_held;       /* with int8: static activation scales from calibration */
} ModelConfig;

static inline int64_t config_head_width(const ModelConfig *config) {
    return config->head_width ? config->head_width : config->hidden / config->heads;
}
/* Attention width: the width of q over all heads. */
static inline int64_t config_attention(const ModelConfig *config) {
    return config->heads * config_head_width(config);
}
static inline bool config_causal(const ModelConfig *config) {
    return config->attention == ATTEND_CAUSAL;
}

/* Looks up a preset; an unknown name is a usage error that suggests the closest one. */
MUST_USE Status config_preset(const char *name, ModelConfig *ret_config);
/* Names of the presets, NULL-terminated. */
const char *const *config_presets(void);
/* A usage error if the sizes are inconsistent. */
MUST_USE Status config_check(const ModelConfig *config);

const char *output_name(OutputHead head); /* "lm", "mlm", "nsp", "span", "classify" */
bool config_has(const ModelConfig *config, OutputHead head);
/* config->problem or, if it is not set, what transformers assumes: regression for a single label, else
 * PROBLEM_SINGLE_LABEL. */
ProblemType config_problem(const ModelConfig *config);
/* Number of fp32 targets per sequence: the labels of a regression or multi-label head; 0 for other models. */
int64_t config_targets(const ModelConfig *config);
/* The value of problem_type in config.json, such as "regression"; NULL: PROBLEM_AUTO. */
const char *problem_name(ProblemType problem);

#endif
