#include "plan/search_cost.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

void search_costs_done(SearchCosts *costs) {
    free(costs->layer);
    for (int i = 0; costs->cut && i <= costs->model->config.layers; i++) free(costs->cut[i]);
    free(costs->cut);
    *costs = (SearchCosts){0};
}

Status search_costs_init(SearchCosts *ret_costs, const SearchSpec *spec, const Cluster *cluster,
                         const Model *model, int64_t seq) {
    CLEANUP(search_costs_done)
    SearchCosts costs = {.spec = spec, .cluster = cluster, .model = model, .seq = seq};
    TRY(mem_new((size_t)model->config.layers + 1, sizeof *costs.cut, &costs.cut));
    *ret_costs = costs;
    costs = (SearchCosts){0};
    return OK;
}

/* ---- single layers ---- */

enum { FEW = 2 };

/* One replica's tensor ranks with a few layers, for one micro-batch. */
typedef struct FewLayers {
    DryRunRank rank; /* without its tape */
    Held held;
    StepEstimate time;
} FewLayers;

static Status plan_few(const SearchCosts *costs, const SearchLayout *layout, int64_t layers,
                       FewLayers *ret_few) {
    CLEANUP(plan_done) Plan plan = {0};
    SearchLayout few = *layout;
    few.dp = few.pp = few.chunks = few.micros = 1;
    few.zero = 0;
    few.schedule = SCHEDULE_1F1B;
    PlanSpec spec = search_plan_spec(costs->spec, &few);
    spec.config.layers = layers;
    spec.config.batch = layout->micro_batch;
    spec.timed = true;
    TRY(plan_init(&plan, &spec));
    TRY(plan_time(&plan, costs->cluster, &ret_few->time));
    if (spec.software) ret_few->held = software_held(spec.software, &plan, 0);
    ret_few->rank = plan.stage[0];
    return OK;
}

/* Tensor ranks wait for each other twice as long in the backward pass. */
static double forward_of(const StepEstimate *time) {
    return time->phase_s[PHASE_FORWARD] + time->phase_s[PHASE_COMMUNICATION] / 3;
}
static double backward_of(const StepEstimate *time) {
    return time->phase_s[PHASE_BACKWARD] + time->phase_s[PHASE_RECOMPUTE] +
           time->phase_s[PHASE_COMMUNICATION] * 2 / 3;
}

static Status plan_layer(const SearchCosts *costs, const SearchLayout *layout, LayerCost *ret_cost) {
    FewLayers less = {0}, more = {0};
    TRY(plan_few(costs, layout, FEW, &less));
    TRY(plan_few(costs, layout, FEW + 1, &more));
    const DryRunRank *few = &less.rank, *all = &more.rank;
    double kept = (double)all->memory.tag[MEM_ACTIVATIONS] - (double)few->memory.tag[MEM_ACTIVATIONS];
    double forward = forward_of(&more.time) - forward_of(&less.time),
           backward = backward_of(&more.time) - backward_of(&less.time);
    *ret_cost = (LayerCost){.tp = layout->tp,
                            .sequence = layout->sequence,
                            .micro_batch = layout->micro_batch,
                            .recompute = layout->recompute,
                            .forward_s = forward,
                            .backward_s = backward,
                            .ends_forward_s = forward_of(&less.time) - FEW * forward,
                            .ends_backward_s = backward_of(&less.time) - FEW * backward,
                            .kept = kept,
                            .ends_kept = (double)few->memory.tag[MEM_ACTIVATIONS] - FEW * kept,
                            .scratch = (double)all->memory.tag[MEM_SCRATCH],
                            .params = (double)(all->params - few->params),
                            .ends_params = (double)(few->params - FEW * (all->params - few->params)),
                            .held = more.held};
    ret_cost->held.kept -= less.held.kept;
    return OK;
}

static bool suits(const LayerCost *cost, const SearchLayout *layout) {
    return cost->tp == layout->tp && cost->sequence == layout->sequence &&
           cost->micro_batch == layout->micro_batch && cost->recompute == layout->recompute;
}

static Status find_layer(SearchCosts *costs, const SearchLayout *layout, const LayerCost **ret_cost) {
    LayerCost cost;
    for (size_t i = costs->layers; i-- > 0;)
        if (suits(&costs->layer[i], layout)) {
            *ret_cost = &costs->layer[i];
            return OK;
        }
    TRY(plan_layer(costs, layout, &cost));
    TRY(mem_grow(&costs->layer, &costs->capacity, costs->layers + 1, sizeof *costs->layer));
    costs->layer[costs->layers] = cost;
    *ret_cost = &costs->layer[costs->layers++];
    return OK;
}

/* ---- stages ---- */

static Status find_cut(SearchCosts *costs, int parts, const int **ret_first) {
    if (!costs->cut[parts]) TRY(runner_cut(costs->model, costs->seq, parts, &costs->cut[parts]));
    *ret_first = costs->cut[parts];
    return OK;
}

/* Layers of the first and the last stage, and the most of one between. */
typedef struct StageLayers {
    double first, last, between;
} StageLayers;

static Status count_layers(SearchCosts *costs, const SearchLayout *layout, StageLayers *ret_layers) {
    const int *first = NULL;
    StageLayers layers = {0};
    int pp = layout->pp;
    TRY(find_cut(costs, pp * layout->chunks, &first));
    for (int s = 0; s < pp; s++) {
        double blocks = 0;
        for (int c = 0; c < layout->chunks; c++) blocks += first[c * pp + s + 1] - first[c * pp + s];
        if (s == 0) layers.first = blocks - 1 - (pp == 1); /* blocks 0 and count - 1 are the ends */
        if (s == pp - 1) layers.last = blocks - 1 - (pp == 1);
        if (s > 0 && s < pp - 1) layers.between = fmax(layers.between, blocks);
    }
    *ret_layers = layers;
    return OK;
}

/* ---- memory ---- */

static double element_size(const SearchCosts *costs) {
    const char *precision = costs->spec->base.config.precision;
    return precision && (!strcmp(precision, "fp32") || !strcmp(precision, "tf32")) ? 4 : 2;
}

/* Parameters, gradients and the optimizer's state of a stage. */
static double state_bytes(const SearchCosts *costs, const SearchLayout *layout, const LayerCost *cost,
                          double layers, bool end) {
    const char *offload = costs->spec->base.config.offload;
    bool away = offload && strcmp(offload, "none");
    double size = element_size(costs), count = layers * cost->params + end * cost->ends_params;
    double largest = end ? fmax(cost->params, cost->ends_params) : cost->params;
    double second = layers > 1 || !end ? cost->params : 0, shares = layout->dp;
    double moments = size == 4 ? 8 : 12;
    double optimizer = away ? 0 : moments * count / (layout->zero >= 1 ? shares : 1);
    double grads = layout->zero >= 2 ? 4 * (count / shares + largest + second) : 4 * count;
    if (layout->zero >= 2 && layout->micros > 1) grads += 8 * largest / shares;
    double params = layout->zero == 3 ? size * (count / shares + largest + second) : size * count;
    return optimizer + grads + params;
}

/* The most that writing a checkpoint adds. */
static double saving_bytes(const SearchLayout *layout, const LayerCost *cost) {
    bool parts = layout->tp > 1 || layout->zero >= 1;
    return parts ? 4 * layout->tp * fmax(cost->params, cost->ends_params) : 0;
}

/* Micro-batches that the first stage has room for at once. Chunks have their own, each as much as it ever
 * needs: together about half as much again as one chunk takes. */
static double in_flight(const SearchLayout *layout) {
    double p = layout->pp, m = layout->micros;
    if (layout->schedule == SCHEDULE_GPIPE) return m;
    if (layout->schedule == SCHEDULE_INTERLEAVED) return fmin(m, (layout->chunks % 2 ? 1.6 : 1.5) * p);
    return fmin(m, p);
}

static double message_bytes(const SearchCosts *costs, const SearchLayout *layout) {
    double rows = (double)layout->micro_batch * (double)costs->seq / (layout->sequence ? layout->tp : 1);
    return rows * (double)costs->model->config.hidden * element_size(costs);
}

static double memory_of(const SearchCosts *costs, const SearchLayout *layout, const LayerCost *cost,
                        const StageLayers *layers) {
    bool staged = layout->pp > 1;
    double rows = message_bytes(costs, layout), held = in_flight(layout), kept = cost->kept;
    /* Gradients that wait for the weight halves: of about nine products' outputs in a layer. */
    if (layout->schedule == SCHEDULE_ZERO_BUBBLE && layout->recompute != RECOMPUTE_BLOCK)
        kept += 9 * rows / (layout->sequence ? 1 : layout->tp);
    double messages = staged ? 4 * rows : 0;
    double first = state_bytes(costs, layout, cost, layers->first, true) + messages +
                   held * (layers->first * kept + rows);
    double at_last =
        layout->schedule == SCHEDULE_GPIPE || layout->schedule == SCHEDULE_ZERO_BUBBLE ? held : 1;
    double last = state_bytes(costs, layout, cost, layers->last, true) + messages + cost->ends_kept +
                  at_last * layers->last * kept;
    return fmax(first, last) + cost->scratch + saving_bytes(layout, cost);
}

/* As software_memory has it. */
static double software_memory_of(const SearchCosts *costs, const SearchLayout *layout, const LayerCost *cost,
                                 const StageLayers *layers) {
    const Software *software = costs->spec->base.software;
    const Held *held = &cost->held;
    double p = layout->pp, m = layout->micros, v = layout->chunks;
    double at_first = fmin(m, p + (v > 1 ? (p - 1) / v : 0)), at_last = fmin(m, p - (p - 1) / v);
    if (layout->schedule == SCHEDULE_GPIPE) at_first = at_last = m;
    if (layout->schedule == SCHEDULE_ZERO_BUBBLE) at_last = at_first;
    DType dtype = element_size(costs) == 4 ? DT_F32 : DT_F16;
    double busy = fmax(held->layer, held->logits);
    double first = software_state(software, dtype, state_bytes(costs, layout, cost, layers->first, true)) +
                   at_first * layers->first * held->kept + (p > 1 ? held->layer : busy);
    double last = software_state(software, dtype, state_bytes(costs, layout, cost, layers->last, true)) +
                  at_last * layers->last * held->kept + busy;
    if (at_last < at_first) return fmax(first, last);
    /* Where all stages hold as many, one between the ends may have more layers. */
    double state = software_state(software, dtype, state_bytes(costs, layout, cost, layers->between, false));
    double between = state + at_first * layers->between * held->kept + held->layer;
    return fmax(fmax(first, last), between);
}

/* ---- time ---- */

/* Of a ring over `size` ranks that stand `stride` apart, passing on `bytes` in all. Ranks of a node share
 * what leads out of it, of which each has its part. */
static double ring_seconds(const Cluster *cluster, double bytes, int size, int stride) {
    double here = fmax(1, fmin(size, floor(cluster->devices_per_node / stride)));
    bool inside = (double)size * stride <= cluster->devices_per_node;
    double near_by = cluster->within.bandwidth * cluster->within.share;
    double out = here * cluster->between.bandwidth * cluster->between.share;
    double bandwidth = inside || here > 1 ? near_by : out;
    if (!inside) bandwidth = fmin(bandwidth, out);
    double latency = inside ? cluster->within.latency_s : cluster->between.latency_s;
    return size == 1 ? 0 : ceil(log2(size)) * latency + (size - 1) * (bytes / size / bandwidth);
}

static double message_seconds(const SearchCosts *costs, const SearchLayout *layout) {
    bool inside = (double)layout->dp * layout->tp * 2 <= costs->cluster->devices_per_node;
    const Link *link = inside ? &costs->cluster->within : &costs->cluster->between;
    return link->latency_s + message_bytes(costs, layout) / link->bandwidth;
}

/* The pipeline filling and emptying. With fewer micro-batches than stages, chunks are no help. */
static double bubble_seconds(const SearchLayout *layout, double forward, double backward, double message) {
    double hops = layout->pp - 1, all = forward + backward, short_of = fmax(layout->pp - layout->micros, 0);
    double each = layout->schedule == SCHEDULE_ZERO_BUBBLE ? forward : all;
    double filling = short_of * all + (hops - short_of) * each / layout->chunks;
    return filling + hops * 2 * message * layout->chunks;
}

/* A stage's time for a micro-batch, with what its replicas do meanwhile. Sharded parameters come with every
 * forward and backward, sharded gradients go with every backward. */
typedef struct StageTime {
    double forward, backward;
} StageTime;

/* Neither waits for the other all of the time, nor never. */
static double beside_each_other(double a, double b) {
    return fmax(a, b) + 0.4 * fmin(a, b);
}

static StageTime stage_time(const SearchLayout *layout, double forward, double backward, double params_s,
                            double grads_s) {
    StageTime time = {forward, backward};
    double beside = (layout->zero == 3 ? params_s : 0) + (layout->zero >= 2 ? grads_s : 0);
    if (layout->zero == 3) time.forward = beside_each_other(forward, params_s);
    if (layout->zero >= 2) time.backward = beside_each_other(backward, beside);
    return time;
}

static double time_of(const SearchCosts *costs, const SearchLayout *layout, const LayerCost *cost,
                      const StageLayers *layers) {
    const Cluster *cluster = costs->cluster;
    double most = fmax(fmax(layers->first, layers->last), layers->between), micros = layout->micros;
    double params = layers->first * cost->params + cost->ends_params;
    double grads_s = ring_seconds(cluster, 4 * params, layout->dp, layout->tp);
    double params_s = ring_seconds(cluster, element_size(costs) * params, layout->dp, layout->tp);
    StageTime stage = stage_time(layout, most * cost->forward_s, most * cost->backward_s, params_s, grads_s);
    StageTime last = stage_time(layout, layers->last * cost->forward_s + cost->ends_forward_s,
                                layers->last * cost->backward_s + cost->ends_backward_s, params_s, grads_s);
    double each = fmax(stage.forward + stage.backward, last.forward + last.backward), exposed = 0;
    double updated = params / (layout->zero ? layout->dp : 1);
    if (layout->zero < 2) exposed += fmax(grads_s * (layout->zero ? 1 : 2) - stage.backward, 0);
    if (layout->zero == 1 || layout->zero == 2) exposed += params_s;
    return micros * each + exposed +
           bubble_seconds(layout, stage.forward, stage.backward, message_seconds(costs, layout)) +
           30 * updated / (cluster->memory_bandwidth * cluster->memory_share);
}

Status search_estimate(SearchCosts *costs, SearchLayout *layout) {
    const LayerCost *cost = NULL;
    StageLayers layers = {0};
    TRY(find_layer(costs, layout, &cost));
    TRY(count_layers(costs, layout, &layers));
    layout->bytes =
        (costs->spec->base.software ? software_memory_of : memory_of)(costs, layout, cost, &layers);
    layout->seconds = time_of(costs, layout, cost, &layers);
    return OK;
}
