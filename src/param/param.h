/* Parameters as descriptors, before any memory exists.
 *
 * A block lists its parameters as ParamDesc: name, global shape, the dim that tensor parallelism
 * cuts, initialisation, decay. From such a list `unit_init` lays out one flat buffer: each
 * parameter's offset and its local shape on a tensor rank. Parameter, gradient and optimizer buffers
 * of a unit share that layout, so whoever shards, moves or updates a unit sees plain arrays.
 */
#ifndef WEFT_PARAM_PARAM_H
#define WEFT_PARAM_PARAM_H

#include "tensor/tensor.h"

typedef enum { INIT_NORMAL, INIT_TRUNCATED /* at two deviations */, INIT_ZEROS, INIT_ONES } InitKind;

enum { PARAM_NAME = 64, PARAM_DIMS = 3, UNIT_ALIGN = 64 /* elements */ };

typedef struct ParamDesc {
    char name[PARAM_NAME]; /* unique in the model, e.g. "layer.3.attn.qkv.weight" */
    int ndim;
    int64_t dim[PARAM_DIMS]; /* global shape */
    int split;               /* the dim cut over tensor ranks; -1: every rank holds all of it */
    InitKind init;
    float std;
    bool decay;   /* weight decay applies */
    bool vocab;   /* the split dim is a vocabulary: padded so that it divides, see vocab_padded */
    bool per_row; /* its gradient adds up over rows: where rows are cut over tensor ranks, so is it */
    bool shared;  /* several blocks use it, so it has a unit of its own */
    bool int8;    /* its values are of 8 bits and lie elsewhere (model_set_int8): none in a flat buffer */
    bool int4;    /* int8, but of 4 bits (model_set_int4) */
    bool sparse;  /* int8, but its values are those that are not 0 (model_set_sparse) */
    bool tied;    /* the storage is that of the parameter of this name in an earlier block */
} ParamDesc;

typedef struct ParamList {
    ParamDesc *desc;
    size_t count, capacity;
} ParamList;

MUST_USE Status param_add(ParamList *list, ParamDesc desc);
void param_list_done(ParamList *list);
int64_t param_count(const ParamDesc *desc); /* global elements */

/* One parameter's place in its unit's flat buffer. */
typedef struct ParamSlot {
    ParamDesc desc;
    int64_t offset;          /* elements from the unit's start */
    int64_t count;           /* local elements */
    int64_t dim[PARAM_DIMS]; /* local shape */
    int64_t start;           /* first global index along desc.split, 0 if not split */
    int64_t valid;           /* local indices along desc.split that are real; the rest is padding */
} ParamSlot;

/* Parameters that are treated alike lie together, so that few calls see to all of them. */
typedef struct UnitRange {
    int64_t first, count; /* of the flat buffer, with the padding between parameters, which is always 0 */
    bool decay;           /* ParamDesc's */
    bool cut;             /* over tensor ranks, each of which has a part; else each has all */
} UnitRange;

enum { UNIT_RANGES = 4 };

typedef struct Unit {
    ParamSlot *slot; /* the untied parameters, in order */
    size_t count;
    UnitRange range[UNIT_RANGES];
    int64_t numel; /* elements of the flat buffer, padding included; `shards` divides it */
} Unit;

/* Which part of each parameter a rank holds, and into how many equal parts the flat buffer can be cut. */
typedef struct UnitSpec {
    int tp_rank, tp_size;
    int shards;
} UnitSpec;

MUST_USE Status unit_init(Unit *ret_unit, const ParamList *list, UnitSpec spec);
void unit_done(Unit *unit);
/* A vocabulary as tensor ranks hold it: a multiple of 128 for each, so that rows of logits begin where
 * wide accesses do. */
int64_t vocab_padded(int64_t vocab, int tp_size);
/* The part of elements first .. first + count - 1 of the flat buffer that lies in this slot: false when
 * there is none. *ret_from is relative to the slot. */
bool slot_overlap(const ParamSlot *slot, int64_t first, int64_t count, int64_t *ret_from, int64_t *ret_count);
/* The same for a range; *ret_first is relative to the flat buffer. */
bool range_overlap(const UnitRange *range, int64_t first, int64_t count, int64_t *ret_first,
                   int64_t *ret_count);
/* A view of the slot's local shape into a flat buffer of the unit. */
Tensor unit_view(const ParamSlot *slot, void *flat, DType dtype);

/* A run of a slot's local elements that also lie in a row in the global tensor. */
typedef struct ParamRun {
    int64_t local, global, count;
} ParamRun;

/* The longest such run that starts at local element `at` and has at most `limit` elements. For padding,
 * global is -1. */
ParamRun slot_run(const ParamSlot *slot, int64_t at, int64_t limit);
/* The same from global element `at` on. For elements that other tensor ranks hold, local is -1. */
ParamRun slot_run_global(const ParamSlot *slot, int64_t at, int64_t limit);

/* Initial values of the slot's local elements from .. from + count - 1, into values[0 ...]; element i of
 * the global tensor is the same whatever part of it a rank holds, and padding is zero. */
void param_init(const ParamSlot *slot, uint64_t seed, int64_t from, int64_t count, float *values);

#endif
