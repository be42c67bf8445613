/* Layouts, and how a run in one of them is compared with the reference step (train/step_reference.h). */
#ifndef WEFT_TESTS_TRAIN_COMPARED_H
#define WEFT_TESTS_TRAIN_COMPARED_H

#include <math.h>
#include <stdlib.h>

#include "train/layouts.h"
#include "train/step_reference.h"
#include "verify/cover.h"

enum { STEPS_EXACT = 4, REFERENCE_MICRO = 2 };

/* Later steps execute the same code as the first ones; only rounding errors grow from step to step, so a
 * sample trains for fewer. Equal bits stay equal. */
static inline int compared_steps(void) {
    return SANITIZED ? 4 : getenv("WEFT_TEST_ALL") ? 20 : 6;
}

static inline double relative_diff(double a, double b) {
    return fabs(a - b) / fmax(fabs(b), 1e-30);
}

/* A constant added to all attention keys, or to the scores of all span positions, does not change the output.
 * The gradient of such a bias is rounding noise, which Adam turns into full-size steps. */
static inline bool gradient_is_rounding(const Outcome *outcome, const char *name) {
    bool span = outcome->model->config.outputs_mask == OUTPUT_SPAN;
    return strstr(name, "qkv.bias") || strstr(name, "span.bias") ||
           (span && strcmp(name, "layer.5.norm2.bias") == 0);
}

/* The largest difference between the values that this rank has and those of one rank, relative to the
 * parameter's largest element. */
static inline double max_store_diff(const Outcome *found, const Store *part, const Store *all,
                                    double smallest, const char **ret_name) {
    double max_diff = 0;
    for (int i = 0; i < found->model->units; i++) {
        CLEANUP(mem_freep) float *own = unit_values(part, i), *complete = unit_values(all, i);
        for (size_t j = 0; part->count[i] && j < part->unit[i].count; j++) {
            const ParamSlot *slot = &part->unit[i].slot[j], *whole = &all->unit[i].slot[j];
            const float *global = complete + whole->offset;
            int64_t from, count;
            if (!slot_overlap(slot, part->first[i], part->count[i], &from, &count)) continue;
            const float *local = own + (slot->offset + from - part->first[i]);
            double largest = smallest, worst = 0;
            for (int64_t k = 0; k < whole->count; k++)
                if (fabsf(global[k]) > largest) largest = fabsf(global[k]);
            for (int64_t at = from; at < from + count;) {
                ParamRun piece = slot_run(slot, at, from + count - at);
                for (int64_t k = 0; k < piece.count; k++) {
                    double target = piece.global < 0 ? 0 : global[piece.global + k];
                    double off = fabs(local[at - from + k] - target);
                    if (!(off <= worst)) worst = off;
                }
                at += piece.count;
            }
            bool idle = gradient_is_rounding(found, slot->desc.name);
            if (!idle && worst > max_diff * largest) max_diff = worst / largest, *ret_name = slot->desc.name;
        }
    }
    return max_diff;
}

static inline double max_weight_diff(const Outcome *found, const Outcome *expected, const char **ret_name) {
    return max_store_diff(found, found->runner->params, expected->runner->params, 1e-3, ret_name);
}

/* A job's run on one rank, by the reference step. Only the norms of micro-batches, which it does not
 * estimate, are the runner's. */
static inline Outcome reference_run(Group *world, const Layout *layout, int steps) {
    Outcome outcome = run(world, layout, steps);
    Reference *reference = NULL;
    HostBatch *micro[BATCH];
    int count = outcome.runner->spec.micros;
    assert_ok(reference_new(&reference, outcome.model, outcome.device, &outcome.runner->spec));
    assert_ok(store_init_params(reference->params, reference->exec.stream, TRIAL_SEED));
    for (int step = 0; step < steps; step++) {
        StepResult result;
        assert_ok(trial_micros(&outcome.trial, 0, step, micro));
        assert_ok(reference_step(reference, micro, count, step + 1, trial_lr(layout), &result));
        outcome.loss[step] = result.loss;
        outcome.norm[step] = result.grad_norm;
        if (step + 1 == steps) assert_ok(reference_eval(reference, micro, count, &outcome.eval));
        for (int i = 0; i < count; i++) host_batch_free(micro[i]);
    }
    for (int u = 0; steps && u < outcome.model->units; u++) {
        CLEANUP(mem_freep) float *values = unit_values(reference->params, u);
        unit_set_values(outcome.runner->params, u, values);
    }
    reference_free(reference);
    return outcome;
}

/* Whether a layout's micro-batches are those of the reference: ranks with different experts compute one
 * together. */
static inline bool same_micros(const Layout *layout) {
    int joined = mesh_experts(layout->mesh) / mesh_extent(layout->mesh, AXIS_CP);
    bool alone = joined <= 1, all = layout->mesh.dp * layout->micro_batch == BATCH;
    return (alone ? 1 : joined) * layout->micro_batch == REFERENCE_MICRO && (alone || all);
}

/* Runs a layout and compares it with one rank. */
static inline Outcome run_checked(Group *world, const Layout *layout, const Outcome *expected) {
    const int steps = compared_steps();
    Outcome found = run(world, layout, steps);
    for (int step = 0; step < steps; step++)
        if (!(relative_diff(found.loss[step], expected->loss[step]) <= 1e-5) ||
            !(relative_diff(found.norm[step], expected->norm[step]) <= 1e-3))
            fail_msg("%s: step %d: loss %.9g, norm %.9g; on one rank %.9g, %.9g", layout_text(layout),
                     step + 1, found.loss[step], found.norm[step], expected->loss[step],
                     expected->norm[step]);
    bool same = same_micros(layout);
    for (int step = 0; same && step < steps; step++)
        if (!(relative_diff(found.micro_norm[step], expected->micro_norm[step]) <= 1e-3))
            fail_msg("%s: step %d: micro-batches: norm %.9g, on one rank %.9g", layout_text(layout), step + 1,
                     found.micro_norm[step], expected->micro_norm[step]);
    if (!(relative_diff(found.eval, expected->eval) <= 1e-5))
        fail_msg("%s: evaluation loss %.9g, on one rank %.9g", layout_text(layout), found.eval,
                 expected->eval);
    const char *name = "";
    double max_diff = max_weight_diff(&found, expected, &name);
    /* Losses agree to 1e-5, but AdamW divides a tiny gradient by its own size, and with it its rounding
     * error. */
    if (!(max_diff <= 5e-4))
        fail_msg("%s: %s differs by %g from one rank", layout_text(layout), name, max_diff);
    return found;
}

/* Whether this rank has the same bits of all weights that it updates as another run in the same layout. */
static inline bool same_shards(const Outcome *found, const Outcome *expected) {
    const Store *own = found->runner->params, *other = expected->runner->params;
    bool same = true;
    for (int i = 0; i < own->model->units; i++) {
        CLEANUP(mem_freep) float *a = unit_values(own, i), *b = unit_values(other, i);
        same &= own->first[i] == other->first[i] && own->count[i] == other->count[i] &&
                !memcmp(a, b, (size_t)own->count[i] * sizeof *a);
    }
    return same;
}

/* ---- layouts ---- */

/* The schedules that work with `pp` stages; returns their number. */
static inline int schedules_of(int pp, Layout out[8]) {
    int count = 0;
    if (pp == 1) {
        out[count++] = (Layout){.schedule = SCHEDULE_1F1B, .chunks = 1};
        return count;
    }
    out[count++] = (Layout){.schedule = SCHEDULE_1F1B, .chunks = 1};
    out[count++] = (Layout){.schedule = SCHEDULE_GPIPE, .chunks = 1};
    out[count++] = (Layout){.schedule = SCHEDULE_ZERO_BUBBLE, .chunks = 1};
    if (pp * 2 <= 8) out[count++] = (Layout){.schedule = SCHEDULE_INTERLEAVED, .chunks = 2};
    return count;
}

/* The values of all axes but the grid's: their number, and the layout of one. */
static inline int options_of(MeshSpec mesh) {
    Layout schedules[8];
    int modes = mesh.cp == 1 ? 1 : mesh.cp > 2 ? CONTEXT_BOTH : CONTEXT_RING;
    return schedules_of(mesh.pp, schedules) * 4 * 3 * 2 * 2 * modes;
}

/* False if there is none. */
static inline bool layout_at(MeshSpec mesh, int job, int at, Layout *ret_layout) {
    Layout schedules[8];
    int kinds = schedules_of(mesh.pp, schedules), modes = options_of(mesh) / (kinds * 4 * 3 * 2 * 2);
    Layout layout = schedules[at % kinds];
    layout.job = job;
    layout.mesh = mesh;
    layout.zero = at / kinds % 4;
    layout.recompute = (Recompute)(at / kinds / 4 % 3);
    layout.mlp_rows = 5;
    layout.sequence = at / kinds / 12 % 2;
    layout.micro_batch = 1 + at / kinds / 24 % 2;
    layout.keep = layout.zero == 3 && at % 2;
    layout.cp_mode = mesh.cp > 1 ? (ContextMode)(CONTEXT_HEADS + at / kinds / 48 % modes) : CONTEXT_AUTO;
    layout.mesh.heads = layout.cp_mode == CONTEXT_BOTH ? 2 : 0;
    int micros = BATCH / mesh.dp / layout.micro_batch;
    *ret_layout = layout;
    if (micros < 1 || (layout.sequence && mesh.tp == 1) || !trial_splits_context(&layout)) return false;
    return layout.schedule != SCHEDULE_INTERLEAVED || micros % mesh.pp == 0;
}

#endif
