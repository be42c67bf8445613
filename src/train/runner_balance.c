/* Keeping the experts of mixtures busy alike. The balancing loss weights each expert's probability by the
 * share of tokens that chose it. That share is known only when all micro-batches of all ranks have been
 * routed, so a step uses the one of the step before: an integer sum, the same in every layout. The first step
 * weights all experts alike, which has no gradient. For E experts and N tokens that use K of them, the loss
 * of a layer is E * sum over experts of count / N before * mean probability; it is K if all experts are used
 * alike, as in transformers, and the objective has the mean over layers. The z-loss is the mean of squared
 * log-sum-exps of the router's logits.
 *
 * Kernels count on the device, and the host reads the counts together with the losses. A step that is
 * abandoned or skipped leaves no trace. The counts are part of a checkpoint, so that a resumed run continues
 * with the same bits. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "train/runner_internal.h"

const char *const balance_names[] = {"aux", "none", NULL};

static int64_t layer_count(const Runner *runner) {
    return runner->model->config.layers;
}
static int64_t slot_count(const Runner *runner) {
    return layer_count(runner) * runner->model->config.experts;
}

static double coefficient(const Runner *runner) {
    const RunnerSpec *spec = &runner->spec;
    if (spec->balance == BALANCE_NONE) return 0;
    return spec->balance_coef ? spec->balance_coef : (double)runner->model->config.balance_coef;
}

static Status upload_load(Runner *runner) {
    return stream_copy(runner->stream, runner->balance.load.data, runner->balance.host_load,
                       runner->balance.load.bytes, COPY_TO_DEVICE);
}

/* The weights that follow from the counts of a step with that many tokens; 0: none was done. */
static Status set_load(Runner *runner, int64_t tokens) {
    const ModelConfig *c = &runner->model->config;
    runner->balance.tokens = tokens;
    for (int64_t i = 0; i < slot_count(runner); i++)
        runner->balance.host_load[i] =
            tokens ? (float)((double)c->experts * (double)runner->balance.last[i] / (double)tokens)
                   : (float)c->top_k;
    return upload_load(runner);
}

Status runner_balance_init(Runner *runner) {
    size_t count = (size_t)slot_count(runner);
    size_t totals = (size_t)layer_count(runner) * ROUTE_TOTALS;
    if (!count || !runner->spec.train) return OK;
    TRY(mem_new(count, sizeof *runner->balance.host_load, &runner->balance.host_load));
    TRY(mem_new(count + totals, sizeof *runner->balance.last, &runner->balance.last));
    TRY(mem_new(count + totals, sizeof *runner->balance.now, &runner->balance.now));
    TRY(dev_alloc(runner->device, MEM_OPTIMIZER, count * sizeof(float), &runner->balance.load));
    return dev_alloc(runner->device, MEM_OPTIMIZER, (count + totals) * sizeof(int64_t),
                     &runner->balance.counts);
}

void runner_balance_done(Runner *runner) {
    dev_free(&runner->balance.load);
    dev_free(&runner->balance.counts);
    mem_freep(&runner->balance.host_load);
    mem_freep(&runner->balance.last);
    mem_freep(&runner->balance.now);
}

Status runner_balance_clear(Runner *runner) {
    return runner->balance.load.data ? set_load(runner, 0) : OK;
}

Balance runner_balance_state(const Runner *runner, const Round *round) {
    int64_t layers = layer_count(runner), E = runner->model->config.experts;
    const Buffer *counts = &runner->balance.counts;
    Balance state = {0};
    if (!round->train || !counts->data) return state;
    state.counts = tensor_2d(counts->data, DT_I64, layers, E);
    state.totals = tensor_2d((int64_t *)counts->data + slot_count(runner), DT_F64, layers, ROUTE_TOTALS);
    state.load = tensor_2d(runner->balance.load.data, DT_F32, layers, E);
    state.loss = round->balance_grad;
    state.z = round->z_grad;
    return state;
}

void runner_balance_grads(const Runner *runner, Round *round, int64_t tokens) {
    int64_t layers = config_sparse_layers(&runner->model->config);
    if (!layers || !tokens) return;
    double each = runner->loss_scale.scale * runner_workers(runner) / ((double)layers * (double)tokens);
    round->balance_grad = (float)(coefficient(runner) * each);
    round->z_grad = (float)(runner->spec.z_coef * each);
}

Status runner_balance_begin(Runner *runner) {
    if (!runner->balance.counts.data) return OK;
    return stream_zero(runner_exec(runner)->stream, runner->balance.counts.data,
                       runner->balance.counts.bytes);
}

Status runner_balance_read(Runner *runner) {
    if (!runner->balance.counts.data) return OK;
    return stream_copy(runner->stream, runner->balance.now, runner->balance.counts.data,
                       runner->balance.counts.bytes, COPY_TO_HOST);
}

/* Sums over the ranks that routed other tokens, or are other stages; workers balance on their own. */
static Status reduce(Runner *runner, void *data, int64_t count, DType dtype) {
    if (runner_workers(runner) > 1)
        TRY(host_reduce(runner->mesh->shard, data, count, dtype, REDUCE_SUM));
    else
        TRY(mesh_reduce(runner->mesh, AXES_COPIES, data, count, dtype, REDUCE_SUM));
    return host_reduce(runner->mesh->axis[AXIS_PP], data, count, dtype, REDUCE_SUM);
}

static void describe(const Runner *runner, int64_t tokens, ExpertStats *ret_stats) {
    const ModelConfig *c = &runner->model->config;
    const int64_t *counts = runner->balance.now;
    double totals[ROUTE_TOTALS] = {0}, mean = (double)tokens * (double)c->top_k / (double)c->experts;
    int64_t most = 0, idle = 0, sparse = config_sparse_layers(c);
    for (int64_t layer = 0; layer < c->layers; layer++) {
        if (!config_sparse(c, layer)) continue;
        for (int64_t e = 0; e < c->experts; e++) {
            int64_t count = counts[layer * c->experts + e];
            if (count > most) most = count;
            idle += !count;
        }
        for (int k = 0; k < ROUTE_TOTALS; k++) {
            double total;
            memcpy(&total, &counts[slot_count(runner) + layer * ROUTE_TOTALS + k], sizeof total);
            totals[k] += total / ((double)tokens * (double)sparse);
        }
    }
    *ret_stats = (ExpertStats){.balance = totals[0],
                               .z = totals[1],
                               .entropy = totals[2],
                               .peak = (double)most / mean,
                               .idle = idle,
                               .on = true};
}

Status runner_balance_sum(Runner *runner, int64_t tokens, ExpertStats *ret_stats) {
    int64_t slots = slot_count(runner), totals = layer_count(runner) * ROUTE_TOTALS;
    if (!runner->balance.counts.data || !tokens) return OK;
    int64_t own = tokens / runner_workers(runner);
    TRY(reduce(runner, runner->balance.now, slots, DT_I64));
    TRY(reduce(runner, runner->balance.now + slots, totals, DT_F64));
    describe(runner, own ? own : 1, ret_stats);
    runner->balance.now_tokens = own;
    return OK;
}

Status runner_balance_next(Runner *runner) {
    if (!runner->balance.counts.data || !runner->balance.now_tokens) return OK;
    memcpy(runner->balance.last, runner->balance.now,
           (size_t)slot_count(runner) * sizeof *runner->balance.last);
    return set_load(runner, runner->balance.now_tokens);
}

/* ---- checkpoints ---- */

Status runner_balance_save(const Runner *runner, json_t *progress) {
    if (!runner->balance.tokens) return OK;
    CLEANUP(json_decrefp) json_t *counts = json_array();
    for (int64_t i = 0; i < slot_count(runner); i++)
        if (json_array_append_new(counts, json_integer((json_int_t)runner->balance.last[i])))
            return FAILED("out of memory");
    TRY(json_put(progress, "routed_tokens", json_integer((json_int_t)runner->balance.tokens)));
    return json_put(progress, "expert_counts", json_incref(counts));
}

Status runner_balance_load(Runner *runner, const char *from, const json_t *progress) {
    const json_t *counts = json_object_get(progress, "expert_counts");
    int64_t tokens = 0;
    if (!runner->balance.counts.data) return OK;
    if (!counts) return set_load(runner, 0);
    TRY(json_get_int(progress, from, "routed_tokens", 1, INT64_MAX, &tokens));
    if ((int64_t)json_array_size(counts) != slot_count(runner))
        return FAILED("%s: expert_counts has %zu elements; expected %lld", from, json_array_size(counts),
                      (long long)slot_count(runner));
    for (int64_t i = 0; i < slot_count(runner); i++) {
        json_int_t count = json_integer_value(json_array_get(counts, (size_t)i));
        if (count < 0 || count > tokens)
            return FAILED("%s: expert_counts[%lld] must be a number from 0 to %lld", from, (long long)i,
                          (long long)tokens);
        runner->balance.last[i] = count;
    }
    return set_load(runner, tokens);
}
