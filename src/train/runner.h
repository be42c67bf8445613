/* The runner executes training steps and evaluation on one rank. It is where model/ and parallel/ meet.
 * It owns the rank's memory (parameters, gradients, optimizer state, activations, workspace)
 * and executes the pipeline schedule over the blocks of its stage.
 *
 *   runner.c          a step: counts and losses over all ranks, gradients, norms, update
 *   runner_setup.c    a rank's state and memory
 *   runner_eval.c     losses, hidden states and logits without training
 *   runner_memory.c   assignment of blocks to stages; buffers of micro-batches in flight and of messages
 *   runner_actions.c  the actions of a schedule
 *   runner_offload.c  inputs of blocks in host memory
 *   runner_overlap.c  what runs beside forward and backward
 *   runner_replay.c   steps of small micro-batches as recordings
 *   runner_fp8.c      delayed scaling
 *   runner_balance.c  losses that keep the experts of mixtures busy alike
 */
#ifndef WEFT_TRAIN_RUNNER_H
#define WEFT_TRAIN_RUNNER_H

#include <signal.h>

#include "base/json.h"
#include "comm/mesh.h"
#include "data/data.h"
#include "model/model.h"
#include "optim/optim.h"
#include "parallel/schedule.h"
#include "parallel/shard.h"

/* How operands are scaled in fp8: from their amax now, or in the previous step. */
typedef enum { FP8_EXACT, FP8_DELAYED } Fp8Scaling;
extern const char *const fp8_scaling_names[]; /* ends with NULL */

/* How the experts of a mixture are kept busy alike: by a loss, or not at all. */
typedef enum { BALANCE_AUX, BALANCE_NONE } BalanceKind;
extern const char *const balance_names[]; /* ends with NULL */

/* Optimizer, layout, precision and memory of a run. As a part of the settings (train/settings.h), it has what
 * the user chose; job_new derives the rest: table, seq, train, dtype, fp8, logits, micros, noise. */
typedef struct RunnerSpec {
    const KernelTable *table;
    int64_t micro_batch, seq; /* maximum size of a micro-batch */
    bool train;               /* allocate gradients and optimizer state */
    Recompute recompute;
    OptimSpec optim;
    uint64_t seed;
    /* Layout; all zero is one rank in fp32. */
    Mesh *mesh;             /* NULL: one rank. Must outlive the runner. */
    GradType grad_type;     /* how gradients travel over the data axis */
    OuterSpec outer;        /* every > 0: the mesh's shard groups are workers, see parallel/shard.h */
    int64_t zero;           /* 0 to 3 */
    Offload offload;        /* parameters in host memory imply zero 3 */
    BlockCode base;         /* how the matrices beside adapters are kept; not with `outer` */
    bool keep_params;       /* zero 3: keep a block's gathered parameters from forward to backward */
    ContextMode cp_mode;    /* not AUTO with several ranks of context parallelism */
    bool sequence;          /* sequence parallelism over the tensor-parallel ranks */
    DType dtype;            /* compute type */
    bool fp8;               /* layer GEMMs in fp8; dtype is bf16 */
    Fp8Scaling fp8_scaling; /* see runner_fp8.c */
    bool fp8_head;          /* also the GEMMs of the language-modeling head, in training */
    int64_t mlp_rows;       /* see Shape */
    bool whole_blocks;      /* plans for other software, see Shape */
    double imbalance;       /* plans, see Shape */
    FakeQuant fake_quant;   /* quantization-aware training; not with fp8 */
    DType logits;           /* type of the logits: fp32 or dtype */
    ScheduleKind schedule;  /* ignored with one stage */
    int64_t chunks;         /* chunks per stage; 0: 1 */
    double loss_scale;      /* fp16: initial value; 0: 65536 */
    int64_t scale_steps;    /* fp16: steps without overflow before it doubles; 0: 2000 */
    int micros;             /* micro-batches per step and replica, for allocating buffers; 0: 1 */
    int step_micros;        /* plans: those of a whole step, where only some are executed; 0: `micros` */
    bool noise;             /* allocate memory to measure StepResult.micro_norm */
    BalanceKind balance;    /* of mixtures of experts, see runner_balance.c */
    double balance_coef;    /* factor of the balancing loss; 0: the model's */
    double z_coef;          /* factor of the router's z-loss */
    /* Set by a signal handler, on any rank. Positive: all ranks abandon the step between two blocks
     * (STOPPED), after which the parameters and optimizer state are those of the last complete step; see
     * mesh_recover. Negative: training stops after the current step or validation. NULL: never. */
    const volatile sig_atomic_t *stop;
} RunnerSpec;

/* The buffers of one micro-batch in one chunk. */
typedef struct MicroBuffers {
    bool used;
    int micro;
    Buffer ids;       /* its int32 arrays ... */
    Micro data;       /* ... and views into them */
    Buffer *input;    /* per block: its input, if backward needs it; in host memory if it is offloaded. Of
                       * the first block: what the previous stage sent */
    Buffer *saved;    /* per block: activations for backward */
    Buffer *deferred; /* per block: operands of weight gradients computed later (zero-bubble) */
    Buffer *received; /* per block: Pass.received, SAVED and DEFERRED */
} MicroBuffers;

/* Device memory for the input of a block, if inputs are offloaded; see runner_offload.c. */
typedef struct OffloadSlot {
    Buffer rows;
    const Buffer *input; /* a MicroBuffers.input: what it has; NULL: nothing */
    uint64_t used;       /* number of the last use */
    bool fetching;       /* it is being copied from the host; not yet waited for */
    void *stored;        /* event: the last copy from here to the host is complete */
} OffloadSlot;

/* The input and output of the running block, and the input that is being fetched. */
enum { OFFLOAD_SLOTS = 3 };

/* Blocks first .. first + count - 1 of the model, which this stage executes as a unit. */
typedef struct Chunk {
    int first, count;
    bool from_stage, to_stage; /* the input comes from, the output goes to, another stage */
    int from, to;              /* these stages */
    bool backward;             /* a block here or before is trained, */
    bool sends_gradient;       /* and one on an earlier stage */
    MicroBuffers *buffer_set;
    int buffer_sets;
} Chunk;

typedef enum { MESSAGE_INPUT, MESSAGE_OUTPUT, MESSAGE_GRADIENT } MessageKind;

/* The buffer of a message between stages: an input received ahead of its use; an output being sent to the
 * next stage; or a gradient, which is received from the next stage, updated in place through the blocks and
 * sent to the previous one.
 */
typedef struct StageMessage {
    Buffer buffer;
    bool used;
    MessageKind kind;
    int micro, chunk;
    Ticket ticket; /* the receive, or the send after which the buffer is free */
    bool launched; /* the ticket's communication batch is complete, so it may be waited for */
    void *freed;   /* an event: the last computation that used the buffer */
} StageMessage;

/* Seconds over all steps so far, on this rank. */
typedef struct RunnerTimes {
    double schedule_s;           /* gradients, from the first micro-batch to the norm, waits included */
    double compute_s, update_s;  /* gradients and update, waits excluded */
    double waited_s[AXIS_COUNT]; /* waiting for other replicas, tensor-parallel ranks, stages */
    double device_s;             /* device time from the first to the last operation of a step */
} RunnerTimes;

typedef struct Runner {
    RunnerSpec spec;
    const Model *model;
    Mesh *mesh, *own_mesh;
    Device *device;
    Stream *stream;
    Exec exec;
    /* A GPU with one rank: forward and backward run on `chain`, weight gradients and the update beside them
     * on `stream`. See runner_overlap.c; all empty: everything runs on `stream`. */
    struct {
        Stream *chain;
        Exec exec;
        Buffer operands[2]; /* of a layer's weight gradients, alternately; empty: backward computes them */
        Buffer gradient[2]; /* of a layer's output, in turn with the message; weight gradients read it, too */
        Buffer scratch;     /* of weight gradients */
        int turn;
        bool measured; /* GEMMs have been tuned, alone on the device */
        bool on;       /* in this step */
        bool cleared;  /* `chain` follows the clearing of gradients */
        bool updating; /* since `chain` last followed `stream`, only an update was put there */
        void *updated; /* event: the last update is complete */
    } overlap;
    struct {                         /* see runner_replay.c */
        Recording *recording;        /* NULL: none yet */
        Buffer *ids;                 /* of the micro-batches of a recorded step */
        int micros;                  /* as many; 0: steps are not recorded */
        HostBatch batch;             /* the last step's first; only what host_batch_alike compares */
        int count;                   /* likewise: its micro-batches, */
        bool scaled;                 /* whether it had fp8 scales, */
        float loss_grad[LOSS_COUNT]; /* and the factors of its losses, */
        float balance_grad, z_grad;  /* also of those that balance experts */
        void *workspace;             /* of `stream` when the step was recorded */
        bool refused;                /* steps cannot be recorded */
    } replay;
    Stream *from_host; /* fetches offloaded parameters and activations; NULL: neither is offloaded */
    struct {           /* see runner_offload.c; no memory: activations are not offloaded */
        OffloadSlot slot[OFFLOAD_SLOTS];
        uint64_t uses;
        Stream *to_host;
    } offload;
    Shards *shards;
    /* fp32 values of the shard that this rank updates, to be read and written by store_values; all but params
     * only when training. Call runner_publish after changing params. */
    Store *params, *grads, *state[OPTIM_STATES];
    Store *outer, *outer_momentum, *outer_grad; /* see shard_outer; NULL without workers */
    Store *residual;                            /* see shard_residual; NULL without */
    Schedule schedule, eval_schedule;
    Chunk *chunk;
    int chunks;
    int forward_only; /* see ScheduleSpec */
    Stream *inbox; /* orders receives after earlier uses of their buffers, not after all computations. It is
                      `stream` where work on two streams does not overlap */
    StageMessage *message;
    size_t messages, message_capacity;
    Buffer received[RECEIVED_COUNT]; /* see Pass.received: as `shared` and `scratch` */
    Buffer shared; /* activations of blocks that recompute, or of evaluation: one block at a time */
    Buffer scratch;
    Buffer rope; /* see Pass.rope */
    Tensor rope_table;
    Buffer loss; /* LOSS_COUNT fp64 loss sums, then LOSS_COUNT counts of correct predictions */
    /* The running block's parameter and gradient views, and the units' base addresses they are made from. */
    void **param_base, **grad_base;
    Tensor *param_view, *grad_view;
    bool *grad_unwritten; /* see Pass.grad_unwritten */
    struct {
        int pieces;   /* of each vocabulary matrix; 0: it is gathered as a whole */
        int64_t rows; /* of a piece */
        int unit;     /* the running block's matrix */
        int micro;    /* and micro-batch */
        VocabPieces access;
    } vocab;
    struct {
        int unit;   /* the embedding matrix; a step needs few of its rows first; -1: absent */
        bool ready; /* those of this step's tokens are up to date */
    } rows;
    int *unit_users, *unit_adds; /* per unit: blocks here that add to its gradient; additions this step */
    HostBatch **part;            /* with context parallelism, of each micro-batch: what this rank has */
    int parts;
    LossScale loss_scale;   /* factor on losses before backward; always 1 unless fp16 */
    struct {                /* delayed scaling */
        Buffer scale, amax; /* see Fp8State; no memory: not used */
        float *host_scale, *host_amax;
        bool ready; /* a step has been done, so there are scales */
    } fp8;
    struct {                 /* of mixtures, see runner_balance.c; no memory: there are none */
        Buffer load, counts; /* (layers,E) fp32, (layers,E) int64 followed by (layers,ROUTE_TOTALS) fp64 */
        float *host_load;
        int64_t *last, *now; /* counts of the last step that was applied, and of this one */
        int64_t tokens, now_tokens;
    } balance;
    RunnerTimes times;
    bool probe;       /* measure micro_norm in the next steps */
    bool shows_outer; /* see runner_use_outer */
    bool lags;        /* CPU: an update may continue beside the next step, see runner_settle */
    bool updated;     /* the last update's device time is not yet in `times` */
    Trace *trace;     /* NULL: not tracing. See train/tracer.h */
} Runner;

/* How a step used the experts of all mixtures: means over tokens and layers. */
typedef struct ExpertStats {
    bool on;        /* there are any */
    double balance; /* the balancing loss, without its factor */
    double z;       /* the z-loss, likewise */
    double entropy; /* of the router's probabilities, in nats */
    double peak;    /* tokens of the busiest expert of any layer; 1: as many as on average */
    int64_t idle;   /* experts without tokens, in all layers */
} ExpertStats;

typedef struct StepResult {
    double loss;             /* the objective: each loss divided by its global count, weighted */
    double part[LOSS_COUNT]; /* mean of each loss */
    double grad_norm;        /* before clipping; root mean square of the workers' norms */
    double clip_norm;        /* the same of this worker alone */
    double micro_norm;       /* gradient norm of a single micro-batch: root mean square over all, estimated
                              * from sketches (shards_probe); NAN: not measured */
    int64_t tokens;          /* input tokens, padding excluded */
    ExpertStats experts;
    bool skipped; /* the update was skipped: fp16 gradients overflowed, or training diverged */
    bool stop;    /* a rank was told to stop, too late to abandon the step */
} StepResult;

MUST_USE Status runner_new(Runner **ret_runner, const Model *model, Device *device, const RunnerSpec *spec);
void runner_free(Runner *runner);
DEFINE_FREEP(Runner, runner)
/* Partitions a model into `parts` contiguous parts balanced by FLOPs; chunk c of stage s is part c * stages +
 * s. Part p has blocks first[p] .. first[p + 1] - 1. The caller frees *ret_first (parts + 1 entries). */
MUST_USE Status runner_partition(const Model *model, int64_t seq, int parts, int **ret_first);
/* The first parts of such a partition, in which nothing is trained: they have no backward. */
int runner_forward_only(const Model *model, const int *first);
/* Updates the compute copies of the parameters after runner->params has changed. Collective. */
MUST_USE Status runner_publish(Runner *runner);

/* What follows a step's gradients. */
typedef enum {
    STEP_APPLY, /* the update */
    STEP_SKIP,  /* no update, but the step counts */
    STEP_DROP,  /* nothing */
} StepAction;
/* Ends the section (comm/mesh.h) in which gradients were computed, and decides, alike on all ranks. */
typedef Status StepJudge(void *context, StepResult *result, StepAction *ret_action);

/* When workers synchronize after a step: in their turn, all parameters at once, or not at all. */
typedef enum { SYNC_DUE, SYNC_ALL, SYNC_NEVER } StepSync;

typedef struct StepSpec {
    int64_t number; /* from 1 */
    double lr;
    StepSync sync;
    StepJudge *judge; /* NULL: the loss and, except in fp16, the gradient norm must be finite */
    void *context;
} StepSpec;

/* One optimizer step over this replica's micro-batches in order; all replicas must have the same number.
 * Replica d has sequences d*n .. (d+1)*n - 1 of the step's batch, where n is its number of sequences. In
 * fp16, a step whose gradients overflow is skipped and lowers the loss scale. Collective. */
MUST_USE Status runner_step(Runner *runner, HostBatch *const *micros, int count, const StepSpec *step,
                            StepResult *ret_result);
/* The first part of a step: gradients alone, outside a section. Collective. */
MUST_USE Status runner_gradients(Runner *runner, HostBatch *const *micros, int count, int64_t step,
                                 StepResult *ret_result);
/* With Runner.lags, on a CPU, waits for the last update. Call it before the host reads or writes parameters,
 * gradients or the optimizer's state. Steps and evaluation wait by themselves. */
MUST_USE Status runner_settle(Runner *runner);
/* The last part of a step: synchronizes workers if that is due, or all of their parameters. Does nothing
 * without workers. Collective. */
MUST_USE Status runner_sync(Runner *runner, int64_t step, bool all);
/* With `on`, kernels compute with the synchronized parameters until they are turned off again. Does nothing
 * without workers. Collective. */
MUST_USE Status runner_use_outer(Runner *runner, bool on);
/* Whether the gradients overflowed fp16, which the loss scale handles. */
bool runner_overflowed(const Runner *runner, const StepResult *result);
/* Forward only, without dropout: adds the loss sums and counts of all replicas' batches to `sums` and
 * `counts`, and the number of correct predictions (the label has the largest logit) to `hits`, which may be
 * NULL. Collective; all replicas must have the same number of batches. */
MUST_USE Status runner_eval(Runner *runner, HostBatch *const *batches, int count, double sums[LOSS_COUNT],
                            int64_t counts[LOSS_COUNT], int64_t hits[LOSS_COUNT]);
/* What to compute of a batch instead of losses. */
typedef struct OutputWork {
    HeadId head;         /* logits of this head; HEAD_NONE: the hidden states after the last norm */
    const int32_t *rows; /* (count) rows b * T + t, ascending; NULL: all, or if the head is pooled the first
                          * of each sequence */
    int64_t count;
    int64_t width; /* values per row: those that the head or the hidden size has, unless they are reduced */
    /* Makes values of the complete logits of row i of these; called where the head is. NULL: the logits
     * themselves. */
    void (*reduce)(void *context, int64_t i, const float *logits, float *out);
    void *context;
} OutputWork;
/* The values of these rows (rows,width), in host memory on all ranks of a replica. Collective. */
MUST_USE Status runner_outputs(Runner *runner, const HostBatch *batch, const OutputWork *work, float *out);
/* A head's logits: one row per position, or per sequence for the next-sentence and classification heads. */
MUST_USE Status runner_logits(Runner *runner, const HostBatch *batch, HeadId head, float *out);

/* Writes the state of delayed scaling to a checkpoint's progress, and restores it. */
MUST_USE Status runner_fp8_save(const Runner *runner, json_t *progress);
MUST_USE Status runner_fp8_load(Runner *runner, const char *from, const json_t *progress);

/* The same for the counts of experts. */
MUST_USE Status runner_balance_save(const Runner *runner, json_t *progress);
MUST_USE Status runner_balance_load(Runner *runner, const char *from, const json_t *progress);

/* Workers of low-communication data parallelism, else 1. */
int runner_workers(const Runner *runner);
/* Replicas that compute the gradients of their micro-batches together, since they exchange tokens. */
int runner_joined(const Runner *runner);
/* Whether a step of that many micro-batches has several such gradients, and memory to compare them. */
bool runner_compares(const Runner *runner, int micros);

/* Pipeline bubble: the fraction of forward and backward time spent waiting for other stages. */
double runner_bubble(const RunnerTimes *times);

/* The objective: the sum of mean losses, with span start and span end at weight 0.5 each. */
double loss_objective(const double sums[LOSS_COUNT], const int64_t counts[LOSS_COUNT]);

#endif
