/* The model configuration: sizes, variants and output heads. Each variant is a property of its own; a family
 * (model/family.h) only chooses their values, and code asks for properties. */
#ifndef WEFT_MODEL_CONFIG_H
#define WEFT_MODEL_CONFIG_H

#include "kernels/kernels.h"
#include "param/param.h"

typedef struct Family Family;

/* The output heads and, in masks, the bit of each; the tasks that train them; their losses. */
typedef enum {
#define HEAD(NAME, name, title, class, losses)        HEAD_##NAME,
#define JOINT(NAME, name, TASK, title, class, losses) HEAD_##NAME,
#include "model/heads.def"
    HEAD_COUNT,
    HEAD_NONE = HEAD_COUNT /* the hidden states, where outputs are chosen */
} HeadId;
typedef enum {
#define HEAD(NAME, name, title, class, losses)        OUTPUT_##NAME = 1 << HEAD_##NAME,
#define JOINT(NAME, name, TASK, title, class, losses) OUTPUT_##NAME = 1 << HEAD_##NAME,
#include "model/heads.def"
} OutputHead;
typedef enum {
#define HEAD(NAME, name, title, class, losses) TASK_##NAME,
#include "model/heads.def"
    TASK_COUNT
} Task;
typedef enum {
#define HEAD(NAME, name, title, class, losses)        losses
#define JOINT(NAME, name, TASK, title, class, losses) losses
#define LOSS(NAME, name, weight)                      LOSS_##NAME,
#include "model/heads.def"
    LOSS_COUNT
} LossId;

/* What a labeled head predicts; problem_type in config.json. */
typedef enum {
    PROBLEM_AUTO,         /* not set, see config_problem */
    PROBLEM_SINGLE_LABEL, /* one of the labels: softmax and cross-entropy */
    PROBLEM_REGRESSION,   /* a number per label: mean squared error */
    PROBLEM_MULTI_LABEL,  /* any subset of the labels: binary cross-entropy */
} ProblemType;

typedef enum { NORM_LAYER, NORM_RMS } NormKind;

/* Where a layer normalizes: the input of attention and MLP (with a final norm before the output head), or
 * their sum with the residual. */
typedef enum { NORM_BEFORE, NORM_AFTER } NormPlace;

/* Which positions a token attends to: itself and earlier ones, or all. Independent of the output heads: an
 * embedding model may be a Llama that attends to all. */
typedef enum { ATTEND_CAUSAL, ATTEND_ALL } AttentionKind;

/* How a token knows its position: an embedding is added to the token's, or q and k are rotated (RoPE). */
typedef enum { POSITION_LEARNED, POSITION_ROPE } PositionKind;

/* Rotary embedding: pair i of a head of width D rotates by position / theta^(2i/D), with the frequencies
 * changed for contexts longer than the original one (model/rope.h). */
typedef enum {
    ROPE_PLAIN,
    ROPE_LINEAR,
    ROPE_LLAMA3,
    ROPE_DYNAMIC,
    ROPE_YARN,
    ROPE_LONGROPE,
} RopeScaling;

enum { ROPE_PAIRS = 128 /* of a head with ROPE_LONGROPE, at most */ };

/* Each kind of scaling uses some fields; the others are 0. */
typedef struct Rope {
    float theta;
    RopeScaling scaling;
    float factor;           /* frequencies are divided by it: all (linear), or low ones (llama3, yarn) */
    int64_t original;       /* llama3, yarn, longrope: the context length before scaling */
    float attention_factor; /* yarn, longrope: cosines and sines are multiplied by it; 0: see rope.c */
    float low_freq_factor, high_freq_factor; /* llama3: see rope.c */
    float beta_fast, beta_slow;              /* yarn: rotations within the original context, see rope.c */
    float mscale, mscale_all_dim;            /* yarn: they determine the attention factor; 0: absent */
    bool no_truncate;                        /* yarn: do not round the limits of the ramp */
    /* longrope: frequencies are divided by these up to the original context length, and beyond it. */
    float short_factor[ROPE_PAIRS], long_factor[ROPE_PAIRS];
} Rope;

/* Which matrices of a layer have a bias, as bits. */
enum { BIAS_QKV = 1, BIAS_OUT = 2, BIAS_MLP = 4, BIAS_ALL = 7 };

/* Low-rank adapters of the layers' matrices; see model/parts/lora.h. */
typedef struct LoraConfig {
    int rank; /* 0: none */
    float alpha, dropout;
    bool rslora; /* the scale is alpha / sqrt(rank) instead of alpha / rank */
} LoraConfig;

enum { MAX_LABELS = 1 << 20, MAX_POSITIONS = 1 << 24, MORE_EOS = 7 };
/* The largest sizes of a model that weft accepts; fields.h has those of config.json. */
enum {
    MOST_LAYERS = 100000,
    MOST_HIDDEN = 1 << 20,
    MOST_HEADS = 1 << 16,
    MOST_INNER = 1 << 23,
    MOST_VOCAB = 1 << 27,
    MOST_EXPERTS = EXPERTS_MAX,
    MOST_DENSE = 64 /* layers that are listed as dense */
};

typedef struct ModelConfig {
    const Family *family;
    unsigned outputs_mask; /* OutputHead bits; 0 for a bare encoder */
    bool pooler;           /* dense + tanh on the first token; required by some heads */
    int64_t layers, hidden, heads, inner, vocab, positions, labels;
    int64_t types;        /* token types with an embedding; 0: none */
    ProblemType problem;  /* with labels */
    int64_t kv_heads;     /* heads of k and v, each shared by heads / kv_heads heads of q; 0: heads */
    int64_t head_width;   /* 0: hidden / heads; otherwise heads were pruned from hidden / head_width, or: */
    bool free_head_width; /* head_width does not depend on hidden, and config.json has a field for it */
    NormKind norm;
    NormPlace norm_place;
    float norm_eps;
    bool embed_norm; /* the sum of the embeddings is normalized */
    PositionKind position;
    Rope rope; /* with POSITION_ROPE */
    AttentionKind attention;
    int64_t window;      /* a causal token sees this many tokens, itself included; 0: all */
    int64_t window_from; /* the first layer with a window; earlier ones have none */
    bool qk_norm;        /* the heads of q and k are normalized, each with a weight of the head's width */
    bool scale_attn;     /* divide attention scores by sqrt(head width) */
    bool scale_attn_by_layer; /* also divide by the layer number, from 1 */
    unsigned biases;          /* BIAS bits */
    Act act;
    bool gated; /* the activation of one half of up multiplies the other half */
    /* A mixture: most layers have `experts` smaller MLPs, and each token uses `top_k` of them; see
     * config_sparse. */
    int64_t experts, top_k, expert_inner; /* 0: none */
    int64_t shared_inner;                 /* of the shared expert, which all tokens use; 0: none */
    int64_t sparse_step;                  /* every n-th layer is a mixture; 0: 1 */
    int64_t dense_layer[MOST_DENSE];      /* layers that are none */
    int dense_layers;
    bool norm_top_k;           /* the weights of a token's experts are divided by their sum */
    float balance_coef;        /* of the balancing loss: router_aux_loss_coef */
    bool qk_norm_whole;        /* with qk_norm: q and k are normalized over all heads together */
    bool tied;                 /* the LM or MLM output matrix is the token embedding */
    bool bare;                 /* its files may lack the output matrix, which is then new */
    bool pad_fixed;            /* the lookup gives the padding token no gradient */
    InitKind init;             /* of matrices: */
    float init_std;            /* standard deviation */
    bool init_residual;        /* divided by sqrt(2 * layers) for the outputs of attention and MLP */
    float init_position_scale; /* multiplied by this for position embeddings */
    float dropout_embed, dropout_attn, dropout_hidden, dropout_classify;
    int64_t pad_token, bos_token, eos_token; /* -1: not set */
    int64_t eos_more[MORE_EOS];              /* further end-of-sequence tokens */
    int eos_more_count;
    bool sparse;              /* the checkpoint omits zero weights (checkpoint/hf_sparse.h) */
    Packing packed_layers;    /* weight matrices in layers; sparse only on CPUs in fp32 */
    Packing packed_embedding; /* token embedding and output matrix, never sparse */
    bool static_scales;       /* quantized: activation scales are static, from calibration */
    LoraConfig lora;          /* set by model_adapt */
} ModelConfig;

static inline int64_t config_head_width(const ModelConfig *config) {
    return config->head_width ? config->head_width : config->hidden / config->heads;
}
/* Attention width: the width of q over all heads. */
static inline int64_t config_attention(const ModelConfig *config) {
    return config->heads * config_head_width(config);
}
static inline int64_t config_kv_heads(const ModelConfig *config) {
    return config->kv_heads ? config->kv_heads : config->heads;
}
/* Width of k, and of v, over all heads. */
static inline int64_t config_kv_width(const ModelConfig *config) {
    return config_kv_heads(config) * config_head_width(config);
}
/* Whether q has other heads than k and v, and thus a matrix of its own. */
static inline bool config_grouped(const ModelConfig *config) {
    return config_kv_heads(config) != config->heads;
}
/* Whether `tp` tensor-parallel ranks can split the key-value heads: evenly, or sharing them evenly. */
static inline bool config_splits_groups(const ModelConfig *config, int64_t tp) {
    int64_t groups = config_kv_heads(config);
    return groups % tp == 0 || tp % groups == 0;
}
/* Whether `tp` ranks of tensor parallelism can split the layers. */
bool config_splits_layers(const ModelConfig *config, int64_t tp);
/* Whether `cp` ranks of context parallelism can split the key-value heads of each of these. */
static inline bool config_splits_context(const ModelConfig *config, int64_t tp, int64_t cp) {
    int64_t groups = config_kv_heads(config);
    return (groups > tp ? groups / tp : 1) % cp == 0;
}
static inline bool config_causal(const ModelConfig *config) {
    return config->attention == ATTEND_CAUSAL;
}
/* Bits of quantized weights; 32 if they are not. */
static inline int packing_bits(Packing packing) {
    return packing == PACK_INT8 ? 8 : packing == PACK_INT4 ? 4 : 32;
}
/* Whether the weights of layers are int8 or int4, for inference only. */
static inline bool config_quantized(const ModelConfig *config) {
    return packing_bits(config->packed_layers) < 32;
}
/* Tokens that a token of a layer sees; 0: no limit. */
static inline int64_t config_window(const ModelConfig *config, int layer) {
    return config_causal(config) && layer >= config->window_from ? config->window : 0;
}

/* Whether the MLP of a layer is a mixture of experts. */
bool config_sparse(const ModelConfig *config, int64_t layer);
/* The number of such layers. */
int64_t config_sparse_layers(const ModelConfig *config);

/* The longest sequence. With ROPE_DYNAMIC, `positions` is the length before scaling, and with ROPE_YARN it
 * may be, so it is multiplied by the factor. */
int64_t config_context(const ModelConfig *config);

/* Looks up a preset; an unknown name is a usage error that suggests the closest one. */
MUST_USE Status config_preset(const char *name, ModelConfig *ret_config);
/* Names of the presets, NULL-terminated. */
const char *const *config_presets(void);
/* Those with a name like this one, the most similar first: "qwen3-8b, qwen3-0.6b or qwen3-1.7b". Empty: none.
 */
enum { PRESETS_TEXT = 200 };
const char *config_near_presets(const char *name, char text[PRESETS_TEXT]);
/* A usage error if the sizes are inconsistent. */
MUST_USE Status config_check(const ModelConfig *config);

bool config_has(const ModelConfig *config, OutputHead head);
/* Whether the family's models predict the next token; they need not be causal. */
bool config_is_decoder(const ModelConfig *config);
/* Whether the model can generate text. */
bool config_generates(const ModelConfig *config);
/* config->problem or, if it is not set, what transformers assumes: regression for a single label, else
 * PROBLEM_SINGLE_LABEL. */
ProblemType config_problem(const ModelConfig *config);
/* Number of fp32 targets per sequence: the labels of a regression or multi-label head; 0 for other models. */
int64_t config_targets(const ModelConfig *config);
/* Whether an output head has labels. */
bool config_labeled(const ModelConfig *config);
/* The value of problem_type in config.json, such as "regression"; NULL: PROBLEM_AUTO. */
const char *problem_name(ProblemType problem);

#endif
