/* A model is a list of blocks: embedding, transformer layers, output heads. A block declares its parameters,
 * reports how much memory a micro-batch needs, and runs forward and backward. The caller (training runner,
 * evaluation, generation) provides memory, parameter views and groups; a block is independent of layout and
 * device.
 *
 * Parameter names, in the order in which blocks declare them (C hidden size, A attention width, G width of
 * grouped keys, F inner size, V vocabulary, P positions, K token types, L labels, D head width). The
 * properties of a model (model/config.h) determine which of them it has.
 *
 *   embed.token (V,C)  embed.position (P,C)  embed.type (K,C)  embed.norm.weight (C) .bias (C)
 *   layer.I.norm1.weight (C) .bias (C)          before attention, or after
 *   layer.I.attn.qkv.weight (3,A,C) .bias (3,A)  q, k, v, each (out, in)
 *     with grouped heads instead: layer.I.attn.q.weight (A,C) .bias (A)
 *     layer.I.attn.kv.weight (2,G,C) .bias (2,G)
 *   layer.I.attn.q_norm.weight (D)  layer.I.attn.k_norm.weight (D)
 *   layer.I.attn.out.weight (C,A) .bias (C)
 *   layer.I.norm2.weight (C) .bias (C)          before the MLP, or after
 *   layer.I.mlp.up.weight (F,C) .bias (F)       gated: (2,F,C) and (2,F), gate and up
 *   layer.I.mlp.down.weight (C,F) .bias (C)
 *     a mixture instead (E experts of inner size F, or one shared expert):
 *     layer.I.moe.router.weight (E,C)  layer.I.moe.up.weight (2E,F,C), gate and up of each expert by turns
 *     layer.I.moe.down.weight (E,C,F)  layer.I.moe.shared.router.weight (1,C) .up.weight .down.weight
 *   causal models: head.norm.weight (C) .bias (C), then embed.token again (tied) or head.output.weight (V,C)
 *   encoders: head.pooler.weight (C,C) .bias (C)
 *     head.mlm.dense.weight (C,C) .bias (C)  head.mlm.norm.weight (C) .bias (C)  head.mlm.bias (V)
 *     and embed.token again (tied) or head.output.weight (V,C)
 *     head.nsp.weight (2,C) .bias (2)  head.span.weight (2,C) .bias (2)
 *     head.classify.weight (L,C) .bias (L)
 * Matrices are always (out, in); checkpoint/ transposes Hugging Face's Conv1D.
 */
#ifndef WEFT_MODEL_MODEL_H
#define WEFT_MODEL_MODEL_H

#include "comm/group.h"
#include "model/family.h"
#include "parallel/recompute.h"
#include "param/param.h"
#include "tensor/values.h"

/* One micro-batch on the device. All tensors except targets and step are int32; those that the task does not
 * use are absent. */
typedef struct Micro {
    int64_t B, T;
    int64_t first;      /* index of its first sequence in the global batch of the step */
    Tensor tokens;      /* (B,T) */
    Tensor rows;        /* (B,T) 0 .. B*T-1 */
    Tensor types;       /* (B,T) */
    Tensor lens;        /* (B) sequence lengths; later positions are padding. Absent: no padding */
    Tensor starts;      /* (B,length) where the document of each position starts; absent: one document */
    Tensor positions;   /* (B,T) with starts or a part of the sequences: each position within its document */
    Tensor labels;      /* LM: (B*T) next tokens; -100: ignored */
    Tensor picks;       /* MLM: (M) predicted rows b*T+t */
    Tensor pick_labels; /* MLM: (M) tokens to predict there */
    Tensor nsp;         /* (B) 0: the second segment follows the first, 1: random */
    Tensor first_rows;  /* (B) rows b*T, for heads that read the first token */
    Tensor span;        /* (2,B) start and end positions in whole sequences; past their end: ignored */
    Tensor classes;     /* (B) single-label classification */
    Tensor targets;     /* (B,L) fp32 regression, multi-label classification; NaN: ignored */
    Tensor step;        /* (1) int64: Pass.step, for dropout; optional */
} Micro;

/* Target of quantization-aware training, see model/parts/fake_quant.h. */
typedef enum { FAKE_QUANT_NONE, FAKE_QUANT_INT8, FAKE_QUANT_INT4 } FakeQuant;
extern const char *const fake_quant_names[]; /* ends with NULL */

/* How context parallelism reaches the positions of other ranks, see model/parts/context.h. AUTO is none of a
 * Shape. */
typedef enum {
    CONTEXT_AUTO,
    CONTEXT_HEADS,
    CONTEXT_GATHER,
    CONTEXT_RING,
    CONTEXT_BOTH,
    CONTEXT_MODES
} ContextMode;
extern const char *const context_mode_names[]; /* ends with NULL */

/* Everything that determines a block's memory. */
typedef struct Shape {
    int64_t B, T; /* T positions of each sequence */
    int tp;       /* number of tensor-parallel ranks */
    int cp;       /* ranks of context parallelism, which have T positions each; 0: one */
    ContextMode cp_mode;
    int cp_heads; /* adjacent ranks of those that swap rows for heads, all in CONTEXT_HEADS; otherwise 1 */
    int ep;       /* ranks that have different experts; 0: one */
    double imbalance;     /* for plans, with ep: tokens of this rank's experts, relative to the mean; 0: 1 */
    bool sequence;        /* sequence parallelism: outside split regions a rank holds 1/tp of the B*T rows */
    DType dtype;          /* activations and weights */
    bool fp8;             /* layers use fp8 matmuls where sizes allow; dtype is bf16 */
    bool fp8_delayed;     /* with fp8: reserve what delayed scaling needs, see Pass.fp8 */
    bool fp8_head;        /* with fp8: also the matmuls of the language-modeling head, in training */
    FakeQuant fake_quant; /* not together with fp8 */
    DType logits;         /* type of logits over the vocabulary; 0 is fp32 */
    bool train;           /* save what backward needs */
    int pieces;           /* pieces of each vocabulary matrix, see VocabPieces; 0: it is whole */
    int64_t piece_rows;   /* rows of a piece */
    int64_t mlp_rows;  /* rows that an MLP computes at a time where it keeps nothing for backward; 0: 4096 */
    bool whole_blocks; /* RECOMPUTE_BLOCK as other software does it, for plans: also what backward does not
                          read, and without parts of an MLP */
    Recompute recompute; /* blocks implement RECOMPUTE_SELECTIVE, the runner the other modes */
} Shape;

/* The positions of the rows of a sequence on a rank of context parallelism. */
Positions context_positions(const ModelConfig *config, Shape shape, int rank);

/* Generation: the KV cache of one layer, see attention_decode. */
typedef struct KvCache {
    Tensor k, v; /* (B,G,S,D): G heads of k and v */
} KvCache;

typedef struct CacheSplit CacheSplit; /* model/cache_split.h */

typedef struct Decode {
    Tensor past, fresh;      /* (B) int32: cached and new positions */
    KvCache *cache;          /* one per layer, in order */
    const CacheSplit *split; /* NULL: the cache has all positions */
} Decode;

/* Access to a vocabulary matrix that is gathered piece by piece: piece k has the matrix's rows
 * k * piece_rows ... (Shape), local to the tensor-parallel rank. All ranks of a shard group must make the
 * same calls in the same order. */
typedef struct VocabPieces {
    /* Gathers a piece, if it is not already there, and starts gathering piece `next` (-1: none). */
    Status (*open)(void *context, int piece, int next, Tensor *ret_rows);
    void (*close)(void *context, int piece);
    /* A zeroed gradient of a piece; done adds it to that of the matrix. NULL: the matrix is frozen. */
    Status (*open_grad)(void *context, int piece, Tensor *ret_grad);
    Status (*done_grad)(void *context, int piece);
    void *context;
} VocabPieces;

/* Delayed scaling in fp8 (kernels.h): each layer, and after them the head, has FP8_SLOTS scales and the
 * largest amax since they were set. Without scales, scaling is exact. */
typedef enum { FP8_QKV, FP8_OUT, FP8_UP, FP8_DOWN, FP8_MATMULS, FP8_LOGITS = FP8_QKV } Fp8Matmul;
typedef enum { FP8_INPUT, FP8_WEIGHT, FP8_GRADIENT, FP8_OPERANDS } Fp8Operand;
enum { FP8_SLOTS = FP8_MATMULS * FP8_OPERANDS };

typedef struct Fp8State {
    Tensor scale; /* (layers+1,FP8_SLOTS) fp32; absent: exact scaling */
    Tensor amax;  /* the same; absent: not recorded */
} Fp8State;

typedef enum { RECEIVED_SAVED, RECEIVED_DEFERRED, RECEIVED_SCRATCH, RECEIVED_COUNT } ReceivedMemory;

/* What keeps the experts of mixtures busy alike (train/runner_balance.c), by layer. All absent outside
 * training. */
typedef struct Balance {
    Tensor load;   /* (layers,E) fp32: how much each expert had to do; absent: no balancing loss */
    Tensor counts; /* (layers,E) int64: += tokens of each expert */
    Tensor totals; /* (layers,ROUTE_TOTALS) fp64: += sums over tokens, see route_count */
    float loss, z; /* d(objective) / d(sums over tokens) of the balancing loss and of the z-loss */
} Balance;

/* Arguments of one block call. */
typedef struct Pass {
    Exec *exec;
    Group *tp;
    Group *cp;   /* absent with one rank; */
    Group *swap; /* those of them that swap rows for heads, and that keys and values travel through */
    Group *ring;
    Group *expert; /* ranks that have different experts; absent with one */
    Positions at;  /* which positions the rows of a sequence here have */
    Shape shape;
    const Micro *micro;
    const Tensor *param; /* views in ParamList order, including tied parameters */
    const Tensor *grad;  /* gradients, same order, absent for frozen parameters; NULL outside training */
    const bool *grad_unwritten; /* same order: the gradient is undefined until the block stores it, instead of
                                 * adding; only for parameters marked `overwritten`. NULL: none */
    const VocabPieces *pieces; /* the block's vocabulary matrix, which is then absent in param and grad; NULL:
                                * it is there */
    int64_t head_rows;   /* with pieces: the largest number of rows that any replica has for the token loss */
    Fp8State fp8;        /* delayed scaling; all absent without it and outside training */
    Balance balance;     /* of mixtures */
    Tensor rope;         /* table of rotary positions (model/rope.h); absent without them */
    uint64_t seed, step; /* for dropout, which is active iff shape.train */
    Buffer saved;        /* this block and micro-batch, from forward to backward */
    /* With several ranks of experts, memory for what they receive, as large as it has been so far: for
     * `saved`, `deferred` and `scratch`. */
    Buffer *received[RECEIVED_COUNT];
    Buffer deferred; /* backward: store what backward_weight needs here instead of computing weight gradients;
                        empty: compute them immediately */
    bool again;      /* forward: for backward, which reads `saved`; y need not be computed */
    bool rerun;      /* backward: forward ran again just before, and `scratch` is as it left it */
    Ticket keys;     /* backward: of keys that are being gathered */
    Tensor lasting_dy; /* with `deferred`: the output gradient, if it is unchanged until backward_weight */
    Buffer scratch;    /* shared workspace, valid during this call */
    Tensor loss;       /* (LOSS_COUNT) fp64 sums that output heads add to */
    Tensor hits;       /* (LOSS_COUNT) fp64 counts of correct top-1 predictions; absent: not counted */
    float loss_grad[LOSS_COUNT]; /* d(objective) / d(sum of this loss) */
    const Decode *decode;        /* generation only */
} Pass;

typedef struct Block Block;

typedef enum { BLOCK_EMBED, BLOCK_LAYER, BLOCK_OUTPUT } BlockKind;

struct BlockOps {
    const char *name;
    BlockKind kind;
    Status (*describe)(const Block *block, ParamList *ret_params);
    /* Bytes of `saved` and `scratch` for a micro-batch, computed by the functions that lay out the tensors.
     */
    void (*measure)(const Block *block, Shape shape, size_t *ret_saved, size_t *ret_scratch);
    /* Bytes of `deferred`; NULL: the block does not split its backward. */
    size_t (*measure_deferred)(const Block *block, Shape shape);
    /* y (B,T,C) from x (B,T,C); with sequence parallelism both are the local rows (1,B*T/tp,C). The embedding
     * has no x. The output head has no y: it adds to the loss sums and, in training, computes its gradients
     * right away, so that logits need not be saved. */
    Status (*forward)(const Block *block, Pass *pass, Tensor y, Tensor x);
    /* Computes dx from dy and adds to the parameter gradients. dx may alias dy. */
    Status (*backward)(const Block *block, Pass *pass, Tensor dx, Tensor dy, Tensor x);
    /* Computes the weight gradients that backward left in `deferred`. x is the block's input. */
    Status (*backward_weight)(const Block *block, Pass *pass, Tensor x);
    /* forward of new positions against the KV cache in pass->decode; NULL for output heads. */
    Status (*decode)(const Block *block, Pass *pass, Tensor y, Tensor x);
    /* Output heads only, see output_logits. */
    Status (*logits)(const Block *block, Pass *pass, HeadId which, Tensor out, Tensor x);
    Status (*hidden)(const Block *block, Pass *pass, Tensor out, Tensor x); /* NULL: x as it is */
    size_t (*logits_scratch)(const Block *block, HeadId which, int64_t rows);
    /* FLOPs per token at sequence length T, forward and backward. */
    double (*flops)(const Block *block, int64_t T);
    bool grads_in_forward; /* forward computes all gradients (output heads) */
    bool backward_params;  /* backward reads the parameters */
};

/* Location of a parameter: a unit of the model and a slot in it. */
typedef struct ParamRef {
    int unit, slot;
} ParamRef;

enum { BLOCK_SLOTS = 64 }; /* the most parameters that a block has */

struct Block {
    const BlockOps *ops;
    const ModelConfig *config;
    int index; /* layer number */
    ParamList params;
    int slot[BLOCK_SLOTS]; /* by ParamDesc.id: index in params, or -1 */
    ParamRef *ref;         /* one per parameter */
    int *unit;             /* the distinct units of these */
    int units;
    Tensor *packed; /* one per parameter: packed weights, or absent */
    bool frozen;    /* some parameters are */
    bool trained;   /* some are not */
};

/* Parameters are grouped into units. Unit i < count holds the parameters of block i except experts and
 * vocabulary matrices; the experts of a block, and each vocabulary matrix, have a unit of their own after
 * them. So do the frozen parameters among others or experts that are also trained: a unit is either frozen or
 * trained. */
typedef struct Model {
    ModelConfig config;
    Block *block;
    int count;
    ParamList *unit;
    int units;
    int lowest;       /* the first block with trained parameters: backward ends there */
    Buffer quantized; /* packed int8 and int4 weights of all blocks */
    Buffer placed;    /* their copy in GPU memory */
    Buffer *sparse;   /* packed sparse weights */
    size_t sparse_count, sparse_capacity;
} Model;

MUST_USE Status model_new(Model **ret_model, const ModelConfig *config);
void model_free(Model *model);
DEFINE_FREEP(Model, model)
/* The matrices of a parameter that are packed one by one: those of each expert, otherwise one. */
static inline int64_t packed_matrices(const ModelConfig *config, const ParamDesc *desc) {
    return desc->expert ? config->experts : 1;
}
/* Whether a parameter is the router of experts, which is neither quantized nor pruned. */
bool param_is_router(const ParamDesc *desc);
/* Sets a parameter packed as int8: w, scale and factor as in int8_pack, largest as in int8_set_static_amax;
 * NULL: 0. Those of several matrices follow one another. Call before binding a store. The device of exec must
 * outlive the model. */
MUST_USE Status model_set_int8(Model *model, const Exec *exec, const char *name, Tensor w, Tensor scale,
                               Tensor factor, const float *largest);
/* The same for int4; arguments as in int4_pack. */
MUST_USE Status model_set_int4(Model *model, const Exec *exec, const char *name, Tensor w, Tensor step,
                               Tensor scale, Tensor factor, const float *largest);
/* The same for a sparse parameter; arguments as in sparse_pack. */
MUST_USE Status model_set_sparse(Model *model, const Exec *exec, const char *name, Tensor mask,
                                 const int64_t *first, Tensor values);
int64_t model_params(const Model *model); /* number of parameters, tied ones counted once */
int64_t model_active(const Model *model); /* the same without experts that a token does not use */
/* Those that the `tp` tensor-parallel ranks of one replica hold together: replicated ones count once per
 * rank, and vocabularies include their padding. */
MUST_USE Status model_params_stored(const Model *model, int tp, int64_t *ret_count);
/* Whether a parameter is a matrix that can have adapters: of attention or a dense MLP. */
bool param_takes_adapter(const ParamDesc *desc);
/* Whether it is an adapter. */
bool param_is_adapter(const ParamDesc *desc);
/* A matrix of a layer that gets an adapter, or one index of its first dim that does. */
typedef struct LoraTarget {
    char matrix[PARAM_NAME];
    int part; /* -1: all of the matrix */
} LoraTarget;
/* Adds adapters (model/parts/lora.h), but freezes nothing. Call before the model has a store. */
MUST_USE Status model_adapt(Model *model, LoraConfig lora, const LoraTarget *target, int count);
/* Freezes the parameters that a pattern matches (param_matches). A pattern that begins with '!' trains them.
 * The last pattern that matches a parameter decides. Call before the model has a store. */
MUST_USE Status model_freeze(Model *model, const char *const *patterns, int count);
int64_t model_trained(const Model *model);  /* model_params without the frozen ones */
int64_t model_adapters(const Model *model); /* the part of model_params in adapters */
/* FLOPs per token of a block in training, without the gradients that frozen parameters spare. */
double model_block_flops(const Model *model, int block, int64_t T);
/* A parameter of the model. */
typedef struct ModelParam {
    const Block *block;
    const ParamDesc *desc;
    ParamRef ref;
    int number;         /* from 0 */
    int at_block, next; /* of model_param_next */
} ModelParam;

/* Steps through the parameters in the order of forward, tied ones left out. *param is {0} at first; false
 * after the last one. */
bool model_param_next(const Model *model, ModelParam *param);
const char *model_param_name(const Model *model, int number);
static inline bool block_is_layer(const Block *block) {
    return block->ops->kind == BLOCK_LAYER;
}

/* out (M,K), fp32: logits of an output head for rows x (M,C) of the last layer's output: K is the head's
 * width (model/head.h), of a vocabulary a rank's part, and the rows are any or, if it is pooled, the first of
 * each sequence. HEAD_NONE: the hidden states after the last norm, of width C. */
MUST_USE Status output_logits(const Block *head, Pass *pass, HeadId which, Tensor out, Tensor x);
/* Bytes of scratch that output_logits needs for `rows` rows. */
size_t output_logits_scratch(const Block *head, HeadId which, int64_t rows);

/* The first values of a unit on this rank, in blocks (tensor/blocks.h). */
typedef struct StoreCodes {
    Values values;
    int64_t count;
} StoreCodes;

/* Values of one kind (parameters, gradients or a moment) by unit: the full unit, a shard, or nothing if it
 * belongs to another pipeline stage. */
typedef struct Store {
    const Model *model;
    UnitSpec *spec; /* per unit */
    DType dtype;
    Unit *unit;        /* local layout of each unit */
    Buffer *flat;      /* per unit: elements first .. first + count - 1 */
    Buffer *rest;      /* NULL, or per unit: flat and rest are the halves of fp32 values (tensor/values.h) */
    StoreCodes *codes; /* NULL, or per unit: its first values, which flat does not have then */
    DType *rounded;    /* NULL, or per unit: 16-bit types of values without `rest` */
    int64_t *first, *count; /* count 0: not on this rank */
    Tensor **view;          /* view[block][param]; only for blocks whose parameters are all present */
    bool borrowed;          /* the store does not own the buffers */
} Store;

/* Allocates all units in full, fp32, without tensor parallelism. */
MUST_USE Status store_new(Store **ret_store, const Model *model, Device *device, MemTag tag);
/* Allocates no buffers: the caller sets flat, first and count of the units it holds, then calls store_bind.
 * `spec`: of each unit. */
MUST_USE Status store_new_borrowed(Store **ret_store, const Model *model, const UnitSpec *spec, DType dtype);
/* Creates the views of all blocks whose parameters are fully present, unless values are in halves. */
MUST_USE Status store_bind(Store *store);
void store_free(Store *store);
DEFINE_FREEP(Store, store)
/* A unit's values from element `at` of its buffer on, for an fp32 store. */
Values store_values(const Store *store, int unit, int64_t at);
/* What an fp32 store has of a parameter, on this rank. */
typedef struct StorePart {
    const ParamSlot *slot;
    int64_t from, count; /* elements of the slot */
    Values values;
} StorePart;
/* False: nothing; *ret_part then has the slot, and no elements. */
bool store_part(const Store *store, ParamRef ref, StorePart *ret_part);
/* Initializes as published for the family. For a given seed the values are the same in every layout. */
MUST_USE Status store_init_params(Store *store, Stream *stream, uint64_t seed);
MUST_USE Status store_zero(Store *store, Stream *stream);
/* Converts an owned fp32 store to `dtype` in place. */
MUST_USE Status store_convert(Store *store, Exec *exec, DType dtype);
/* Finds a parameter by name; false if the model has no such parameter, it is not fully present, or values are
 * in halves. */
bool store_find(const Store *store, const char *name, const ParamDesc **ret_desc, Tensor *ret_view);
/* The values of a quantized model's parameter in a store of the model it comes from, whose q may be separate
 * from k and v. */
MUST_USE Status store_source(const Store *store, const char *name, Tensor *ret_view);
/* Views of a block's parameters, given the address flat[unit] of each unit's flat buffer. */
void block_views(const Block *block, const Unit *unit, void *const *flat, DType dtype, Tensor *views);

#endif
