/* Runs the real runner on a dry-run device, dry-run kernels and dry-run groups, and reads their counters. */
#include "plan/dryrun.h"

#include <string.h>

#include "base/memory.h"
#include "checkpoint/ckpt_save.h"
#include "checkpoint/snapshot.h"
#include "model/head.h"
#include "train/job.h"
#include "train/noise.h"

/* The first step includes one-time work; the second is typical, so communication is counted there. */
enum { STEPS = 2 };

typedef struct DryRunContext {
    Device *device;
    Mesh *mesh;
    Runner *runner;
    HostBatch **micro;
} DryRunContext;

static void context_done(DryRunContext *context) {
    runner_free(context->runner);
    mesh_free(context->mesh);
    device_free(context->device);
    free(context->micro);
}

static Status context_init(DryRunContext *context, const DryRunSpec *run, int rank) {
    RunnerSpec spec = run->spec;
    bool gpu = strcmp(run->device, "cuda") == 0;
    TRY(device_new_dryrun(&context->device, run->threads));
    context->device->planned = run->capability;
    TRY(mesh_new_dryrun(&context->mesh, run->mesh, rank, run->per_node, !gpu));
    TRY(kernels_dryrun(run->device, &spec.table));
    spec.mesh = context->mesh;
    TRY(runner_new(&context->runner, run->model, context->device, &spec));
    TRY(runner_publish(context->runner));
    int micros = spec.micros > run->evals ? spec.micros : run->evals;
    TRY(mem_new((size_t)micros, sizeof *context->micro, &context->micro));
    return OK;
}

static void use_batch(DryRunContext *context, const DryRunSpec *run, const HostBatch *batch) {
    int micros = run->spec.micros > run->evals ? run->spec.micros : run->evals;
    for (int i = 0; i < micros; i++) context->micro[i] = (HostBatch *)batch;
}

static void count_params(const Runner *runner, DryRunRank *result) {
    for (int i = 0; i < runner->shards->count; i++) {
        const ShardUnit *unit = &runner->shards->unit[i];
        if (!unit->held) continue;
        int64_t count = 0;
        for (size_t k = 0; k < unit->layout.count; k++) count += unit->layout.slot[k].count;
        result->params += count;
        if (unit->layout.count && unit->layout.slot[0].desc.expert) result->experts += count;
    }
    result->kept = shards_params(runner->shards);
    for (int c = 0; c < runner->chunks; c++) result->blocks += runner->chunk[c].count;
}

/* The largest snapshot of any rank that saves (checkpoint/snapshot.h). */
static Status measure_snapshot(const Runner *runner, size_t *ret_bytes) {
    const Shards *shards = runner->shards;
    const CheckpointState state = runner_checkpoint(runner);
    const Store *store[SAVE_STORES];
    SaveOwner owner[SAVE_STORES];
    int stores = ckpt_stores(&state, store, owner);
    CLEANUP(mem_freep) bool *ours = NULL;
    TRY(mem_new((size_t)shards->count, sizeof *ours, &ours));
    for (int i = 0; i < shards->count; i++) ours[i] = shards->unit[i].held && shards->unit[i].counted;
    CLEANUP(snapshot_done) Snapshot snapshot = {0};
    TRY(snapshot_assign(&snapshot, store, owner, stores, ours, 0, 0, 0));
    *ret_bytes = (size_t)snapshot.largest * sizeof(float);
    return OK;
}

void dryrun_rank_done(DryRunRank *rank) {
    step_events_done(&rank->events);
}

Status dryrun_rank_copy(DryRunRank *ret_rank, const DryRunRank *rank) {
    DryRunRank copy = *rank;
    TRY(step_events_copy(&copy.events, &rank->events));
    *ret_rank = copy;
    return OK;
}

/* Workers synchronize once, which sends what they send in an interval. Before the steps, since an exchange
 * may overlap them. */
static Status synchronize(const DryRunContext *context, DryRunRank *result) {
    uint64_t every = (uint64_t)context->runner->spec.outer.every;
    CommBytes before[COMM_KINDS];
    if (!every) return OK;
    mesh_sent(context->mesh, before);
    TRY(runner_sync(context->runner, 0, true));
    mesh_sent(context->mesh, result->synced);
    for (int k = 0; k < COMM_KINDS; k++) {
        comm_bytes_add(&result->synced[k], before[k], -1);
        result->synced[k].within /= every;
        result->synced[k].between /= every;
    }
    for (int i = 0; i < context->runner->model->units; i++)
        result->exchanged += (double)context->runner->outer->flat[i].bytes;
    return OK;
}

/* Adds what the sketches of a step send, on average: the GPU measures one step of several. */
static Status add_sketches(const DryRunContext *context, bool gpu, CommBytes sent[COMM_KINDS]) {
    Runner *runner = context->runner;
    CommBytes before[COMM_KINDS], after[COMM_KINDS];
    double spread;
    if (!runner->spec.train || !runner_compares(runner, runner->shards->spec.micros)) return OK;
    mesh_sent(context->mesh, before);
    TRY(shards_probe(runner->shards, runner->shards->spec.micros, 0));
    TRY(shards_read_spread(runner->shards, &spread));
    mesh_sent(context->mesh, after);
    for (int k = 0; k < COMM_KINDS; k++) {
        comm_bytes_add(&after[k], before[k], -1);
        sent[k].within += after[k].within / (uint64_t)noise_every(gpu);
        sent[k].between += after[k].between / (uint64_t)noise_every(gpu);
    }
    return OK;
}

/* Runs validate before the first step. */
static Status evaluate(DryRunContext *context, const DryRunSpec *run) {
    double sums[LOSS_COUNT] = {0};
    int64_t counts[LOSS_COUNT] = {0};
    if (!run->evals) return OK;
    use_batch(context, run, run->batch);
    return runner_eval(context->runner, context->micro, run->evals, sums, counts, NULL);
}

/* The scores of a micro-batch, from which evaluations compute what no loss shows, such as F1. */
static Status read_scores(const DryRunContext *context, const HostBatch *batch) {
    const ModelConfig *config = &context->runner->model->config;
    HeadId head = heads_first(config->outputs_mask);
    int64_t rows = batch->B * (head_at(head)->traits.pooled ? 1 : batch->T);
    CLEANUP(mem_freep) float *scores = NULL;
    TRY(mem_new((size_t)(rows * head_at(head)->width(config)), sizeof *scores, &scores));
    return runner_logits(context->runner, batch, head, scores);
}

Status dryrun_rank(const DryRunSpec *run, int rank, DryRunRank *ret_rank) {
    CLEANUP(context_done) DryRunContext context = {0};
    DryRunRank result = {0};
    CLEANUP(op_log_done) OpLog op_log = {0};
    TRY(context_init(&context, run, rank));
    TRY(synchronize(&context, &result));
    TRY(evaluate(&context, run));
    CommBytes before[COMM_KINDS] = {0};
    for (int step = 1; step <= STEPS; step++) {
        StepResult step_result;
        mesh_sent(context.mesh, before);
        use_batch(&context, run, run->first && step == 1 ? run->first : run->batch);
        if (run->timed && step == STEPS) context.device->op_log = &op_log;
        TRY(runner_step(context.runner, context.micro, run->spec.micros,
                        &(StepSpec){.number = step, .lr = 1e-4, .sync = SYNC_NEVER}, &step_result));
    }
    context.device->op_log = NULL;
    mesh_sent(context.mesh, result.sent);
    for (int k = 0; k < COMM_KINDS; k++) {
        comm_bytes_add(&result.sent[k], before[k], -1);
        comm_bytes_add(&result.sent[k], result.synced[k], 1);
    }
    TRY(add_sketches(&context, strcmp(run->device, "cuda") == 0, result.sent));
    if (run->evals && run->scores) TRY(read_scores(&context, run->batch));
    count_params(context.runner, &result);
    result.overlaps = context.runner->overlap.operands[0].data != NULL;
    for (int tag = 0; tag < MEM_TAGS; tag++) result.memory.tag[tag] = context.device->mem[tag].peak;
    result.memory.total = context.device->total.peak;
    result.memory.host = context.device->host.peak;
    result.memory.needed = result.memory.total;
    TRY(measure_snapshot(context.runner, &result.memory.snapshot));
    if (run->timed) TRY(step_events_init(&result.events, &op_log, context.runner, run->spec.micros));
    *ret_rank = result;
    return OK;
}
