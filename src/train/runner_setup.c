/* Setup of a runner. Memory is allocated once, from the sizes that blocks report; only the kernels' workspace
 * still grows during the first step. */
#include <stdlib.h>

#include "base/format.h"
#include "comm/mpi.h"
#include "model/rope.h"
#include "train/runner_internal.h"

/* Finds the units that this stage's blocks use. A unit used by both the first and the last stage (tied
 * embeddings) is a twin: the two copies are kept equal, and only the first counts in norms. Units of experts
 * have the groups `experts`. */
static void find_unit_uses(Runner *runner, UnitUse *use, const ShardGroups *experts) {
    const Model *model = runner->model;
    for (int i = 0; i < model->units && runner->mesh->ep > 1; i++)
        if (model->unit[i].count && model->unit[i].desc[0].expert) use[i].groups = experts;
    bool piped = runner->mesh->extent[AXIS_PP] > 1;
    for (int c = 0; c < runner->chunks; c++)
        for (int at = runner->chunk[c].first; at < runner->chunk[c].first + runner->chunk[c].count; at++) {
            const Block *block = &model->block[at];
            for (int i = 0; i < block->units; i++) {
                int unit = block->unit[i];
                bool shared = model->unit[unit].desc[0].shared;
                if (!use[unit].held || at < use[unit].block) use[unit].block = at;
                use[unit].held = true;
                use[unit].twin = shared && piped;
                use[unit].counted = use[unit].counted || !shared || !piped || at == 0;
                runner->unit_users[unit]++;
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

/* The embedding matrix, if it is a unit; else -1. */
static int embedding_unit(const Runner *runner) {
    const Block *block = &runner->model->block[0];
    for (size_t i = 0; i < block->params.count; i++) {
        const Unit *unit = &runner->shards->unit[block->ref[i].unit].layout;
        if (param_is_vocab_matrix(&block->params.desc[i]) && unit->count == 1) return block->ref[i].unit;
    }
    return -1;
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
    if (kind == VIEW_PARAMS) {
        Values values = shard_values(shards, unit);
        return tensor_1d(values.data, values.rest ? DT_BF16 : values.dtype, shards->unit[unit].count);
    }
    if (kind == VIEW_OUTER) return shard_outer(shards, unit);
    if (!shard_trains(shards, unit)) return tensor_1d(NULL, DT_F32, 0);
    if (kind == VIEW_GRADS) return shard_gradient(shards, unit);
    if (kind == VIEW_OUTER_MOMENTUM) return shard_outer_momentum(shards, unit);
    if (kind == VIEW_OUTER_GRAD) return shard_outer_grad(shards, unit);
    if (kind == VIEW_RESIDUAL) {
        *ret_first = 0;
        return shard_residual(shards, unit);
    }
    return shard_state(shards, unit, kind - VIEW_STATE, ret_first);
}

static Status make_views(Runner *runner, Store **ret_store, int kind) {
    CLEANUP(mem_freep) UnitSpec *spec = NULL;
    TRY(mem_new((size_t)runner->model->units, sizeof *spec, &spec));
    for (int i = 0; i < runner->model->units; i++) spec[i] = shard_layout(runner->shards, i);
    TRY(store_new_borrowed(ret_store, runner->model, spec, DT_F32));
    Store *store = *ret_store;
    for (int i = 0; i < runner->model->units; i++) {
        if (!runner->shards->unit[i].held) continue;
        Tensor data = view_of(runner->shards, i, kind, &store->first[i]);
        store->flat[i] = (Buffer){.data = data.data, .bytes = tensor_bytes(data), .device = runner->device};
        store->count[i] = tensor_count(data);
        Values values = shard_values(runner->shards, i);
        if (kind == VIEW_PARAMS && runner->shards->unit[i].in_blocks) {
            if (!store->codes)
                TRY(mem_new((size_t)runner->model->units, sizeof *store->codes, &store->codes));
            store->codes[i].values = shard_codes(runner->shards, i, &store->codes[i].count);
        }
        if (kind == VIEW_PARAMS && values.dtype != DT_F32) {
            if (!store->rounded)
                TRY(mem_new((size_t)runner->model->units, sizeof *store->rounded, &store->rounded));
            store->rounded[i] = values.dtype;
        }
        if (kind != VIEW_PARAMS || !values.rest) continue;
        if (!store->rest) TRY(mem_new((size_t)runner->model->units, sizeof *store->rest, &store->rest));
        store->rest[i] = (Buffer){.data = values.rest, .bytes = tensor_bytes(data), .device = runner->device};
    }
    return store_bind(store);
}

int runner_workers(const Runner *runner) {
    return runner->spec.outer.every ? runner->mesh->replica->size : 1;
}

int runner_worker_size(const Runner *runner) {
    return runner->mesh->extent[AXIS_DP] / runner_workers(runner);
}

/* Those of context parallelism and those that exchange tokens, where the larger ones contain the others. */
static Group *runner_parts(const Mesh *mesh) {
    Group *cp = mesh->axis[AXIS_CP];
    return mesh->ep > cp->size ? mesh->expert : cp;
}

int runner_joined(const Runner *runner) {
    return runner_parts(runner->mesh)->size / runner->mesh->extent[AXIS_CP];
}

bool runner_compares(const Runner *runner, int micros) {
    return runner->spec.noise && micros * runner_worker_size(runner) / runner_joined(runner) > 1;
}

static int micros_of_step(const RunnerSpec *spec) {
    int micros = spec->step_micros ? spec->step_micros : spec->micros;
    return micros ? micros : 1;
}

/* The size of a micro-batch's sketch, from figures that are the same in every layout: the more micro-batches
 * a step has, the less precise each sketch needs to be, and for small models a large one would cost more than
 * reading the gradients. All sketches of a replica together usually take at most 2 MB. */
static int64_t sketch_size(const Runner *runner) {
    const RunnerSpec *spec = &runner->spec;
    enum { LARGEST = 1 << 15, SMALLEST = 1 << 11, ALL = 1 << 18, SMALL_MODEL = 1 << 8 };
    int64_t micros = (int64_t)micros_of_step(spec) * runner_worker_size(runner), size = LARGEST, params = 0;
    if (!spec->train || !spec->noise || micros < 2) return 0;
    for (ModelParam param = {0}; model_param_next(runner->model, &param);) params += param_count(param.desc);
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
    TRY(mem_new(max_params, sizeof *runner->grad_unwritten, &runner->grad_unwritten));
    const ShardGroups experts = {
        .shard = mesh->expert_shard, .replica = mesh->expert_replica, .others = mesh->expert};
    find_unit_uses(runner, use, &experts);
    ShardSpec shard = {.train = spec->train,
                       .rounded = spec->train && model->config.lora.rank && !spec->outer.every,
                       .base = spec->train && model->config.lora.rank ? spec->base : BLOCKS_NONE,
                       .sequence = runner_shape(runner, 1, 1, true).sequence,
                       .dtype = spec->dtype,
                       .offload = offload_state(spec->offload),
                       .from_host = runner->from_host,
                       .data = {.shard = mesh->shard, .replica = mesh->replica},
                       .tp = mesh->axis[AXIS_TP],
                       .model = mesh->model,
                       .parts = runner_parts(mesh),
                       .ends = mesh->ends,
                       .sketch = sketch_size(runner),
                       .micros = micros_of_step(spec),
                       .optim = spec->optim,
                       .grad_type = spec->grad_type,
                       .by_unit = runner_updates_by_unit(runner),
                       .outer = spec->outer};
    /* A single rank has nothing to shard. Offloaded parameters are fetched and released like ZeRO-3 shards.
     */
    shard_stage(&shard, shard.offload == OFFLOAD_PARAMS ? 3 : mesh->shard->size > 1 ? (int)spec->zero : 0);
    if (shard.params) TRY(piece_size(runner, &shard.piece));
    TRY(shards_new(&runner->shards, &runner->exec, &shard, model->unit, use, model->units));
    note_pieces(runner);
    runner->rows.unit = embedding_unit(runner);
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
    Shape shape = runner_largest(runner);
    size_t scratch = 0, shared = 0;
    for (int c = 0; c < runner->chunks; c++)
        for (int i = 0; i < runner->chunk[c].count; i++) {
            int at = runner->chunk[c].first + i;
            size_t saved_bytes, scratch_bytes;
            runner->model->block[at].ops->measure(&runner->model->block[at], shape, &saved_bytes,
                                                  &scratch_bytes);
            if (scratch_bytes > scratch) scratch = scratch_bytes;
            if (!runner_saves(runner, at) && saved_bytes > shared) shared = saved_bytes;
        }
    TRY(dev_alloc(runner->device, MEM_ACTIVATIONS, shared, &runner->shared));
    TRY(dev_alloc(runner->device, MEM_SCRATCH, scratch, &runner->scratch));
    TRY(rope_table_new(&runner->model->config, spec->seq, runner->device, runner->stream, &runner->rope,
                       &runner->rope_table));
    return dev_alloc(runner->device, MEM_ACTIVATIONS, 2 * LOSS_COUNT * sizeof(double), &runner->loss);
}

Status runner_set_schedule(Runner *runner, Schedule *schedule, ScheduleKind kind, int micros) {
    int stages = runner->mesh->extent[AXIS_PP];
    if (schedule->action && schedule->spec.micros == micros) return OK;
    schedule_done(schedule);
    /* With one stage, 1F1B needs the least memory and costs nothing. */
    if (stages == 1 && kind != SCHEDULE_EVAL) kind = SCHEDULE_1F1B;
    ScheduleSpec spec = {.kind = kind, .stages = stages, .chunks = runner->chunks, .micros = micros};
    if (kind != SCHEDULE_EVAL) spec.forward_only = runner->forward_only;
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
    runner->inbox = runner->stream;
    if (runner->mesh->extent[AXIS_PP] > 1 && device_overlaps(device) && !device_is_dryrun(device))
        TRY(stream_new(&runner->inbox, device));
    runner->exec = (Exec){.stream = runner->stream, .table = spec->table};
    TRY(group_connect(runner->mesh->axis[AXIS_CP], EVERY_RANK));
    TRY(group_connect(runner->mesh->swap, EVERY_RANK));
    TRY(group_connect(runner->mesh->ring, EVERY_RANK));
    TRY(group_connect(runner->mesh->expert, EVERY_RANK));
    TRY(runner_chunks_init(runner));
    TRY(offload_init(runner));
    TRY(alloc_units(runner));
    TRY(runner_fp8_init(runner));
    TRY(runner_balance_init(runner));
    TRY(alloc_scratch(runner));
    TRY(overlap_init(runner));
    TRY(replay_init(runner));
    if (spec->train)
        TRY(runner_set_schedule(runner, &runner->schedule, spec->schedule, spec->micros ? spec->micros : 1));
    TRY(runner_set_schedule(runner, &runner->eval_schedule, SCHEDULE_EVAL, 1));
    TRY(check_host(runner));
    TRY(shards_clear(runner->shards));
    TRY(runner_balance_clear(runner));
    return MOVE(ret_runner, runner);
}

void runner_free(Runner *runner) {
    if (!runner) return;
    /* After a failure other ranks may still be sending to buffers that are freed below. */
    if (runner->mesh) mesh_drop(runner->mesh);
    /* The last update may still be running. */
    if (runner->overlap.chain) status_free(stream_sync(runner->overlap.chain));
    if (runner->stream) status_free(stream_sync(runner->stream));
    offload_done(runner);
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
    for (int i = 0; i < RECEIVED_COUNT; i++) dev_free(&runner->received[i]);
    free(runner->param_base);
    free(runner->grad_base);
    free(runner->param_view);
    free(runner->grad_view);
    free(runner->grad_unwritten);
    free(runner->unit_users);
    free(runner->unit_adds);
    for (int i = 0; i < runner->parts; i++) host_batch_free(runner->part[i]);
    free(runner->part);
    free(runner->fp8.host_scale);
    free(runner->fp8.host_amax);
    runner_balance_done(runner);
    schedule_done(&runner->schedule);
    schedule_done(&runner->eval_schedule);
    replay_done(runner);
    overlap_done(runner);
    if (runner->inbox != runner->stream) stream_free(runner->inbox);
    stream_free(runner->stream);
    mesh_free(runner->own_mesh);
    free(runner);
}

Status runner_publish(Runner *runner) {
    TRY(overlap_settle(runner));
    return shards_publish(runner->shards);
}
