/* The data axis: who holds which part of the parameters, gradients and optimizer state.
 *
 * A unit is one flat buffer (param/param.h), cut into as many equal parts as the shard group has ranks.
 * Three booleans say what of it is sharded, which is all that tells the strategies apart:
 *
 *   params grads optimizer
 *     0      0      0     DDP: gradients are all-reduced, everyone updates everything
 *     0      0      1     ZeRO-1: gradients are reduce-scattered, each rank updates its part, the
 *                         parameters are all-gathered
 *     0      1      1     ZeRO-2: the same, and a unit's whole gradient exists only while its backward runs
 *     1      1      1     ZeRO-3, FSDP: and its whole parameters only while a block computes with them
 *
 * Reductions start as soon as a unit's gradient is complete and go on beside the rest of backward. With
 * several micro-batches, whole gradients are reduced once, after the last; sharded ones after each. Where
 * shard groups are smaller than the data axis (hybrid sharding), the parts are then added up over the
 * replica group.
 *
 * Sums run in the order of the ranks, and norms are added up part by part, so at the same size of the data
 * axis all four give the same bits (with one micro-batch a step; with more, 0 and 1 agree, and 2 and 3).
 *
 * Kernels compute with `dtype`. For 16-bit types the optimizer keeps fp32 masters of the parts it updates;
 * for fp32 the parameters are their own masters. Units and their users are all this file knows of a model.
 *
 * What is offloaded lies in the host's memory, where kernels of the device reach it: the optimizer reads and
 * writes its state there as it streams by. Offloaded parameters are brought to the device like sharded ones,
 * unit by unit, by a stream of their own, while the units before them are computed with.
 */
#ifndef WEFT_PARALLEL_SHARD_H
#define WEFT_PARALLEL_SHARD_H

#include "comm/group.h"
#include "kernels/kernels.h"
#include "parallel/arena.h"
#include "param/param.h"

typedef enum { OFFLOAD_NONE, OFFLOAD_OPTIMIZER, OFFLOAD_PARAMS } Offload;
MUST_USE Status offload_parse(const char *name, Offload *ret_offload);

typedef struct ShardSpec {
    bool params, grads, optimizer; /* which are sharded */
    bool train;                    /* with gradients and optimizer state */
    bool sequence;                 /* rows are cut over `tp`: per-row gradients are added up there */
    DType dtype;
    Offload offload;        /* params: and the optimizer's state too; they must be sharded */
    Group *shard, *replica; /* the data axis, see comm/mesh.h */
    Group *tp, *model;      /* for the norm */
    Group *ends;            /* the two stages that hold a tied unit */
    bool probe;             /* with memory for shards_probe */
    int64_t probe_max_rows; /* a micro-batch's rows of a tied unit, at most */
} ShardSpec;

/* The booleans of ZeRO stage 0 to 3. */
void shard_stage(ShardSpec *spec, int zero);

typedef struct ShardUnit {
    Unit layout;
    bool held;             /* on this stage */
    bool twin;             /* on the first and on the last stage, kept equal over `ends`... */
    bool counted;          /* ...and in norm and checkpoints on the first alone */
    int64_t first, count;  /* the part this rank updates */
    Buffer param;          /* dtype: all, or the part */
    Buffer master, m, v;   /* fp32, the part; master: 16-bit dtypes only */
    Buffer grad;           /* fp32: all, or the part */
    Buffer full;           /* sharded parameters, while they are gathered */
    Buffer full_grad;      /* sharded gradients, while backward adds to them */
    Buffer reducing;       /* one whose reduction is under way... */
    Buffer arriving;       /* ...and what it gives, when there are gradients to add it to */
    Ticket gather, reduce; /* under way */
    bool brought;          /* ...from the host, by a stream that was not waited for yet */
    bool pending;          /* a reduction was started and not completed */
    bool fresh;            /* no gradient has arrived in this step yet */
    bool probed;           /* the first micro-batch's has been looked at... */
    bool probe_rows;       /* ...or that of its parameters that are per row */
} ShardUnit;

typedef struct Shards {
    ShardSpec spec;
    Device *device;
    Exec *exec;
    ShardUnit *unit;
    int count;
    Arena params, grads; /* each for the two largest units... */
    Arena arriving;      /* ...and for this rank's parts of two */
    Buffer norm;         /* fp64, a sum for each part, and two of what is probed */
    Stream *bring;       /* brings offloaded parameters; NULL: there are none */
    /* The first micro-batch's gradient, see shards_probe. */
    bool probing;
    Buffer row_sum;          /* fp32: the largest parameter that is per row, where rows are cut */
    Buffer tied, tied_index; /* a tied unit's rows of it, fp32, and which they are, int32 */
    int64_t tied_rows;
} Shards;

/* Which units a stage holds, and how. */
typedef struct UnitUse {
    bool held, twin, counted;
} UnitUse;

/* Lays out and allocates, untouched. `exec` must outlive it. */
MUST_USE Status shards_new(Shards **ret_shards, Exec *exec, const ShardSpec *spec, const ParamList *units,
                           const UnitUse *use, int count);
void shards_free(Shards *shards);
DEFINE_FREEP(Shards, shards)
/* Zeroes all of it, once everything a run needs has been granted. */
MUST_USE Status shards_clear(Shards *shards);

/* ---- parameters ---- */

/* The fp32 values of the part this rank updates, for initialising, loading and saving. */
Tensor shard_master(const Shards *shards, int unit);
/* After they were changed: what kernels compute with follows. Collective. */
MUST_USE Status shards_publish(Shards *shards);

/* Starts gathering a unit, where there is room (`must`: in any case); then waits for it and gives its
 * first element; then lets it go. Nothing to do where parameters are not sharded. */
MUST_USE Status shard_fetch(Shards *shards, int unit, bool must);
MUST_USE Status shard_ready(Shards *shards, int unit, void **ret_params);
void shard_release(Shards *shards, int unit);

/* ---- gradients ---- */

/* Before a step: no gradients. */
MUST_USE Status shards_begin(Shards *shards);
/* Where backward adds to a unit's gradient. */
MUST_USE Status shard_grad(Shards *shards, int unit, float **ret_grad);
/* Of a micro-batch whose weights' gradients come later: those of parameters that are per row are there. */
MUST_USE Status shard_rows_done(Shards *shards, int unit);
/* All of a micro-batch's additions to it are done; `last`: all of the step's. */
MUST_USE Status shard_grad_done(Shards *shards, int unit, bool last);
/* After shards_begin: in this step the norm of the first micro-batch's gradient is taken too, as the units
 * come by, for one replica alone. All of the replica's ranks call it. The rows are those of a unit on two
 * stages to which the first of them adds in that micro-batch, each once; only the two read them. */
MUST_USE Status shards_probe(Shards *shards, const int32_t *rows, int64_t count);
/* Waits until every reduction is complete; then the norm of the whole model's gradient, each parameter
 * counted once, whatever the layout; and, where it was probed, that of the first micro-batch's share. */
MUST_USE Status shards_finish(Shards *shards);
MUST_USE Status shards_norm(Shards *shards, double *ret_norm, double *ret_first);

/* The fp32 gradient of the part this rank updates, after shards_finish. */
Tensor shard_gradient(const Shards *shards, int unit);

/* ---- update ---- */

/* One AdamW step of everything, with `decay` for the parameters that decay; then parameters are gathered
 * where they are not sharded. */
MUST_USE Status shards_update(Shards *shards, AdamW update, float decay);

#endif
