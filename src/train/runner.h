/* The runner: the one place where model and parallel meet. It owns a rank's memory (parameters,
 * gradients, moments, activations, scratch) and carries out a step's schedule over the blocks that its
 * stage has.
 *
 *   runner.c          what a rank holds, losses, evaluation
 *   runner_memory.c   memory of micro-batches in flight and of messages
 *   runner_actions.c  the actions of a schedule
 */
#ifndef WEFT_TRAIN_RUNNER_H
#define WEFT_TRAIN_RUNNER_H

#include "comm/mesh.h"
#include "data/data.h"
#include "model/model.h"
#include "optim/optim.h"
#include "parallel/schedule.h"
#include "parallel/shard.h"

typedef struct RunnerSpec {
    const KernelTable *table;
    int64_t micro_batch, seq; /* the largest micro-batch it will see */
    bool train;               /* with gradients and moments */
    Recompute recompute;
    OptimSpec optim;
    uint64_t seed;
    /* The layout; zeroes are one rank in fp32. */
    Mesh *mesh;            /* NULL: one rank. It must outlive the runner. */
    int zero;              /* 0 to 3 */
    Offload offload;       /* params: zero is 3 */
    bool keep_params;      /* zero 3: whole from a block's forward to its backward */
    bool sequence;         /* sequence parallelism over the tensor ranks */
    DType dtype;           /* what kernels compute with */
    bool fp8;              /* layers' products are of 8 bits; dtype is bf16 */
    RoundTo round;         /* quantization to get used to; not with fp8 */
    DType logits;          /* what the loss is computed from: fp32 or dtype */
    ScheduleKind schedule; /* SCHEDULE_GPIPE is 0 and, with one stage, as good as any */
    int chunks;            /* of a stage; 0: 1 */
    double loss_scale;     /* fp16: the first; 0: 65536 */
    int64_t scale_steps;   /* fp16: steps without overflow before it doubles; 0: 2000 */
    int micros;            /* micro-batches of a step on a replica, for planning memory; 0: 1 */
    bool noise;            /* a step may ask for StepResult.micro_norm */
} RunnerSpec;

/* The memory of one micro-batch on its way through one chunk. */
typedef struct MicroBuffers {
    bool used;
    int micro;
    Buffer ids;       /* its int32 arrays... */
    Micro data;       /* ...and the views of them */
    Buffer input;     /* what came from the stage before */
    Buffer *output;   /* per block: what it gave, where backward needs it */
    Buffer *saved;    /* per block */
    Buffer *deferred; /* per block */
} MicroBuffers;

/* Blocks first .. first + count - 1 of the model, the stage's share of one part. */
typedef struct Chunk {
    int first, count;
    bool from_stage, to_stage; /* its input comes from a stage, its output goes to one */
    int from, to;              /* which */
    MicroBuffers *buffer_set;
    int buffer_sets;
} Chunk;

typedef enum { MESSAGE_INPUT, MESSAGE_OUTPUT, MESSAGE_GRADIENT } MessageKind;

/* A message's memory: an input that has been asked for ahead of its use; an output on its way to the next
 * stage; a gradient that comes from there, is carried through the blocks and goes on to the stage before. */
typedef struct StageMessage {
    Buffer buffer;
    bool used;
    MessageKind way;
    int micro, chunk;
    Ticket ticket; /* its receipt, or the sending after which it is free... */
    bool launched; /* ...and may be waited for, its batch being complete */
} StageMessage;

/* Seconds of all steps so far, on this rank. */
typedef struct RunnerTimes {
    double schedule_s;           /* gradients, from the first micro-batch to the norm, waiting included */
    double compute_s, update_s;  /* gradients and update, without waiting... */
    double waited_s[AXIS_COUNT]; /* ...for other replicas, tensor ranks and stages */
    double device_s;             /* from the first to the last of a step's work on the device's own clock */
} RunnerTimes;

typedef struct Runner {
    RunnerSpec spec;
    const Model *model;
    Mesh *mesh, *own_mesh;
    Device *device;
    Stream *stream;
    Exec exec;
    Shards *shards;
    Store *params, *grads, *m, *v; /* views of the part that this rank updates, in fp32; the last three in
                                    * training only. After a change, runner_publish. */
    Schedule schedule, eval_schedule;
    Chunk *chunk;
    int chunks;
    StageMessage *message;
    size_t messages, message_capacity;
    Buffer shared; /* what blocks save, when nobody needs it for long */
    Buffer scratch;
    Buffer loss; /* LOSS_COUNT fp64 sums, and as many of hits */
    /* For the block that runs: its parameters' and gradients' views, from the units' first elements. */
    void **param_base, **grad_base;
    Tensor *param_view, *grad_view;
    int *unit_users, *unit_adds; /* blocks here that add to a unit's gradient; additions so far */
    LossScale loss_scale;        /* losses are multiplied by it before backward; other than fp16: 1 */
    RunnerTimes times;
    bool probe;   /* the next steps take micro_norm */
    bool updated; /* an update's time on the device has not been added yet */
    Trace *trace; /* where it records what it does; NULL: nowhere. See train/tracer.h */
} Runner;

typedef struct StepResult {
    double loss;             /* the objective: each part divided by its global count */
    double part[LOSS_COUNT]; /* each loss on its own */
    double grad_norm;        /* before clipping */
    double micro_norm;       /* of the gradient by the step's first micro-batch alone; NAN: not taken, and on
                              * other replicas than the first */
    int64_t tokens;          /* input positions that are not padding */
    bool skipped;            /* fp16: gradients overflowed, nothing was updated */
} StepResult;

MUST_USE Status runner_new(Runner **ret_runner, const Model *model, Device *device, const RunnerSpec *spec);
void runner_free(Runner *runner);
DEFINE_FREEP(Runner, runner)
/* How a model is cut into parts, each of a chunk of a stage: part p has blocks first[p] to first[p + 1] - 1.
 * (*ret_first)[parts + 1] is to free. */
MUST_USE Status runner_cut(const Model *model, int64_t seq, int parts, int **ret_first);
/* After runner->params was filled: what kernels compute with follows. Collective. */
MUST_USE Status runner_publish(Runner *runner);

/* One optimizer step, number `step` from 1, over this replica's micro-batches in order; all ranks take
 * equally many. Replica d of the data axis has sequences d*n .. of the step's batch, n being its own. */
MUST_USE Status runner_step(Runner *runner, HostBatch *const *micros, int count, int64_t step, double lr,
                            StepResult *ret_result);
/* The gradients of a step without the update; runner_step is this and runner_update. */
MUST_USE Status runner_gradients(Runner *runner, HostBatch *const *micros, int count, int64_t step,
                                 StepResult *ret_result);
MUST_USE Status runner_update(Runner *runner, int64_t step, double lr, double grad_norm);
/* Adds loss sums and counts of all replicas' batches, without dropout or gradients, and to `hits`, where
 * given, how many labels had the largest score. Collective: all replicas give equally many batches. */
MUST_USE Status runner_eval(Runner *runner, HostBatch *const *batches, int count, double sums[LOSS_COUNT],
                            int64_t counts[LOSS_COUNT], int64_t hits[LOSS_COUNT]);
/* For one tensor rank and one stage: forward up to the last layer, without dropout: its output (B,T,C),
 * valid until the next call. */
MUST_USE Status runner_hidden(Runner *runner, const HostBatch *batch, Tensor *ret_hidden);
/* The whole model's scores from a head for every row it scores, on all ranks of a replica; `out` is host
 * memory. Scores of a vocabulary are for one tensor rank. Collective. */
MUST_USE Status runner_logits(Runner *runner, const HostBatch *batch, OutputHead head, float *out);

/* The share of a step's forward and backward that the stages spend waiting for each other. */
double runner_bubble(const RunnerTimes *times);

/* The objective from sums and counts: means, the span's two sides at half weight each. */
double loss_objective(const double sums[LOSS_COUNT], const int64_t counts[LOSS_COUNT]);

#endif
