/* A step on one rank: count the loss terms over all replicas, execute the schedule, compute the gradient
 * norm, judge the step, update. */
#include "train/runner.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "model/head.h"
#include "train/runner_internal.h"

double loss_objective(const double sums[LOSS_COUNT], const int64_t counts[LOSS_COUNT]) {
    double loss = 0;
    for (int i = 0; i < LOSS_COUNT; i++)
        if (counts[i]) loss += loss_weight[i] * sums[i] / (double)counts[i];
    return loss;
}

Group *runner_swap(const Runner *runner) {
    if (runner->spec.cp_mode == CONTEXT_HEADS) return runner->mesh->axis[AXIS_CP];
    return runner->spec.cp_mode == CONTEXT_BOTH ? runner->mesh->swap : NULL;
}

Shape runner_shape(const Runner *runner, int64_t B, int64_t T, bool train) {
    return (Shape){.B = B,
                   .T = T,
                   .tp = runner->mesh->extent[AXIS_TP],
                   .cp = runner->mesh->extent[AXIS_CP],
                   .cp_mode = runner->spec.cp_mode,
                   .cp_heads = runner_swap(runner) ? runner_swap(runner)->size : 1,
                   .ep = runner->mesh->ep,
                   .imbalance = runner->spec.imbalance,
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
                   .mlp_rows = runner->spec.mlp_rows,
                   .whole_blocks = runner->spec.whole_blocks,
                   .recompute = runner->spec.recompute};
}

Shape runner_largest(const Runner *runner) {
    const RunnerSpec *spec = &runner->spec;
    return runner_shape(runner, spec->micro_batch, spec->seq / runner->mesh->extent[AXIS_CP], spec->train);
}

Positions runner_positions(const Runner *runner, int64_t T) {
    return context_positions(&runner->model->config, runner_shape(runner, 1, T, runner->spec.train),
                             runner->mesh->at[AXIS_CP]);
}

bool runner_recomputes(const Runner *runner, int at) {
    return runner->spec.recompute == RECOMPUTE_BLOCK && runner->model->block[at].ops->backward_params;
}

bool runner_saves(const Runner *runner, int at) {
    return runner->spec.train && at >= runner->model->lowest && !runner_recomputes(runner, at);
}

bool runner_defers(const Runner *runner, int at) {
    const Block *block = &runner->model->block[at];
    return block->ops->measure_deferred && block->trained && at >= runner->model->lowest;
}

/* ---- where the time goes ---- */

typedef struct Section {
    double start;
    MeshWaits waits;
} Section;

static Section section_begin(const Runner *runner) {
    return (Section){clock_wall(), mesh_waits(runner->mesh)};
}

/* Adds the section's wait time to times.waited_s and the rest to *busy_s; returns the total. */
static double section_end(Runner *runner, const Section *section, double *busy_s) {
    double seconds = clock_wall() - section->start;
    MeshWaits waits = mesh_waits(runner->mesh);
    *busy_s += seconds;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) {
        double here = waits.axis[axis] - section->waits.axis[axis];
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

Status runner_read_losses(Runner *runner, int count, double *sums) {
    TRY(stream_copy(runner->stream, sums, runner->loss.data, (size_t)count * sizeof(double), COPY_TO_HOST));
    TRY(group_sync(runner->mesh->world, runner->stream));
    TRY(mesh_reduce(runner->mesh, AXES_COPIES, sums, count, DT_F64, REDUCE_SUM));
    return host_reduce(runner->mesh->axis[AXIS_PP], sums, count, DT_F64, REDUCE_SUM);
}

static Status check_size(const Runner *runner, const HostBatch *batch) {
    int64_t B = batch->B, T = batch->T, cp = runner->mesh->extent[AXIS_CP];
    if (B <= runner->spec.micro_batch && T <= runner->spec.seq && T % cp == 0) return OK;
    return FAILED("internal: micro-batch of %lld x %lld; expected at most %lld x %lld, in %lld equal parts",
                  (long long)B, (long long)T, (long long)runner->spec.micro_batch,
                  (long long)runner->spec.seq, (long long)cp);
}

/* Makes *part a part of the size that the batch needs. */
static Status resize_part(HostBatch **part, const HostBatch *batch, int64_t T) {
    const HostBatch *old = *part;
    if (old && old->B == batch->B && old->T == T && old->outputs == batch->outputs) return OK;
    host_batch_freep(part);
    return host_batch_new_part(part, batch, T);
}

Status runner_take_parts(Runner *runner, HostBatch *const *batches, int count, HostBatch *const **ret_parts) {
    int cp = runner->mesh->extent[AXIS_CP];
    for (int i = 0; i < count; i++) TRY(check_size(runner, batches[i]));
    *ret_parts = batches;
    if (cp == 1) return OK;
    if (count > runner->parts) {
        HostBatch **part = NULL;
        TRY(mem_new((size_t)count, sizeof(HostBatch *), &part));
        for (int i = 0; i < runner->parts; i++) part[i] = runner->part[i];
        free(runner->part);
        runner->part = part;
        runner->parts = count;
    }
    for (int i = 0; i < count; i++) {
        TRY(resize_part(&runner->part[i], batches[i], batches[i]->T / cp));
        host_batch_part(runner->part[i], batches[i], runner_positions(runner, batches[i]->T / cp));
    }
    *ret_parts = runner->part;
    return OK;
}

Status runner_count_terms(Runner *runner, HostBatch *const *micros, int count, int64_t counts[LOSS_COUNT],
                          int64_t own[LOSS_COUNT], int64_t *ret_tokens) {
    int64_t all[LOSS_COUNT + 1] = {0};
    bool workers = runner_workers(runner) > 1;
    unsigned losses = heads_traits(runner->model->config.outputs_mask).losses;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < LOSS_COUNT; k++)
            if (losses & 1u << k) all[k] += micros[i]->loss_count[k];
        for (int64_t b = 0; b < micros[i]->B && runner->mesh->at[AXIS_CP] == 0; b++)
            all[LOSS_COUNT] += micros[i]->lens[b];
    }
    if (workers)
        TRY(host_reduce(runner->mesh->shard, all, LOSS_COUNT + 1, DT_I64, REDUCE_SUM));
    else
        TRY(mesh_reduce(runner->mesh, AXES_COPIES, all, LOSS_COUNT + 1, DT_I64, REDUCE_SUM));
    memcpy(own, all, LOSS_COUNT * sizeof *own);
    if (workers) TRY(host_reduce(runner->mesh->replica, all, LOSS_COUNT + 1, DT_I64, REDUCE_SUM));
    memcpy(counts, all, LOSS_COUNT * sizeof *counts);
    *ret_tokens = all[LOSS_COUNT];
    return OK;
}

Status runner_count_head_rows(Runner *runner, HostBatch *const *micros, int count, int64_t *rows) {
    if (!runner->vocab.pieces) return OK;
    for (int i = 0; i < count; i++) rows[i] = host_batch_rows(micros[i]);
    return mesh_reduce(runner->mesh, AXES_COPIES, rows, count, DT_I64, REDUCE_MAX);
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

Status runner_launch(Runner *runner, const Round *round) {
    TRY(shards_begin(runner->shards));
    if (runner->probe && runner_compares(runner, round->count))
        TRY(shards_probe(runner->shards, round->count,
                         rng_mix(rng_key(runner->spec.seed, "sketch", 0).key, (uint64_t)round->step)));
    memset(runner->unit_adds, 0, (size_t)runner->model->units * sizeof *runner->unit_adds);
    TRY(stream_zero(runner->stream, runner->loss.data, runner->loss.bytes));
    TRY(overlap_rows(runner, round));
    TRY(overlap_begin(runner, runner->shards->probing > 0));
    TRY(runner_fp8_begin(runner));
    TRY(runner_balance_begin(runner));
    TRY(runner_run(runner, &runner->schedule, round));
    TRY(overlap_end(runner));
    TRY(shards_finish(runner->shards));
    return shards_norm_start(runner->shards);
}

Status runner_gradients(Runner *runner, HostBatch *const *micros, int count, int64_t step,
                        StepResult *ret_result) {
    TRY(runner_take_parts(runner, micros, count, &micros));
    TRY(runner_set_schedule(runner, &runner->schedule, runner->spec.schedule, count));
    Section section = section_begin(runner);
    int64_t counts[LOSS_COUNT], own[LOSS_COUNT];
    StepResult result = {0};
    for (int i = 0; i < count; i++) *micros[i]->step = step;
    if (runner->overlap.on) TRY(overlap_settle(runner));
    TRY(runner_count_terms(runner, micros, count, counts, own, &result.tokens));
    TRY(stream_mark(runner->stream, MARK_STEP));
    CLEANUP(mem_freep) int64_t *head_rows = NULL;
    TRY(mem_new((size_t)count, sizeof *head_rows, &head_rows));
    TRY(runner_count_head_rows(runner, micros, count, head_rows));
    Round round = {.micros = micros, .count = count, .train = true, .step = step, .head_rows = head_rows};
    for (int k = 0; k < LOSS_COUNT; k++)
        if (own[k]) round.loss_grad[k] = (float)(loss_weight[k] * runner->loss_scale.scale / (double)own[k]);
    runner_balance_grads(runner, &round, result.tokens);
    TRY(runner_launch_or_replay(runner, &round));
    TRY(stream_mark(runner->stream, MARK_STEP_END));
    TRY(runner_fp8_read(runner));
    TRY(runner_balance_read(runner));
    double sums[LOSS_COUNT];
    TRY(runner_read_losses(runner, LOSS_COUNT, sums));
    TRY(add_device_time(runner));
    TRY(runner_balance_sum(runner, result.tokens, &result.experts));
    result.loss = loss_objective(sums, counts);
    for (int k = 0; k < LOSS_COUNT; k++) result.part[k] = counts[k] ? sums[k] / (double)counts[k] : 0;
    TRY(read_norms(runner, &result));
    runner->times.schedule_s += section_end(runner, &section, &runner->times.compute_s);
    *ret_result = result;
    return OK;
}

static Status update(Runner *runner, const StepSpec *step, double clip_norm) {
    static const TraceName name = {.name = "update", .category = "optimizer", .color = TRACE_GREEN};
    const OptimSpec *spec = &runner->spec.optim;
    double scale = optim_clip_scale(spec, clip_norm) / runner->loss_scale.scale;
    Section section = section_begin(runner);
    StreamSpan span;
    TRY(runner_fp8_next(runner));
    TRY(runner_balance_next(runner));
    TRY(overlap_update_begin(runner));
    TRY(stream_span_begin(runner->stream, runner->trace, &span));
    TRY(stream_mark(runner->stream, MARK_UPDATE));
    runner->shards->idle = runner->replay.recording != NULL;
    TRY(shards_update(runner->shards,
                      &(OptimStep){.number = step->number, .lr = step->lr, .grad_scale = scale}));
    TRY(stream_mark(runner->stream, MARK_UPDATE_END));
    TRY(stream_span_end(runner->stream, runner->trace, &span, TRACE_COMPUTE, &name,
                        (int64_t[TRACE_NUMBERS]){0}));
    TRY(overlap_update_end(runner));
    runner->updated = true;
    section_end(runner, &section, &runner->times.update_s);
    return OK;
}

bool runner_overflowed(const Runner *runner, const StepResult *result) {
    return runner->spec.dtype == DT_F16 && isfinite(result->loss) && !isfinite(result->grad_norm);
}

/* fp16: all ranks see the same norm, so all skip the update after an overflow together. */
static Status apply(Runner *runner, const StepSpec *step, StepResult *result) {
    result->skipped = runner_overflowed(runner, result);
    if (!result->skipped) TRY(update(runner, step, result->clip_norm));
    if (runner->spec.dtype == DT_F16) loss_scale_next(&runner->loss_scale, result->skipped);
    if (result->skipped && runner->loss_scale.scale < 1)
        return FAILED("step %lld: gradients overflow fp16 even at loss scale 1; use {precision} bf16",
                      (long long)step->number);
    return OK;
}

static Status judge_finite(Runner *runner, int64_t step, StepResult *result) {
    TRY(mesh_section_end(runner->mesh, &result->stop));
    if (!isfinite(result->loss) || (!isfinite(result->grad_norm) && !runner_overflowed(runner, result)))
        return DIVERGED("step %lld: training diverged (loss %g, gradient norm %g)", (long long)step,
                        result->loss, result->grad_norm);
    return OK;
}

/* Gradients in int8 change what is sent in the next step, so that they cannot be abandoned. */
static void section_of_gradients(Runner *runner) {
    if (runner->residual)
        mesh_section_begin_whole(runner->mesh, runner->spec.stop);
    else
        mesh_section_begin(runner->mesh, runner->spec.stop);
}

Status runner_step(Runner *runner, HostBatch *const *micros, int count, const StepSpec *step,
                   StepResult *ret_result) {
    StepResult result;
    StepAction action = STEP_APPLY;
    section_of_gradients(runner);
    TRY(runner_gradients(runner, micros, count, step->number, &result));
    TRY(step->judge ? step->judge(step->context, &result, &action)
                    : judge_finite(runner, step->number, &result));
    if (action == STEP_APPLY) TRY(apply(runner, step, &result));
    if (action == STEP_SKIP) result.skipped = true;
    if (action != STEP_DROP && step->sync != SYNC_NEVER)
        TRY(runner_sync(runner, step->number, step->sync == SYNC_ALL));
    *ret_result = result;
    return OK;
}

/* ---- workers ---- */

Status runner_sync(Runner *runner, int64_t step, bool all) {
    static const TraceName name = {.name = "outer step", .category = "optimizer", .color = TRACE_GREEN};
    if (!runner->outer) return OK;
    TRY(overlap_settle(runner));
    TRY(runner_settle(runner));
    Section section = section_begin(runner);
    StreamSpan span;
    TRY(stream_span_begin(runner->stream, runner->trace, &span));
    TRY(shards_sync(runner->shards, step, all));
    TRY(stream_span_end(runner->stream, runner->trace, &span, TRACE_COMPUTE, &name,
                        (int64_t[TRACE_NUMBERS]){0}));
    section_end(runner, &section, &runner->times.update_s);
    return OK;
}

Status runner_use_outer(Runner *runner, bool on) {
    if (!runner->outer || runner->shows_outer == on) return OK;
    runner->shows_outer = on;
    TRY(shards_outer_swap(runner->shards));
    return runner_publish(runner);
}
