/* Parameters as descriptors, before any memory exists.
 *
 * A block lists its parameters as ParamDesc: name, global shape, the dim that tensor parallelism splits,
 * initialization, weight decay. From such a list, unit_init lays out one flat buffer: the offset of each
 * parameter and its local shape on a rank of tensor and expert parallelism. Parameter, gradient and optimizer
 * buffers of a unit share that layout, so sharding, communication and updates work on plain arrays.
 */
#ifndef WEFT_PARAM_PARAM_H
#define WEFT_PARAM_PARAM_H

#include "tensor/tensor.h"

typedef enum { INIT_NORMAL, INIT_TRUNCATED /* at two standard deviations */, INIT_ZEROS, INIT_ONES } InitKind;

enum { PARAM_NAME = 64, PARAM_DIMS = 3, UNIT_ALIGN = 64, UNIT_BLOCK = 256 /* elements */ };

/* How weights are stored for inference: in the flat buffer, or packed outside of it (model_set_int8 ...). */
typedef enum { PACK_NONE, PACK_INT8, PACK_INT4, PACK_SPARSE } Packing;

typedef struct ParamDesc {
    char name[PARAM_NAME]; /* unique in the model, e.g. "layer.3.attn.qkv.weight" */
    int id;                /* the block's own number for it */
    int ndim;
    int64_t dim[PARAM_DIMS]; /* global shape */
    int split;               /* dim split across tensor-parallel ranks; -1: replicated */
    InitKind init;
    float std;
    bool decay;   /* subject to weight decay */
    bool vocab;   /* the split dim is the vocabulary, padded to vocab_padded */
    bool per_row; /* the gradient sums over rows, so under sequence parallelism each rank has a partial sum */
    bool partial; /* replicated, but each tensor-parallel rank computes a different part of the gradient */
    bool joined;  /* follows the previous parameter without a gap, if both are split alike */
    int64_t parts;    /* the split dim has this many indivisible parts: with more tensor-parallel ranks, the
                       * parameter is replicated and partial instead; 0: no limit */
    bool expert;      /* the first dim, which is not the split one, has experts in order: ranks of expert
                       * parallelism divide it */
    bool shared;      /* used by several blocks */
    bool overwritten; /* a step's first gradient is stored, not added, so it need not be cleared first */
    Packing packing;
    bool tied;   /* aliases the parameter of the same name in an earlier block */
    bool frozen; /* not trained: it has no gradient and no optimizer state */
} ParamDesc;

typedef struct ParamList {
    ParamDesc *desc;
    size_t count, capacity;
} ParamList;

MUST_USE Status param_add(ParamList *list, ParamDesc desc);
void param_list_done(ParamList *list);
int64_t param_count(const ParamDesc *desc); /* number of elements, global */
/* Whether a shell pattern matches a parameter's name, or its beginning up to a dot: "layer.[0-3]" matches
 * "layer.2.attn.qkv.weight". */
bool param_matches(const ParamDesc *desc, const char *pattern);

/* Position of one parameter in its unit's flat buffer. */
typedef struct ParamSlot {
    ParamDesc desc;
    int64_t offset;          /* elements from the unit's start */
    int64_t count;           /* local elements */
    int64_t dim[PARAM_DIMS]; /* local shape */
    int64_t start;           /* first global index along desc.split, 0 if not split */
    int64_t skipped;         /* global elements of the experts before those that are here */
    int64_t valid;           /* local indices along desc.split that are not padding */
    int64_t stripe;          /* rows of one shard in one piece of the unit; 0: rows are stored in order */
    int shards, pieces;      /* with stripe: see Unit.pieces */
} ParamSlot;

/* Parameters with equal treatment are contiguous, so that an update needs few kernel calls. On
 * tensor-parallel ranks, ranges and shards begin at multiples of UNIT_BLOCK, so that blocks that are
 * quantized together never mix replicated parameters, which must stay equal on all ranks, with others. */
typedef struct UnitRange {
    int64_t first, count; /* elements of the flat buffer, including the zero padding between parameters */
    bool decay;           /* as in ParamDesc */
    bool split;           /* split across tensor-parallel ranks; otherwise replicated */
} UnitRange;

enum { UNIT_RANGES = 4 };

/* A large vocabulary matrix can be gathered piece by piece. A piece has consecutive rows, `stripe` of them
 * from each shard, so that gathering it takes the same amount from every rank. A shard stores its stripes of
 * all pieces one after the other, so shards stay contiguous while rows of the flat buffer are permuted:
 *
 *   flat buffer   shard 0: piece 0, piece 1 ...   shard 1: piece 0, piece 1 ...
 *   matrix        piece 0: shard 0, shard 1 ...   piece 1: shard 0, shard 1 ...
 *
 * slot_run knows the order. */
typedef struct Unit {
    ParamSlot *slot; /* parameters that are not tied, in list order */
    size_t count;
    UnitRange range[UNIT_RANGES];
    int64_t numel; /* elements of the flat buffer with padding; a multiple of UnitSpec.shards */
    int pieces;    /* 1: gathered as a whole */
    bool frozen;   /* all of its parameters are; otherwise none */
} Unit;

/* The rank of tensor parallelism, and that of expert parallelism (size 0: there is none), that holds the
 * unit, and the number of equal ZeRO shards the flat buffer supports. A vocabulary matrix with a unit of its
 * own is divided into pieces of about `piece` elements if it is much larger; 0: never. */
typedef struct UnitSpec {
    int tp_rank, tp_size;
    int shards;
    int64_t piece;
    int expert_rank, expert_size;
} UnitSpec;

MUST_USE Status unit_init(Unit *ret_unit, const ParamList *list, UnitSpec spec);
/* One piece of a unit as a unit of its own, with rows in order. */
MUST_USE Status unit_piece(Unit *ret_piece, const Unit *unit, int piece);
void unit_done(Unit *unit);
/* Whether a parameter is a matrix with one row per token, which gets its own unit. */
bool param_is_vocab_matrix(const ParamDesc *desc);
/* Whether a parameter is one or several matrices of a layer, each with the last two dims. */
bool param_is_hidden_matrix(const ParamDesc *desc);
/* The vocabulary padded to a multiple of 128 per tensor-parallel rank, so that rows of logits are aligned. */
int64_t vocab_padded(int64_t vocab, int tp_size);
/* Intersects elements first .. first + count - 1 of the flat buffer with the slot; false if they do not
 * overlap. *ret_from is relative to the slot. */
bool slot_overlap(const ParamSlot *slot, int64_t first, int64_t count, int64_t *ret_from, int64_t *ret_count);
/* The same for a range; *ret_first is relative to the flat buffer. */
bool range_overlap(const UnitRange *range, int64_t first, int64_t count, int64_t *ret_first,
                   int64_t *ret_count);
/* A tensor with the slot's local shape, pointing into a flat buffer of the unit. */
Tensor unit_view(const ParamSlot *slot, void *flat, DType dtype);

/* Elements that are contiguous both in the slot and in the global tensor. */
typedef struct ParamRun {
    int64_t local, global, count;
} ParamRun;

/* The longest run that starts at local element `at`, up to `limit` elements. For padding, `global` is -1. */
ParamRun slot_run(const ParamSlot *slot, int64_t at, int64_t limit);

/* How many local elements come before a global one. Not for slots with stripes. */
int64_t slot_before(const ParamSlot *slot, int64_t global);

/* Writes the initial values of the slot's local elements from .. from + count - 1 to values[0 .. count - 1].
 * They depend on the global index only, not on the layout. Padding is zero. */
void param_init(const ParamSlot *slot, uint64_t seed, int64_t from, int64_t count, float *values);

#endif
