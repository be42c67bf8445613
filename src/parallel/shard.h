/* The data axis: DDP and ZeRO stages 1 to 3 (FSDP) as one mechanism.
 *
 * A unit is one flat buffer (param/param.h), divided into one equal shard per rank of the shard group. Three
 * booleans say what is sharded; nothing else distinguishes the strategies:
 *
 *   params grads optimizer
 *     0      0      0     DDP: all-reduce gradients, every rank updates everything
 *     0      0      1     ZeRO-1: reduce-scatter gradients, update the own shard, all-gather parameters
 *     0      1      1     ZeRO-2: as ZeRO-1, and a unit's full gradient exists only during its backward
 *     1      1      1     ZeRO-3, FSDP: as ZeRO-2, and its full parameters exist only while a block runs
 *
 * A reduction starts as soon as a unit's gradient is complete and overlaps the rest of backward. With several
 * micro-batches, full gradients are reduced once, after the last one; sharded gradients after each. With
 * hybrid sharding (shard groups smaller than the data axis), shards are then all-reduced over the replica
 * group. With an OuterSpec, they are not: each shard group is a worker that trains on its own and
 * synchronizes its parameters with the others from time to time (shard_outer.c).
 *
 * Reductions add in a fixed order and norms are accumulated shard by shard, so for a given data-parallel size
 * all four stages give identical bits with one micro-batch per step. With more, stages 0 and 1 agree, and so
 * do 2 and 3. Stage 3 with a vocabulary matrix in pieces sums in a different order.
 *
 * Kernels compute in `dtype`. For 16-bit types the optimizer keeps fp32 master weights of its shard; fp32
 * parameters are their own masters. In training with bf16 and without workers, masters are in halves
 * (f32_halves): the parameters are the upper halves, and only the lower ones take memory. This file sees a
 * model only as units and the stages that use them.
 *
 * A frozen unit (param/param.h) is gathered like any other, but it has no gradient, no optimizer state and
 * takes no part in reductions, norms, updates and outer steps. Its masters stay, so that a checkpoint has it
 * as it was, unless checkpoints do not have it (ShardSpec.rounded).
 *
 * Offloaded buffers are in page-locked host memory that device kernels can access: the optimizer streams its
 * state from there. Offloaded parameters are prefetched unit by unit on a separate stream, like gathered
 * ones.
 */
#ifndef WEFT_PARALLEL_SHARD_H
#define WEFT_PARALLEL_SHARD_H

#include "comm/group.h"
#include "kernels/kernels.h"
#include "optim/optim.h"
#include "parallel/arena.h"
#include "param/param.h"
#include "tensor/values.h"

/* What is in host memory: one of the first three and, if OFFLOAD_ACTIVATIONS is added to it, activations. */
typedef enum {
    OFFLOAD_NONE,
    OFFLOAD_OPTIMIZER,
    OFFLOAD_PARAMS, /* includes the optimizer state */
    OFFLOAD_ACTIVATIONS,
    OFFLOAD_COUNT = 2 * OFFLOAD_ACTIVATIONS
} Offload;
extern const char *const offload_names[]; /* ends with NULL */

/* NONE, OPTIMIZER or PARAMS. */
static inline Offload offload_state(Offload offload) {
    return (Offload)(offload % OFFLOAD_ACTIVATIONS);
}
static inline bool offload_activations(Offload offload) {
    return offload >= OFFLOAD_ACTIVATIONS;
}
/* Everything that one of the two has in host memory. */
Offload offload_join(Offload a, Offload b);

/* How gradients travel over the data axis; see shard_wire.c. */
typedef enum { GRAD_FP32, GRAD_BF16, GRAD_INT8 } GradType;
extern const char *const grad_type_names[]; /* ends with NULL */

/* Low-communication data parallelism; see shard_outer.c. All zero: gradients are reduced over all replicas.
 */
typedef struct OuterSpec {
    int64_t every;     /* steps between two synchronizations of a fragment */
    int64_t fragments; /* parts of the model, synchronized at different steps; 0: 1 */
    int64_t overlap;   /* steps that continue while a fragment is exchanged; at most every / fragments */
    int64_t warmup;    /* first steps, each of which synchronizes everything */
    double lr, momentum;
    GradType type; /* in which outer gradients travel; see shard_outer_sum.c */
} OuterSpec;

/* Over which ranks a unit is sharded and replicated: together, those that have the same parameters. */
typedef struct ShardGroups {
    Group *shard;   /* hold different shards */
    Group *replica; /* hold the same shard */
    Group *others;  /* hold other experts in the place of these, which count in the same norm; NULL: none */
} ShardGroups;

typedef struct ShardSpec {
    bool params, grads, optimizer; /* what is sharded */
    bool train;                    /* allocate gradients and optimizer state */
    bool rounded;   /* frozen units have no masters: their values are rounded; not with `outer` */
    BlockCode base; /* with `rounded`: how matrices of frozen units are kept (shard_base.c) */
    bool sequence;  /* sequence parallelism: per-row gradients are all-reduced over `tp` */
    DType dtype;
    Offload offload;   /* NONE, OPTIMIZER or PARAMS, which requires sharded parameters */
    Stream *from_host; /* with PARAMS: copies parameters to the device; must outlive the shards */
    ShardGroups data;  /* the data axis, see comm/mesh.h: of units without groups of their own */
    Group *tp, *model; /* groups that share the gradient norm */
    Group *parts;      /* adjacent ranks of the data axis that compute the gradients of some micro-batches
                        * together; contains those of context parallelism and `others` */
    Group *ends;       /* first and last pipeline stage, which share tied units */
    int64_t piece;     /* as in UnitSpec */
    int64_t sketch;    /* totals of a micro-batch's sketch, see shards_probe; 0: no sketches */
    int micros;        /* micro-batches per step, for allocating sketches */
    GradType grad_type;
    bool by_unit; /* one rank: units may be added to the norm, and updated, one after the other */
    OptimSpec optim;
    OuterSpec outer; /* its workers are the ranks of data.replica */
} ShardSpec;

/* Sets the three booleans for ZeRO stage 0 to 3. */
void shard_stage(ShardSpec *spec, int zero);

/* Elements of a unit's flat buffer that are updated by the same rule, with the padding between them. */
typedef struct ShardSpan {
    int64_t first, count;
    ParamRule rule;
} ShardSpan;

typedef struct ShardUnit {
    Unit layout;
    ShardGroups groups;
    int norm; /* its first sum in Shards.norm: one per shard, shared by units with the same groups */
    ShardSpan *span;
    int spans;
    bool held;                  /* used by this stage */
    int block;                  /* the first block that uses it */
    bool twin;                  /* tied: on the first and the last stage, kept equal over `ends` */
    bool counted;               /* counts in norms and checkpoints; a twin does so only on the first stage */
    int64_t first, count;       /* the shard that this rank updates, in elements */
    Buffer param;               /* dtype; full or shard; in blocks: see shard_base.c */
    bool in_blocks;             /* it has codes, if not on this rank: */
    int64_t coded;              /* elements of this rank's shard, from the first on, that have codes */
    Buffer master;              /* fp32 or DT_F32_LOWER shard, only for 16-bit dtypes */
    Buffer state[OPTIM_STATES]; /* of the optimizer: fp32, the shard's elements from state_first */
    int64_t state_first[OPTIM_STATES]; /* the first element of the unit that has this state */
    Buffer outer, outer_momentum;      /* fp32 shard, with an OuterSpec */
    Buffer grad;                       /* fp32; full or shard */
    Buffer full;                       /* gathered parameters, while in use */
    Buffer full_grad;                  /* full gradient, while backward adds to it */
    Buffer reducing;                   /* input of the reduction in progress */
    Buffer residual;                   /* fp32, full: what int8 has not sent yet; empty for other types */
    Ticket *messages;                  /* of an exchange in int8 */
    Buffer wire;                       /* the same as it travels, if that is not fp32 */
    Ticket gather, reduce;             /* operations in progress */
    bool brought;                      /* `full` is being copied from the host; not yet waited for */
    bool pending;                      /* a reduction has started and is not complete */
    uint64_t started;                  /* the number of the last one */
    bool adding;                       /* its result is in place and must be added to the shard */
    bool unreduced;                    /* no gradient has arrived in this step yet */
    bool begun;                        /* the gradient has been cleared in this step */
    bool unwritten;    /* gradients of `overwritten` parameters are undefined until backward stores them */
    int pieces, piece; /* a unit gathered in pieces: their number, and the first one's index; else 0 */
    bool squared;      /* this step's norm includes it */
    void *updated;     /* event: its last update, with ShardSpec.by_unit; on a CPU also the clear after it */
    int sketched;      /* micro-batches in this step's sketches */
    int rows_sketched; /* the same for per-row parameters, if backward completes them earlier */
} ShardUnit;

typedef struct Shards {
    ShardSpec spec;
    Device *device;
    Exec *exec;
    ShardUnit *unit;     /* the model's units, then the pieces of those that are gathered in pieces */
    int count, all;      /* units; with pieces */
    Arena params, grads; /* full buffers of the two largest units */
    Arena wire;          /* what travels of their gradients, if that is not fp32 */
    uint64_t started;    /* reductions so far */
    Buffer norm;         /* fp64: sums of squares, see shard_grad.c */
    int sums;            /* their number */
    struct Matrices
        *matrices;       /* those that the optimizer updates as a whole; NULL: none. See shard_matrix.c */
    struct Outer *outer; /* NULL without an OuterSpec */
    struct {
        bool on, waits; /* there is such a unit; its update is due */
        int unit;
        OptimStep step;
    } postponed; /* see shards_postpone */
    bool idle;   /* set by the owner: the host has time to launch many short updates */
    /* See shards_probe. */
    Buffer sketch; /* (micros,totals) fp64 */
    int probing;   /* micro-batches to sketch in this step, or 0 */
    uint64_t probe_seed;
} Shards;

/* How a stage uses a unit; fields as in ShardUnit. All stages and tensor-parallel ranks give a unit groups of
 * the same sizes, and list units in the same order. */
typedef struct UnitUse {
    bool held, twin, counted;
    int block;
    const ShardGroups *groups; /* NULL: the data axis, as always with an OuterSpec */
} UnitUse;

/* Allocates without initializing. `exec` must outlive the result. */
MUST_USE Status shards_new(Shards **ret_shards, Exec *exec, const ShardSpec *spec, const ParamList *units,
                           const UnitUse *use, int count);
void shards_free(Shards *shards);
DEFINE_FREEP(Shards, shards)
/* Zeroes all buffers. Called after every allocation of a run has succeeded. */
MUST_USE Status shards_clear(Shards *shards);

/* ---- parameters ---- */

/* fp32 values of the shard that this rank updates, for initialization and checkpoints. Call shard_master only
 * if they are not in halves. */
Values shard_values(const Shards *shards, int unit);
/* Of a unit with codes, those of the first elements; shard_values has the others. */
Values shard_codes(const Shards *shards, int unit, int64_t *ret_count);
Tensor shard_master(const Shards *shards, int unit);
/* The optimizer's state tensor `state` of that shard, from element *ret_first of the unit: parameters that
 * have no such state come first. */
Tensor shard_state(const Shards *shards, int unit, int state, int64_t *ret_first);
/* Call after changing master values: updates what kernels compute with, on all ranks that hold it. */
MUST_USE Status shards_publish(Shards *shards);

/* A unit in pieces (param/param.h) is never gathered as a whole: each piece is a unit for the functions
 * below, which borrows its part of the unit's shard, while updates, norms and checkpoints see the whole unit.
 * A gradient of a piece is reduced as soon as one block has added its contribution, so that no rank ever has
 * the gradient of the whole unit. */
int shard_pieces(const Shards *shards, int unit); /* 0: not in pieces */
int shard_piece(const Shards *shards, int unit, int piece);
/* How a unit is divided. */
UnitSpec shard_layout(const Shards *shards, int unit);

/* fetch starts gathering a unit if the arena has space, or always with `must`; ready waits for it and returns
 * its first element; release frees the gathered copy. No-ops if parameters are not sharded. */
MUST_USE Status shard_fetch(Shards *shards, int unit, bool must);
MUST_USE Status shard_ready(Shards *shards, int unit, void **ret_params);
void shard_release(Shards *shards, int unit);
/* The number of parameters that this rank stores, between steps. */
int64_t shards_params(const Shards *shards);

/* ---- gradients ---- */

/* Whether idle threads do the work of updates, norms and clearing: on a CPU, unless a profile times it. */
bool shards_background(const Shards *shards);
/* Starts a step: clears all gradients, except those of parameters marked `overwritten`. With one rank on a
 * CPU, each is cleared before it is used: by shards_clear_ahead, shard_grad or shards_finish. */
MUST_USE Status shards_begin(Shards *shards);
/* Call when forward is complete: on a CPU, idle threads clear the gradients that backward reaches later. */
MUST_USE Status shards_clear_ahead(Shards *shards);
/* Whether a unit has a gradient on this rank. The functions below take only such units. */
bool shard_trains(const Shards *shards, int unit);
/* The buffer to which backward adds the unit's gradient. */
MUST_USE Status shard_grad(Shards *shards, int unit, float **ret_grad);
/* Whether the first contribution to an `overwritten` parameter's gradient in that buffer is still to come,
 * and must be stored instead of added; and that it has been stored. */
bool shard_is_unwritten(const Shards *shards, int unit);
void shard_written(Shards *shards, int unit);
/* For a split backward: the per-row gradients of a micro-batch are complete, the weight gradients follow. */
MUST_USE Status shard_rows_done(Shards *shards, int unit);
/* The unit's gradient is complete for a micro-batch or, with `last`, for the whole step. */
MUST_USE Status shard_grad_done(Shards *shards, int unit, bool last);
/* A piece's gradient has one of its contributions for a micro-batch, and is reduced. */
MUST_USE Status shard_piece_done(Shards *shards, int piece, int micro);
/* Call after shards_begin to measure, in this step, how much the gradients of the `micros` micro-batches of
 * each replica, or each set of replicas in `parts`, differ (for the gradient noise scale). All ranks call it.
 *
 * Gradients are accumulated in place, so a micro-batch's own gradient does not exist in every layout. Its
 * sketch does: sketches are linear and depend on global element indices only, so the difference of the
 * sketches before and after a micro-batch is the micro-batch's sketch, and the sum over stages and
 * tensor-parallel ranks that of the whole model. Each micro-batch costs one read of the gradients. */
MUST_USE Status shards_probe(Shards *shards, int micros, uint64_t seed);
/* finish waits for all reductions. norm_start then starts to compute the gradient norm, and norm returns it:
 * the norm of the whole model, with each parameter counted once in any layout. *ret_spread is NAN if not
 * probed. Otherwise it is an estimate of n * sum |g_i - g/n|^2 over the contributions g_i of the step's n
 * micro-batches, on all replicas, to its gradient g. The estimate is unbiased, and sketches add a relative
 * standard deviation of about sqrt(2 / (totals * (n - 1))). */
MUST_USE Status shards_finish(Shards *shards);
MUST_USE Status shards_norm_start(Shards *shards);
/* One rank: adds a unit's gradient, which is complete, to the norm before norm_start does. */
MUST_USE Status shard_square(Shards *shards, int unit);
MUST_USE Status shards_norm(Shards *shards, double *ret_norm, double *ret_spread);
/* The part of shards_norm that reads the sketches. Collective. */
MUST_USE Status shards_read_spread(Shards *shards, double *ret_spread);

/* With GRAD_INT8: what this replica has not sent yet of its gradients; empty otherwise, and for units in
 * pieces, which travel as bf16. Gradients change it, so that a step must not be abandoned. */
Tensor shard_residual(const Shards *shards, int unit);
bool shards_have_residual(const Shards *shards);

/* fp32 gradient of the shard that this rank updates; valid after shards_finish. */
Tensor shard_gradient(const Shards *shards, int unit);

/* ---- update ---- */

/* One step of the optimizer on all shards; then all-gathers parameters that are not sharded. */
MUST_USE Status shards_update(Shards *shards, const OptimStep *step);
/* With ShardSpec.by_unit, unless the optimizer updates matrices as a whole, units are updated in the order in
 * which blocks use them, and another stream than that of `exec` may use a unit before all are updated: await
 * makes `stream` wait for the last update of this one. */
bool shards_update_by_unit(const Shards *shards);
MUST_USE Status shard_await_update(Shards *shards, int unit, Stream *stream);
/* On a CPU, an update may still be running when shards_update returns (device/pool.h). shard_ready and
 * shard_grad wait for that of their unit, and settle for all. */
MUST_USE Status shards_settle(Shards *shards);
/* A step needs few rows of an embedding matrix first. If such a unit is postponed, the next updates exclude
 * it until shards_update_rows updates these rows and leaves the others to idle threads, or until anything
 * else needs the unit. `rows` are in ascending order. shard_rows has the parameters, up to date in these
 * rows. Unit -1: none is postponed. */
void shards_postpone(Shards *shards, int unit);
bool shards_update_waits(const Shards *shards);
MUST_USE Status shards_update_rows(Shards *shards, const int32_t *rows, int64_t count);
void *shard_rows(const Shards *shards, int unit);

/* ---- outer steps (shard_outer.c) ---- */

/* The synchronized parameters of this rank's shard (those of a frozen unit are its parameters), the momentum
 * of the outer optimizer and, if exchanges overlap steps, the outer gradient that this worker has sent; empty
 * without an OuterSpec. */
Tensor shard_outer(const Shards *shards, int unit);
Tensor shard_outer_momentum(const Shards *shards, int unit);
Tensor shard_outer_grad(const Shards *shards, int unit);
/* Makes the current parameters the synchronized ones, with zero momentum and no exchange under way. */
MUST_USE Status shards_outer_reset(Shards *shards);
/* Call after each step: starts and completes the exchanges that are due. With `last`, all fragments are
 * synchronized, and afterwards the parameters of all workers are equal. Collective. */
MUST_USE Status shards_sync(Shards *shards, int64_t step, bool last);
/* Exchanges the values of the parameters and the synchronized ones; does not update what kernels compute
 * with. Uses the memory of the gradients. */
MUST_USE Status shards_outer_swap(Shards *shards);
/* The exchange under way: its fragment, or -1, and the step after which its result is applied. `wait` waits
 * for it without applying it. `forget` is for a mesh that was recovered: the exchange is lost, but what this
 * worker has sent is not. `restart` makes the next shards_sync send it once more. */
int shards_outer_pending(const Shards *shards, int64_t *ret_due);
bool shard_outer_in(const Shards *shards, int unit, int fragment);
MUST_USE Status shards_outer_wait(Shards *shards);
void shards_outer_forget(Shards *shards);
void shards_outer_restart(Shards *shards, int fragment, int64_t due);

#endif
