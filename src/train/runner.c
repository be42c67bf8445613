/* A step on one rank: count the loss terms over all replicas, execute the schedule, compute the gradient
 * norm, update. Memory is allocated once, from the sizes that blocks report; only the kernels' workspace
 * still grows during the first step.
 */
#include "train/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "comm/mpi.h"
#include "model/rope.h"
#include "parallel/tp.h"
#include "train/runner_internal.h"

static const double loss_weight[LOSS_COUNT] = {
    [LOSS_TOKEN] = 1, [LOSS_NSP] = 1, [LOSS_SPAN_START] = 0.5, [LOSS_SPAN_END] = 0.5, [LOSS_CLASSIFY] = 1};

double loss_objective(const double sums[LOSS_COUNT], const int64_t counts[LOSS_COUNT]) {
    double loss = 0;
    for (int i = 0; i < LOSS_COUNT; i++)
        if (counts[i]) loss += loss_weight[i] * sums[i] / (double)counts[i];
    return loss;
}

/* Whether the model has the head that produces a loss. */
static bool has_loss(const ModelConfig *config, int loss) {
    static const unsigned heads[LOSS_COUNT] = {[LOSS_TOKEN] = OUTPUT_LM | OUTPUT_MLM,
                                               [LOSS_NSP] = OUTPUT_NSP,
                                               [LOSS_SPAN_START] = OUTPUT_SPAN,
                                               [LOSS_SPAN_END] = OUTPUT_SPAN,
                                               [LOSS_CLASSIFY] = OUTPUT_CLASSIFY};
    return (config->outputs_mask & heads[loss]) != 0;
}

Shape runner_shape(const Runner *runner, int64_t B, int64_t T, bool train) {
    return (Shape){.B = B,
                   .T = T,
                   .tp = runner->mesh->extent[AXIS_TP],
                   .sequence = runner->spec.sequence && runner->mesh->extent[AXIS_TP] > 1,
                   .dtype = runner->spec.dtype,
                   .fp8 = runner->spec.fp8,
                   .fp8_delayed = runner->fp8.scale.data != NULL,
                   .fp8_head = runner->spec.fp8 && runner->spec.fp8_head,
                   .fake_quant = runner->spec.fake_quant,
                   .logits = runner->spec.logits,
                   .train = train,
                   .pieces = runner->vocab.pieces,
                   .piece_rows = runner->vocab.rows,
                   .recompute = runner->spec.recompute};
}

bool runner_recomputes(const Runner *runner, int at) {
    return runner->spec.recompute == RECOMPUTE_BLOCK && runner->model->block[at].ops->backward_params;
}

/* ---- setup ---- */

/* Finds the units that this stage's blocks use. A unit used by both the first and the last stage (tied
 * embeddings) is a twin: the two copies are kept equal, and only the first counts in norms. */
static void find_unit_uses(Runner *runner, UnitUse *use) {
    const Model *model = runner->model;
    bool piped = runner->mesh->extent[AXIS_PP] > 1;
    for (int c = 0; c < runner->chunks; c++)
        for (int at = runner->chunk[c].first; at < runner->chunk[c].first + runner->chunk[c].count; at++) {
            const Block *block = &model->block[at];
            for (size_t i = 0; i < block->params.count; i++) {
                int unit = block->ref[i].unit;
                bool shared = model->unit[unit].desc[0].shared;
                if (!use[unit].held || at < use[unit].block) use[unit].block = at;
                use[unit].held = true;
                use[unit].twin = shared && piped;
                use[unit].counted = use[unit].counted || !shared || !piped || at == 0;
            }
            for (size_t i = 0; i < block->params.count; i++) {
                int unit = block->ref[i].unit;
                size_t k = 0;
                while (k < i && block->ref[k].unit != unit) k++;
                if (k == i) runner->unit_users[unit]++;
            }
        }
}

/* ZeRO-3 gathers vocabulary matrices in pieces for which the memory of two layers suffices, together with the
 * block's other parameters. The size depends on the whole model, so that all stages divide alike. */
static Status piece_size(const Runner *runner, int64_t *ret_piece) {
    const Model *model = runner->model;
    int64_t largest = 0, edge = 0;
    for (int i = 0; i < model->count; i++) {
        Unit unit = {0};
        TRY(unit_init(&unit, &model->unit[i],
                      (UnitSpec){.tp_size = runner->mesh->extent[AXIS_TP], .shards = 1}));
        if (unit.numel > largest) largest = unit.numel;
        if ((i == 0 || i == model->count - 1) && unit.numel > edge) edge = unit.numel;
        unit_done(&unit);
    }
    *ret_piece = largest - edge / 2;
    return OK;
}

/* Notes how the model's vocabulary matrices, all of the same shape, are divided. */
static void note_pieces(Runner *runner) {
    for (int i = runner->model->count; i < runner->model->units; i++) {
        const Unit *unit = &runner->shards->unit[i].layout;
        if (unit->pieces < 2) continue;
        runner->vocab.pieces = unit->pieces;
        runner->vocab.rows = unit->slot[0].stripe * unit->slot[0].shards;
    }
}

typedef enum {
    VIEW_PARAMS,
    VIEW_GRADS,
    VIEW_OUTER,
    VIEW_OUTER_MOMENTUM,
    VIEW_OUTER_GRAD,
    VIEW_RESIDUAL,
    VIEW_STATE /* and further states */
} ViewKind;

static Tensor view_of(const Shards *shards, int unit, int kind, int64_t *ret_first) {
    *ret_first = shards->unit[unit].first;
    if (kind == VIEW_PARAMS) return shard_master(shards, unit);
    if (kind == VIEW_GRADS) return shard_gradient(shards, unit);
    if (kind == VIEW_OUTER) return shard_outer(shards, unit);
    if (kind == VIEW_OUTER_MOMENTUM) return shard_outer_momentum(shards, unit);
    if (kind == VIEW_OUTER_GRAD) return shard_outer_grad(shards, unit);
    if (kind == VIEW_RESIDUAL) {
        *ret_first = 0;
        return shard_residual(shards, unit);
    }
    return shard_state(shards, unit, kind - VIEW_STATE, ret_first);
}

static Status make_views(Runner *runner, Store **ret_store, int kind) {
    const ShardSpec *spec = &runner->shards->spec;
    TRY(store_new_borrowed(ret_store, runner->model, shards_layout(spec), DT_F32));
    Store *store = *ret_store;
    for (int i = 0; i < runner->model->units; i++) {
        if (!runner->shards->unit[i].held) continue;
        Tensor data = view_of(runner->shards, i, kind, &store->first[i]);
        store->flat[i] = (Buffer){.data = data.data, .bytes = tensor_bytes(data), .device = runner->device};
        store->count[i] = tensor_count(data);
    }
    return store_bind(store);
}

int runner_workers(const Runner *runner) {
    return runner->spec.outer.every ? runner->mesh->replica->size : 1;
}

/* Replicas whose gradients are reduced together. */
static int worker_size(const Runner *runner) {
    return runner->mesh->extent[AXIS_DP] / runner_workers(runner);
}

/* The size of a micro-batch's sketch, from figures that are the same in every layout: the more micro-batches
 * a step has, the less precise each sketch needs to be, and for small models a large one would cost more than
 * reading the gradients. All sketches of a replica together usually take at most 2 MB. */
static int64_t sketch_size(const Runner *runner) {
    const RunnerSpec *spec = &runner->spec;
    enum { LARGEST = 1 << 15, SMALLEST = 1 << 11, ALL = 1 << 18, SMALL_MODEL = 1 << 8 };
    int64_t micros = (int64_t)spec->micros * worker_size(runner), size = LARGEST, params = 0;
    if (!spec->train || !spec->noise || micros < 2) return 0;
    for (int i = 0; i < runner->model->units; i++)
        for (size_t j = 0; j < runner->model->unit[i].count; j++)
            if (!runner->model->unit[i].desc[j].tied) params += param_count(&runner->model->unit[i].desc[j]);
    while (size > SMALLEST && size * micros > ALL) size /= 2;
    while (size > SMALL_MODEL && size > params / 256) size /= 2;
    return size;
}

static Status alloc_units(Runner *runner) {
    const Model *model = runner->model;
    const RunnerSpec *spec = &runner->spec;
    Mesh *mesh = runner->mesh;
    size_t units = (size_t)model->units, max_params = 0;
    CLEANUP(mem_freep) UnitUse *use = NULL;
    TRY(mem_new(units, sizeof *use, &use));
    TRY(mem_new(units, sizeof *runner->unit_users, &runner->unit_users));
    TRY(mem_new(units, sizeof *runner->unit_adds, &runner->unit_adds));
    TRY(mem_new(units, sizeof *runner->param_base, &runner->param_base));
    TRY(mem_new(units, sizeof *runner->grad_base, &runner->grad_base));
    for (int i = 0; i < model->count; i++)
        if (model->block[i].params.count > max_params) max_params = model->block[i].params.count;
    TRY(mem_new(max_params, sizeof *runner->param_view, &runner->param_view));
    TRY(mem_new(max_params, sizeof *runner->grad_view, &runner->grad_view));
    TRY(mem_new(max_params, sizeof *runner->grad_fresh, &runner->grad_fresh));
    find_unit_uses(runner, use);
    ShardSpec shard = {.train = spec->train,
                       .sequence = runner_shape(runner, 1, 1, true).sequence,
                       .dtype = spec->dtype,
                       .offload = spec->offload,
                       .shard = mesh->shard,
                       .replica = mesh->replica,
                       .tp = mesh->axis[AXIS_TP],
                       .model = mesh->model,
                       .ends = mesh->ends,
                       .sketch = sketch_size(runner),
                       .micros = spec->micros ? spec->micros : 1,
                       .optim = spec->optim,
                       .grad_type = spec->grad_type,
                       .apart = runner_may_overlap(runner),
                       .outer = spec->outer};
    /* A single rank has nothing to shard. Offloaded parameters are fetched and released like ZeRO-3 shards.
     */
    shard_stage(&shard, spec->offload == OFFLOAD_PARAMS ? 3 : mesh->shard->size > 1 ? (int)spec->zero : 0);
    if (shard.params) TRY(piece_size(runner, &shard.piece));
    TRY(shards_new(&runner->shards, &runner->exec, &shard, model->unit, use, model->units));
    note_pieces(runner);
    TRY(make_views(runner, &runner->params, VIEW_PARAMS));
    if (!spec->train) return OK;
    TRY(make_views(runner, &runner->grads, VIEW_GRADS));
    for (int k = 0; k < optim_states(&spec->optim); k++)
        TRY(make_views(runner, &runner->state[k], VIEW_STATE + k));
    if (shards_have_residual(runner->shards)) TRY(make_views(runner, &runner->residual, VIEW_RESIDUAL));
    if (!spec->outer.every) return OK;
    TRY(make_views(runner, &runner->outer, VIEW_OUTER));
    TRY(make_views(runner, &runner->outer_momentum, VIEW_OUTER_MOMENTUM));
    return make_views(runner, &runner->outer_grad, VIEW_OUTER_GRAD);
}

/* Allocates the workspace and the shared activation buffer, each as large as any block of this stage needs.
 */
static Status alloc_scratch(Runner *runner) {
    const RunnerSpec *spec = &runner->spec;
    Shape shape = runner_shape(runner, spec->micro_batch, spec->seq, spec->train);
    size_t scratch = 0, shared = 0;
    for (int c = 0; c < runner->chunks; c++)
        for (int i = 0; i < runner->chunk[c].count; i++) {
            int at = runner->chunk[c].first + i;
            size_t saved_bytes, scratch_bytes;
            runner->model->block[at].ops->measure(&runner->model->block[at], shape, &saved_bytes,
                                                  &scratch_bytes);
            if (scratch_bytes > scratch) scratch = scratch_bytes;
            bool share = !spec->train || runner_recomputes(runner, at);
            if (share && saved_bytes > shared) shared = saved_bytes;
        }
    TRY(dev_alloc(runner->device, MEM_ACTIVATIONS, shared, &runner->shared));
    TRY(dev_alloc(runner->device, MEM_SCRATCH, scratch, &runner->scratch));
    TRY(rope_table_new(&runner->model->config, spec->seq, runner->device, runner->stream, &runner->rope,
                       &runner->rope_table));
    return dev_alloc(runner->device, MEM_ACTIVATIONS, 2 * LOSS_COUNT * sizeof(double), &runner->loss);
}

/* Simulates the schedule of all stages to detect deadlocks before executing it. */
static Status check_schedule(const ScheduleSpec *spec) {
    CLEANUP(mem_freep) Schedule *stages = NULL;
    TRY(mem_new((size_t)spec->stages, sizeof *stages, &stages));
    Status status = OK;
    for (int s = 0; !status && s < spec->stages; s++) status = schedule_init(&stages[s], spec, s);
    if (!status) status = schedule_simulate(stages, spec->stages, NULL, NULL);
    for (int s = 0; s < spec->stages; s++) schedule_done(&stages[s]);
    return status;
}

static Status set_schedule(Runner *runner, Schedule *schedule, ScheduleKind kind, int micros) {
    int stages = runner->mesh->extent[AXIS_PP];
    if (schedule->action && schedule->spec.micros == micros) return OK;
    schedule_done(schedule);
    /* With one stage, 1F1B needs the least memory and costs nothing. */
    if (stages == 1 && kind != SCHEDULE_EVAL) kind = SCHEDULE_1F1B;
    ScheduleSpec spec = {.kind = kind, .stages = stages, .chunks = runner->chunks, .micros = micros};
    if (stages > 1) TRY(check_schedule(&spec));
    TRY(schedule_init(schedule, &spec, runner->mesh->at[AXIS_PP]));
    return runner_reserve(runner, schedule);
}

/* Memory is allocated but not used yet: fails if the ranks of this host would together use more than it has.
 */
static Status check_host(const Runner *runner) {
    const Device *device = runner->device;
    if (runner->mesh->size == 1 || !device->host_limit) return OK;
    CLEANUP(group_freep) Group *host = NULL;
    TRY(mpi_node_group(runner->mesh->world, &host));
    int64_t bytes = (int64_t)(device->total.current + device->host.current);
    int64_t room = -(int64_t)device->host_limit;
    TRY(host_reduce(host, &bytes, 1, DT_I64, REDUCE_SUM));
    TRY(host_reduce(host, &room, 1, DT_I64, REDUCE_MAX)); /* the smallest of what the ranks read */
    char need[FORMAT_SIZE], have[FORMAT_SIZE], name[65] = "this host";
    gethostname(name, sizeof name - 1);
    if (bytes <= -room) return OK;
    return REFUSED("out of memory: the %d ranks on %s need %s together, but %s is available there; use fewer "
                   "ranks per host, a smaller {micro-batch} or {zero}",
                   host->size, name, format_bytes(need, (double)bytes), format_bytes(have, -(double)room));
}

Status runner_new(Runner **ret_runner, const Model *model, Device *device, const RunnerSpec *spec) {
    CLEANUP(runner_freep) Runner *runner = NULL;
    TRY(mem_new(1, sizeof *runner, &runner));
    runner->spec = *spec;
    runner->model = model;
    runner->device = device;
    bool scaled = spec->dtype == DT_F16;
    runner->loss_scale = (LossScale){.scale = !scaled                ? 1
                                              : spec->loss_scale > 0 ? spec->loss_scale
                                                                     : 65536,
                                     .interval = spec->scale_steps ? spec->scale_steps : 2000};
    runner->mesh = spec->mesh;
    if (!spec->mesh) {
        TRY(mesh_new_self(&runner->own_mesh));
        runner->mesh = runner->own_mesh;
    }
    TRY(stream_new(&runner->stream, device));
    runner->exec = (Exec){.stream = runner->stream, .table = spec->table};
    TRY(runner_chunks_init(runner));
    TRY(alloc_units(runner));
    TRY(runner_fp8_init(runner));
    TRY(alloc_scratch(runner));
    TRY(overlap_init(runner));
    if (spec->train)
        TRY(set_schedule(runner, &runner->schedule, spec->schedule, spec->micros ? spec->micros : 1));
    TRY(set_schedule(runner, &runner->eval_schedule, SCHEDULE_EVAL, 1));
    TRY(check_host(runner));
    TRY(shards_clear(runner->shards));
    *ret_runner = runner;
    runner = NULL;
    return OK;
}

void runner_free(Runner *runner) {
    if (!runner) return;
    /* After a failure other ranks may still be sending to buffers that are freed below. */
    if (runner->mesh) mesh_drop(runner->mesh);
    /* The last update may still be running. */
    if (runner->overlap.chain) status_free(stream_sync(runner->overlap.chain));
    if (runner->stream) status_free(stream_sync(runner->stream));
    store_free(runner->params);
    store_free(runner->grads);
    for (int k = 0; k < OPTIM_STATES; k++) store_free(runner->state[k]);
    store_free(runner->outer);
    store_free(runner->outer_momentum);
    store_free(runner->outer_grad);
    store_free(runner->residual);
    shards_free(runner->shards);
    runner_chunks_done(runner);
    Buffer *const buffers[] = {&runner->shared, &runner->scratch,   &runner->rope,
                               &runner->loss,   &runner->fp8.scale, &runner->fp8.amax};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) dev_free(buffers[i]);
    free(runner->param_base);
    free(runner->grad_base);
    free(runner->param_view);
    free(runner->grad_view);
    free(runner->grad_fresh);
    free(runner->unit_users);
    free(runner->unit_adds);
    free(runner->fp8.host_scale);
    free(runner->fp8.host_amax);
    schedule_done(&runner->schedule);
    schedule_done(&runner->eval_schedule);
    overlap_done(runner);
    stream_free(runner->stream);
    mesh_free(runner->own_mesh);
    free(runner);
}

Status runner_publish(Runner *runner) {
    TRY(overlap_settle(runner));
    return shards_publish(runner->shards);
}

/* ---- where the time goes ---- */

typedef struct Section {
    double start, waited[AXIS_COUNT];
} Section;

static Section section_begin(const Runner *runner) {
    Section section = {.start = clock_wall()};
    mesh_waited(runner->mesh, section.waited);
    return section;
}

/* Adds the section's wait time to times.waited_s and the rest to *busy_s; returns the total. */
static double section_end(Runner *runner, const Section *section, double *busy_s) {
    double waited[AXIS_COUNT], seconds = clock_wall() - section->start;
    mesh_waited(runner->mesh, waited);
    *busy_s += seconds;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) {
        double here = waited[axis] - section->waited[axis];
        runner->times.waited_s[axis] += here;
        *busy_s -= here;
    }
    return seconds;
}

double runner_bubble(const RunnerTimes *times) {
    return times->schedule_s > 0 ? times->waited_s[AXIS_PP] / times->schedule_s : 0;
}

/* Events on the device's stream. */
enum { MARK_STEP, MARK_STEP_END, MARK_UPDATE, MARK_UPDATE_END };

/* Adds the device time of the previous update and of this step's gradients. Call after synchronizing the
 * stream. */
static Status add_device_time(Runner *runner) {
    double update = 0, step = 0;
    if (runner->updated) TRY(stream_elapsed(runner->stream, MARK_UPDATE, MARK_UPDATE_END, &update));
    TRY(stream_elapsed(runner->stream, MARK_STEP, MARK_STEP_END, &step));
    runner->updated = false;
    runner->times.device_s += update + step;
    return OK;
}

/* ---- a step ---- */

/* Reads the first `count` loss and hit sums, reduced over all replicas, on all ranks. They are nonzero only
 * on the last stage and equal on its tensor-parallel ranks. */
static Status read_losses(Runner *runner, int count, double *sums) {
    TRY(stream_copy(runner->stream, sums, runner->loss.data, (size_t)count * sizeof(double), COPY_TO_HOST));
    TRY(group_sync(runner->mesh->world, runner->stream));
    TRY(host_reduce(runner->mesh->axis[AXIS_DP], sums, count, DT_F64, REDUCE_SUM));
    return host_reduce(runner->mesh->axis[AXIS_PP], sums, count, DT_F64, REDUCE_SUM);
}

static Status check_sizes(const Runner *runner, HostBatch *const *micros, int count) {
    for (int i = 0; i < count; i++)
        if (micros[i]->B > runner->spec.micro_batch || micros[i]->T > runner->spec.seq)
            return FAILED("internal: micro-batch of %lld x %lld exceeds the allocated %lld x %lld",
                          (long long)micros[i]->B, (long long)micros[i]->T,
                          (long long)runner->spec.micro_batch, (long long)runner->spec.seq);
    return OK;
}

/* Counts loss terms and tokens over all replicas, and the loss terms of this worker. */
static Status count_terms(Runner *runner, HostBatch *const *micros, int count, int64_t counts[LOSS_COUNT],
                          int64_t own[LOSS_COUNT], int64_t *ret_tokens) {
    int64_t all[LOSS_COUNT + 1] = {0};
    bool workers = runner_workers(runner) > 1;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < LOSS_COUNT; k++)
            if (has_loss(&runner->model->config, k)) all[k] += micros[i]->loss_count[k];
        for (int64_t b = 0; b < micros[i]->B; b++) all[LOSS_COUNT] += micros[i]->lens[b];
    }
    TRY(host_reduce(workers ? runner->mesh->shard : runner->mesh->axis[AXIS_DP], all, LOSS_COUNT + 1, DT_I64,
                    REDUCE_SUM));
    memcpy(own, all, LOSS_COUNT * sizeof *own);
    if (workers) TRY(host_reduce(runner->mesh->replica, all, LOSS_COUNT + 1, DT_I64, REDUCE_SUM));
    memcpy(counts, all, LOSS_COUNT * sizeof *counts);
    *ret_tokens = all[LOSS_COUNT];
    return OK;
}

/* The largest number of rows that any replica's micro-batch has for the token loss. Output heads with pieces
 * of a vocabulary matrix process that many, because all replicas gather together. */
static Status count_head_rows(Runner *runner, HostBatch *const *micros, int count, int64_t *rows) {
    if (!runner->vocab.pieces) return OK;
    for (int i = 0; i < count; i++)
        rows[i] = micros[i]->task == TASK_MLM ? micros[i]->pick_count : micros[i]->B * micros[i]->T;
    return host_reduce(runner->mesh->axis[AXIS_DP], rows, count, DT_I64, REDUCE_MAX);
}

/* A worker clips by its own norm. What is reported, and decides about the step, is the same on all ranks. */
static Status read_norms(Runner *runner, StepResult *result) {
    double norm, spread, scale = runner->loss_scale.scale;
    TRY(shards_norm(runner->shards, &norm, &spread));
    double squares[] = {norm * norm, norm * norm + spread};
    int workers = runner_workers(runner);
    if (workers > 1) TRY(host_reduce(runner->mesh->replica, squares, 2, DT_F64, REDUCE_SUM));
    result->clip_norm = norm / scale;
    result->grad_norm = workers > 1 ? sqrt(squares[0] / workers) / scale : result->clip_norm;
    result->micro_norm = sqrt(squares[1] / workers) / scale;
    return OK;
}

Status runner_gradients(Runner *runner, HostBatch *const *micros, int count, int64_t step,
                        StepResult *ret_result) {
    TRY(check_sizes(runner, micros, count));
    TRY(set_schedule(runner, &runner->schedule, runner->spec.schedule, count));
    Section section = section_begin(runner);
    int64_t counts[LOSS_COUNT], own[LOSS_COUNT];
    StepResult result = {0};
    if (runner->overlap.on) TRY(overlap_settle(runner));
    TRY(count_terms(runner, micros, count, counts, own, &result.tokens));
    TRY(stream_mark(runner->stream, MARK_STEP));
    TRY(shards_begin(runner->shards));
    if (runner->probe && count * worker_size(runner) > 1)
        TRY(shards_probe(runner->shards, count,
                         rng_mix(rng_key(runner->spec.seed, "sketch", 0).key, (uint64_t)step)));
    memset(runner->unit_adds, 0, (size_t)runner->model->units * sizeof *runner->unit_adds);
    TRY(stream_zero(runner->stream, runner->loss.data, runner->loss.bytes));
    TRY(runner_fp8_begin(runner));
    CLEANUP(mem_freep) int64_t *head_rows = NULL;
    TRY(mem_new((size_t)count, sizeof *head_rows, &head_rows));
    TRY(count_head_rows(runner, micros, count, head_rows));
    Round round = {.micros = micros, .count = count, .train = true, .step = step, .head_rows = head_rows};
    for (int k = 0; k < LOSS_COUNT; k++)
        if (own[k]) round.loss_grad[k] = (float)(loss_weight[k] * runner->loss_scale.scale / (double)own[k]);
    TRY(overlap_begin(runner, runner->shards->probing > 0));
    TRY(runner_run(runner, &runner->schedule, &round));
    TRY(overlap_end(runner));
    TRY(shards_finish(runner->shards));
    TRY(shards_norm_start(runner->shards));
    TRY(stream_mark(runner->stream, MARK_STEP_END));
    TRY(runner_fp8_read(runner));
    double sums[LOSS_COUNT];
    TRY(read_losses(runner, LOSS_COUNT, sums));
    TRY(add_device_time(runner));
    result.loss = loss_objective(sums, counts);
    for (int k = 0; k < LOSS_COUNT; k++) result.part[k] = counts[k] ? sums[k] / (double)counts[k] : 0;
    TRY(read_norms(runner, &result));
    runner->times.schedule_s += section_end(runner, &section, &runner->times.compute_s);
    *ret_result = result;
    return OK;
}

Status runner_update(Runner *runner, int64_t step, double lr, double clip_norm) {
    static const TraceName name = {.name = "update", .category = "optimizer", .color = TRACE_GREEN};
    const OptimSpec *spec = &runner->spec.optim;
    double scale = optim_clip_scale(spec, clip_norm) / runner->loss_scale.scale;
    Section section = section_begin(runner);
    int64_t start = trace_now();
    TRY(overlap_update_begin(runner));
    TRY(stream_mark(runner->stream, MARK_UPDATE));
    TRY(runner_fp8_next(runner));
    TRY(shards_update(runner->shards, &(OptimStep){.number = step, .lr = lr, .grad_scale = scale}));
    TRY(stream_mark(runner->stream, MARK_UPDATE_END));
    overlap_update_end(runner);
    runner->updated = true;
    trace_add(runner->trace, TRACE_COMPUTE, &name, start, trace_now(), 0, 0);
    section_end(runner, &section, &runner->times.update_s);
    return OK;
}

/* fp16: skips the update after an overflow. All ranks see the same norm, so all skip together. */
static Status skip_step(Runner *runner, int64_t step, StepResult *result) {
    loss_scale_next(&runner->loss_scale, true);
    if (runner->loss_scale.scale < 1)
        return FAILED("step %lld: gradients overflow fp16 even at loss scale 1; use {precision} bf16",
                      (long long)step);
    result->skipped = true;
    return OK;
}

bool runner_overflowed(const Runner *runner, const StepResult *result) {
    return runner->spec.dtype == DT_F16 && isfinite(result->loss) && !isfinite(result->grad_norm);
}

Status runner_apply(Runner *runner, int64_t step, double lr, StepResult *result) {
    if (runner_overflowed(runner, result)) return skip_step(runner, step, result);
    TRY(runner_update(runner, step, lr, result->clip_norm));
    if (runner->spec.dtype == DT_F16) loss_scale_next(&runner->loss_scale, false);
    return OK;
}

/* Gradients in int8 change what is sent in the next step, so that they cannot be abandoned. */
void runner_section_begin(Runner *runner) {
    if (runner->residual)
        mesh_section_begin_whole(runner->mesh, runner->spec.stop);
    else
        mesh_section_begin(runner->mesh, runner->spec.stop);
}

Status runner_step(Runner *runner, HostBatch *const *micros, int count, int64_t step, double lr,
                   StepResult *ret_result) {
    StepResult result;
    runner_section_begin(runner);
    TRY(runner_gradients(runner, micros, count, step, &result));
    TRY(mesh_section_end(runner->mesh, &result.stop));
    if (!isfinite(result.loss) || (!isfinite(result.grad_norm) && !runner_overflowed(runner, &result)))
        return DIVERGED("step %lld: training diverged (loss %g, gradient norm %g)", (long long)step,
                        result.loss, result.grad_norm);
    TRY(runner_apply(runner, step, lr, &result));
    TRY(runner_sync(runner, step, false));
    *ret_result = result;
    return OK;
}

/* ---- workers ---- */

Status runner_sync(Runner *runner, int64_t step, bool last) {
    static const TraceName name = {.name = "outer step", .category = "optimizer", .color = TRACE_GREEN};
    if (!runner->outer) return OK;
    TRY(overlap_settle(runner));
    Section section = section_begin(runner);
    int64_t start = trace_now();
    TRY(shards_sync(runner->shards, step, last));
    trace_add(runner->trace, TRACE_COMPUTE, &name, start, trace_now(), 0, 0);
    section_end(runner, &section, &runner->times.update_s);
    return OK;
}

Status runner_use_outer(Runner *runner, bool on) {
    if (!runner->outer || runner->shows_outer == on) return OK;
    runner->shows_outer = on;
    TRY(shards_outer_swap(runner->shards));
    return runner_publish(runner);
}

/* ---- evaluation ---- */

Status runner_eval(Runner *runner, HostBatch *const *batches, int count, double sums[LOSS_COUNT],
                   int64_t counts[LOSS_COUNT], int64_t hits[LOSS_COUNT]) {
    TRY(check_sizes(runner, batches, count));
    TRY(set_schedule(runner, &runner->eval_schedule, SCHEDULE_EVAL, count));
    TRY(overlap_settle(runner));
    TRY(stream_zero(runner->stream, runner->loss.data, runner->loss.bytes));
    CLEANUP(mem_freep) int64_t *head_rows = NULL;
    TRY(mem_new((size_t)count, sizeof *head_rows, &head_rows));
    TRY(count_head_rows(runner, batches, count, head_rows));
    Round round = {.micros = batches, .count = count, .head_rows = head_rows};
    TRY(runner_run(runner, &runner->eval_schedule, &round));
    double added[2 * LOSS_COUNT];
    int64_t terms[LOSS_COUNT], own[LOSS_COUNT], tokens;
    TRY(read_losses(runner, 2 * LOSS_COUNT, added));
    TRY(count_terms(runner, batches, count, terms, own, &tokens));
    for (int k = 0; k < LOSS_COUNT; k++) {
        if (!has_loss(&runner->model->config, k)) continue;
        sums[k] += added[k];
        counts[k] += terms[k];
        if (hits) hits[k] += (int64_t)added[LOSS_COUNT + k];
    }
    return OK;
}

Status runner_hidden(Runner *runner, const HostBatch *batch, Tensor *ret_hidden) {
    HostBatch *const batches[] = {(HostBatch *)batch};
    TRY(check_sizes(runner, batches, 1));
    if (runner->mesh->extent[AXIS_PP] > 1 || runner->mesh->extent[AXIS_TP] > 1)
        return FAILED("internal: hidden states need one stage and one tensor rank");
    TRY(overlap_settle(runner));
    Round round = {.micros = batches, .count = 1};
    Chunk *chunk = &runner->chunk[0];
    MicroBuffers *buffer_set;
    TRY(micro_buffers_open(runner, 0, 0, &buffer_set));
    buffer_set->used = false;
    TRY(host_batch_upload(batch, runner->stream, buffer_set->ids, 0, &buffer_set->data));
    TRY(runner_forward(runner, &round, chunk, buffer_set, chunk->count - 1));
    *ret_hidden = runner_output(runner, chunk, buffer_set, runner_shape(runner, batch->B, batch->T, false),
                                chunk->count - 2);
    return OK;
}

/* The rows that a head reads: all, or the first of each sequence (copied to *ret_buffer). */
static Status output_rows(Runner *runner, Shape shape, Tensor rows, OutputHead head, Buffer *ret_buffer,
                          Tensor *ret_rows) {
    *ret_buffer = (Buffer){0};
    *ret_rows = rows;
    if (head != OUTPUT_NSP && head != OUTPUT_CLASSIFY) return OK;
    size_t row = (size_t)rows.dim[1] * dtype_size(rows.dtype);
    TRY(dev_alloc(runner->device, MEM_SCRATCH, (size_t)shape.B * row, ret_buffer));
    for (int64_t b = 0; b < shape.B; b++)
        TRY(stream_copy(runner->stream, (char *)ret_buffer->data + (size_t)b * row,
                        (char *)rows.data + (size_t)(b * shape.T) * row, row, COPY_ON_DEVICE));
    *ret_rows = tensor_2d(ret_buffer->data, rows.dtype, shape.B, rows.dim[1]);
    return OK;
}

/* The last layer's output, gathered if sequence parallelism has split it. */
static Status gather_hidden(Runner *runner, const Pass *pass, Tensor own, Buffer *ret_workspace,
                            Tensor *ret_rows) {
    Shape shape = pass->shape;
    Tensor gathered, workspace = tensor_3d(NULL, shape.dtype, shape.B, shape.T, runner->model->config.hidden);
    *ret_workspace = (Buffer){0};
    if (shape.sequence) TRY(dev_alloc(runner->device, MEM_SCRATCH, tensor_bytes(workspace), ret_workspace));
    workspace.data = ret_workspace->data;
    TRY(tp_spread(pass->tp, pass->exec, shape.sequence, workspace, own, &gathered));
    *ret_rows = tensor_matrix(gathered);
    return OK;
}

static int64_t output_width(const ModelConfig *config, OutputHead head) {
    if (head == OUTPUT_LM || head == OUTPUT_MLM) return config->vocab;
    return head == OUTPUT_CLASSIFY ? config->labels : 2;
}

bool runner_has_output(const Runner *runner, const Chunk *chunk) {
    return chunk->first + chunk->count == runner->model->count;
}

Status runner_score(Runner *runner, const Round *round, Chunk *chunk, MicroBuffers *buffer_set) {
    CLEANUP(dev_free) Buffer workspace = {0};
    CLEANUP(dev_free) Buffer first = {0};
    CLEANUP(dev_free) Buffer whole = {0};
    CLEANUP(dev_free) Buffer scratch = {0};
    CLEANUP(dev_free) Buffer scores = {0};
    OutputHead head = round->scores->head;
    Pass pass = runner_pass(runner, round, buffer_set);
    Tensor rows;
    TRY(gather_hidden(runner, &pass, runner_output(runner, chunk, buffer_set, pass.shape, chunk->count - 2),
                      &workspace, &rows));
    TRY(output_rows(runner, pass.shape, rows, head, &first, &rows));
    int at = runner->model->count - 1;
    const Block *block = &runner->model->block[at];
    int64_t M = rows.dim[0], K = output_width(&runner->model->config, head);
    TRY(dev_alloc(runner->device, MEM_SCRATCH, output_logits_scratch(block, head, M), &scratch));
    TRY(dev_alloc(runner->device, MEM_SCRATCH, (size_t)(M * K) * sizeof(float), &scores));
    TRY(runner_enter(runner, &pass, at, true, false));
    if (head == OUTPUT_LM || head == OUTPUT_MLM) TRY(runner_gather_pieces(runner, &pass, at, &whole));
    pass.scratch = scratch;
    TRY(output_logits(block, &pass, head, tensor_2d(scores.data, DT_F32, M, K), rows));
    runner_leave(runner, at);
    TRY(stream_copy(runner->stream, round->scores->out, scores.data, scores.bytes, COPY_TO_HOST));
    return stream_sync(runner->stream);
}

Status runner_logits(Runner *runner, const HostBatch *batch, OutputHead head, float *out) {
    HostBatch *const batches[] = {(HostBatch *)batch};
    const ModelConfig *config = &runner->model->config;
    Group *stages = runner->mesh->axis[AXIS_PP];
    if (runner->mesh->extent[AXIS_TP] > 1 && (head == OUTPUT_LM || head == OUTPUT_MLM))
        return FAILED("internal: vocabulary logits require a tensor-parallel size of 1");
    TRY(check_sizes(runner, batches, 1));
    TRY(set_schedule(runner, &runner->eval_schedule, SCHEDULE_EVAL, 1));
    TRY(overlap_settle(runner));
    Scores scores = {.head = head, .out = out};
    Round round = {.micros = batches, .count = 1, .scores = &scores};
    TRY(runner_run(runner, &runner->eval_schedule, &round));
    if (stages->size == 1) return OK;
    /* Broadcast from the stage that has the heads. */
    bool first = head == OUTPUT_NSP || head == OUTPUT_CLASSIFY;
    int64_t root = -1, count = batch->B * (first ? 1 : batch->T) * output_width(config, head);
    for (int i = 0; i < runner->chunks; i++)
        if (runner_has_output(runner, &runner->chunk[i])) root = stages->rank;
    TRY(host_reduce(stages, &root, 1, DT_I64, REDUCE_MAX));
    return host_broadcast(stages, out, (size_t)count * sizeof *out, (int)root);
}
