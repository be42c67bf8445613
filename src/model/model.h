/* A model is a list of blocks: embedding, layers, head. A block declares its parameters, says how
 * much memory it needs for a given micro-batch, and runs forward and backward. Whoever runs it (the
 * training runner, evaluation, generation) brings memory, views of the parameters and the groups;
 * a block knows neither layouts nor devices.
 *
 * Parameter names, in the order the blocks declare them (P positions, K types, L labels):
 *   embed.token (V,C)  embed.position (P,C)
 *   BERT: embed.type (K,C)  embed.norm.weight (C)  embed.norm.bias (C)
 *   layer.I.norm1.weight (C) .bias (C)          GPT-2: before attention; BERT: after it
 *   layer.I.attn.qkv.weight (3,A,C) .bias (3,A)  q, k, v each (out, in); A is C unless heads were pruned
 *   layer.I.attn.out.weight (C,A) .bias (C)
 *   layer.I.norm2.weight (C) .bias (C)          GPT-2: before the MLP; BERT: after it
 *   layer.I.mlp.up.weight (F,C) .bias (F)
 *   layer.I.mlp.down.weight (C,F) .bias (C)
 *   GPT-2: head.norm.weight (C) .bias (C), then embed.token again (tied) or head.output.weight (V,C)
 *   BERT, what its heads need: head.pooler.weight (C,C) .bias (C)
 *     head.mlm.dense.weight (C,C) .bias (C)  head.mlm.norm.weight (C) .bias (C)  head.mlm.bias (V)
 *     and embed.token again (tied) or head.output.weight (V,C)
 *     head.nsp.weight (2,C) .bias (2)  head.span.weight (2,C) .bias (2)
 *     head.classify.weight (L,C) .bias (L)
 * Matrices are (out, in) throughout; checkpoint/ turns Hugging Face's Conv1D around.
 */
#ifndef WEFT_MODEL_MODEL_H
#define WEFT_MODEL_MODEL_H

#include "comm/group.h"
#include "model/config.h"
#include "parallel/recompute.h"
#include "param/param.h"

typedef enum { LOSS_TOKEN, LOSS_NSP, LOSS_SPAN_START, LOSS_SPAN_END, LOSS_CLASSIFY, LOSS_COUNT } LossId;

/* One micro-batch on the device. All int32; what a task does not use is none. */
typedef struct Micro {
    int64_t B, T;
    int64_t first;      /* global index, in the step's batch, of its first sequence */
    Tensor tokens;      /* (B,T) */
    Tensor types;       /* (B,T) BERT */
    Tensor lens;        /* (B) keys at or past it are padding; none: no padding */
    Tensor labels;      /* LM: (B*T) next tokens, -100: not counted */
    Tensor picks;       /* MLM: (M) rows b*T+t that are predicted */
    Tensor pick_labels; /* MLM: (M) their tokens */
    Tensor nsp;         /* (B) 0: B follows A, 1: random */
    Tensor first_rows;  /* (B) rows b*T, for heads on the first token */
    Tensor span;        /* (2,B) start and end positions; at or past T: not counted */
    Tensor classes;     /* (B) */
} Micro;

/* What quantization training gets used to, see model/rounding.h. */
typedef enum { ROUND_NONE, ROUND_INT8, ROUND_INT4 } RoundTo;

/* What a block's memory depends on. */
typedef struct Shape {
    int64_t B, T;
    int tp;              /* tensor ranks */
    bool sequence;       /* between split parts each tensor rank holds 1/tp of the B*T rows */
    DType dtype;         /* of activations and weights */
    bool fp8;            /* layers multiply in 8 bits where their sizes suit (dtype is bf16 then) */
    RoundTo round;       /* layers compute with rounded weights; not with fp8 */
    DType logits;        /* of logits over the vocabulary: that type or, by default, fp32 */
    bool train;          /* keep what backward needs */
    Recompute recompute; /* selective: blocks keep less; the other modes are the runner's affair */
} Shape;

/* Generation: caches of one layer and what is new, see attention_decode. */
typedef struct KvCache {
    Tensor k, v; /* (B,H,S,D) */
} KvCache;

typedef struct Decode {
    Tensor past, fresh; /* (B) int32 */
    KvCache *cache;     /* one per layer block, in order */
} Decode;

/* Everything one call of a block works with. */
typedef struct Pass {
    Exec *exec;
    Group *tp;
    Shape shape;
    const Micro *micro;
    const Tensor *param;         /* views in the order of the block's ParamList, tied ones included */
    const Tensor *grad;          /* likewise; NULL outside training */
    uint64_t seed, step;         /* for dropout, which is on when shape.train is */
    Buffer saved;                /* this block's, for this micro-batch: from forward to backward */
    Buffer deferred;             /* backward: put what the weights' gradients need here, for backward_weight,
                                  * instead of computing them; empty: compute them at once */
    Buffer scratch;              /* shared, for this call alone */
    Tensor loss;                 /* (LOSS_COUNT) fp64 sums, added to by heads */
    Tensor hits;                 /* likewise: labels that had the largest score; none: they are not counted */
    float loss_grad[LOSS_COUNT]; /* d(objective) / d(sum of this loss) */
    const Decode *decode;        /* generation only */
} Pass;

typedef struct Block Block;

typedef struct BlockOps {
    const char *name;
    Status (*describe)(const Block *block, ParamList *ret_params);
    /* Bytes of `saved` and `scratch` for a micro-batch; computed by the same functions that lay
     * the tensors out. */
    void (*measure)(const Block *block, Shape shape, size_t *ret_saved, size_t *ret_scratch);
    /* Bytes of `deferred`; NULL: the block's backward does all of its work at once. */
    size_t (*measure_deferred)(const Block *block, Shape shape);
    /* y (B,T,C) from x (B,T,C), or a rank's rows of them (1,B*T/tp,C). The embedding takes no x; the head
     * gives no y: it adds to the loss sums and, in training, computes its gradients at once so that no logits
     * are kept. */
    Status (*forward)(const Block *block, Pass *pass, Tensor y, Tensor x);
    /* dx from dy, adding to the parameters' gradients. dx may be dy. */
    Status (*backward)(const Block *block, Pass *pass, Tensor dx, Tensor dy, Tensor x);
    /* The rest of a backward that had `deferred`. x is the block's input, as in backward. */
    Status (*backward_weight)(const Block *block, Pass *pass, Tensor x);
    /* forward for new positions against the caches in pass->decode; heads have none. */
    Status (*decode)(const Block *block, Pass *pass, Tensor y, Tensor x);
    /* Heads only: see output_logits. */
    Status (*logits)(const Block *block, Pass *pass, OutputHead which, Tensor out, Tensor x);
    size_t (*logits_scratch)(const Block *block, OutputHead which, int64_t rows);
    bool grads_in_forward; /* forward already adds to all gradients (heads) */
    bool backward_params;  /* backward reads the parameters */
} BlockOps;

/* Where a parameter lies: a unit of the model and a slot in it. */
typedef struct ParamRef {
    int unit, slot;
} ParamRef;

struct Block {
    const BlockOps *ops;
    const ModelConfig *config;
    int index; /* the layer's number, for layers */
    ParamList params;
    ParamRef *ref; /* of each of them */
    Tensor *int8;  /* of each of them: packed weights, or none */
};

/* Parameters lie in units. Unit i is what block i alone uses; units from `count` on hold one parameter
 * each that several blocks share. */
typedef struct Model {
    ModelConfig config;
    Block *block;
    int count;
    ParamList *unit;
    int units;
    Buffer packed;  /* what blocks' int8 weights lie in... */
    Buffer placed;  /* ...and, on a GPU, its copy there */
    Buffer *sparse; /* what blocks' sparse weights lie in */
    size_t sparse_count, sparse_capacity;
} Model;

extern const BlockOps block_ops_embed, block_ops_layer, block_ops_gpt2_output, block_ops_bert_output;

MUST_USE Status model_new(Model **ret_model, const ModelConfig *config);
void model_free(Model *model);
DEFINE_FREEP(Model, model)
/* Gives the model the values of a parameter that is int8 (config.int8): w, scale and factor as int8_pack
 * takes them, largest as int8_hold_largest does. Before a store is bound. The device of exec must outlive the
 * model. */
MUST_USE Status model_set_int8(Model *model, const Exec *exec, const char *name, Tensor w, Tensor scale,
                               Tensor factor, float largest);
/* The same for one of 4 bits, as int4_pack takes it. */
MUST_USE Status model_set_int4(Model *model, const Exec *exec, const char *name, Tensor w, Tensor step,
                               Tensor scale, Tensor factor, float largest);
/* The same for one that is sparse (config.sparse_products): mask, first and values as sparse_pack takes them.
 */
MUST_USE Status model_set_sparse(Model *model, const Exec *exec, const char *name, Tensor mask,
                                 const int64_t *first, Tensor values);
int64_t model_params(const Model *model); /* each parameter once */
/* Operations that a block needs for one of T positions, forward and backward; for sharing out blocks. */
double block_flops(const Block *block, int64_t T);

/* out (M,K) = this head's scores for chosen rows x (M,C) of the last layer's output: LM, MLM any
 * rows (K = V); SPAN all rows (K = 2); NSP, CLASSIFY the first row of each sequence (K = 2, L). */
MUST_USE Status output_logits(const Block *head, Pass *pass, OutputHead which, Tensor out, Tensor x);
/* Bytes of scratch that output_logits needs for M rows. */
size_t output_logits_scratch(const Block *head, OutputHead which, int64_t rows);

/* Numbers of one kind (parameters, gradients or a moment) by unit: of each unit all of it, a part, or
 * nothing where another stage has it. */
typedef struct Store {
    const Model *model;
    DType dtype;
    Unit *unit;             /* how this rank lays out each unit */
    Buffer *flat;           /* per unit: its elements first .. first + count - 1 */
    int64_t *first, *count; /* 0 elements: not here */
    Tensor **view;          /* where all of a block's parameters are here: view[block][param] */
    bool borrowed;          /* the buffers are somebody else's */
} Store;

/* All of every unit, in fp32, for one tensor rank. */
MUST_USE Status store_new(Store **ret_store, const Model *model, Device *device, MemTag tag);
/* Without buffers: the caller sets flat, first and count of the units it holds. */
MUST_USE Status store_new_borrowed(Store **ret_store, const Model *model, UnitSpec spec, DType dtype);
/* ... and then makes the views of the blocks that are whole. */
MUST_USE Status store_bind(Store *store);
void store_free(Store *store);
DEFINE_FREEP(Store, store)
/* Fresh values as the papers have them, the same for a seed in every layout. */
MUST_USE Status store_init_params(Store *store, Stream *stream, uint64_t seed);
MUST_USE Status store_zero(Store *store, Stream *stream);
/* Rounds all of a store's own fp32 numbers to a type, which takes the place of what was there. */
MUST_USE Status store_convert(Store *store, Exec *exec, DType dtype);
/* The view of a parameter by name; false when the model has none or not all of it is here. */
bool store_find(const Store *store, const char *name, const ParamDesc **ret_desc, Tensor *ret_view);
/* Views of a block's parameters into units whose first elements are at flat[unit]. */
void block_views(const Block *block, const Unit *unit, void *const *flat, DType dtype, Tensor *views);

#endif
