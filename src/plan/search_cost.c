/* Estimates combine the costs of a single layer with closed-form formulas for sharding, schedules and links.
 * The cost of a layer is the difference between plans of two and three layers, or of more if only some are
 * mixtures of experts; the rest is the cost of the ends (embedding and output head). Layer costs are
 * cached: they depend only on tp, sequence, context and expert parallelism, micro-batch size and recompute
 * mode. */
#include "plan/search_cost.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

void search_costs_done(SearchCosts *costs) {
    free(costs->layer);
    for (int i = 0; costs->partition && i <= costs->model->config.layers; i++) free(costs->partition[i]);
    free(costs->partition);
    *costs = (SearchCosts){0};
}

Status search_costs_init(SearchCosts *ret_costs, const SearchSpec *spec, const Cluster *cluster,
                         const Model *model, int64_t seq) {
    CLEANUP(search_costs_done)
    SearchCosts costs = {.spec = spec, .cluster = cluster, .model = model, .seq = seq};
    TRY(mem_new((size_t)model->config.layers + 1, sizeof *costs.partition, &costs.partition));
    return MOVE(ret_costs, costs);
}

/* ---- cost of a layer ---- */

enum { BASE_LAYERS = 2 };

/* A plan of a model with few layers: one stage, one micro-batch, and as many replicas as divide the experts.
 */
typedef struct FewLayers {
    DryRunRank rank; /* its events are freed */
    ActivationMemory activations;
    StepEstimate time;
} FewLayers;

static Status plan_few(const SearchCosts *costs, const SearchLayout *layout, int64_t layers,
                       FewLayers *ret_few) {
    CLEANUP(plan_done) Plan plan = {0};
    SearchLayout few = *layout;
    few.mesh.dp = few.mesh.pp = few.chunks = few.micros = 1;
    while (mesh_copies(few.mesh) % mesh_experts(few.mesh)) few.mesh.dp++;
    few.zero = 0;
    few.schedule = SCHEDULE_1F1B;
    PlanSpec spec = search_plan_spec(costs->spec, &few);
    spec.config.model.layers = layers;
    spec.config.training.freeze_count = 0; /* layers are alike */
    spec.config.training.lora.targets_count = 0;
    spec.config.training.batch = layout->micro_batch * few.mesh.dp;
    spec.timed = true;
    TRY(plan_init(&plan, &spec));
    TRY(plan_time(&plan, costs->cluster, &ret_few->time));
    if (spec.software) ret_few->activations = software_activations(spec.software, &plan, 0);
    ret_few->rank = plan.stage[0];
    return OK;
}

/* Tensor-parallel communication takes twice as long in the backward pass as in the forward pass. */
static double forward_of(const StepEstimate *time) {
    return time->phase_s[TIME_FORWARD] + time->phase_s[TIME_COMMUNICATION] / 3;
}
static double backward_of(const StepEstimate *time) {
    return time->phase_s[TIME_BACKWARD] + time->phase_s[TIME_RECOMPUTE] +
           time->phase_s[TIME_COMMUNICATION] * 2 / 3;
}

static Status plan_layer(const SearchCosts *costs, const SearchLayout *layout, LayerCost *ret_cost) {
    FewLayers less = {0}, more = {0};
    int64_t step = costs->model->config.sparse_step;
    double layers = step > 1 ? (double)step : 1;
    TRY(plan_few(costs, layout, BASE_LAYERS, &less));
    TRY(plan_few(costs, layout, BASE_LAYERS + (int64_t)layers, &more));
    const DryRunRank *few = &less.rank, *all = &more.rank;
    double kept =
        ((double)all->memory.tag[MEM_ACTIVATIONS] - (double)few->memory.tag[MEM_ACTIVATIONS]) / layers;
    double state = ((double)all->memory.tag[MEM_OPTIMIZER] - (double)few->memory.tag[MEM_OPTIMIZER]) / layers;
    double forward = (forward_of(&more.time) - forward_of(&less.time)) / layers,
           backward = (backward_of(&more.time) - backward_of(&less.time)) / layers;
    double params = (double)(all->params - few->params) / layers,
           experts = (double)(all->experts - few->experts) / layers;
    *ret_cost = (LayerCost){.tp = layout->mesh.tp,
                            .cp = mesh_extent(layout->mesh, AXIS_CP),
                            .cp_heads = layout->mesh.heads,
                            .cp_mode = layout->cp_mode,
                            .ep = mesh_experts(layout->mesh),
                            .sequence = layout->sequence,
                            .micro_batch = layout->micro_batch,
                            .recompute = layout->recompute,
                            .forward_s = forward,
                            .backward_s = backward,
                            .ends_forward_s = forward_of(&less.time) - BASE_LAYERS * forward,
                            .ends_backward_s = backward_of(&less.time) - BASE_LAYERS * backward,
                            .kept = kept,
                            .ends_kept = (double)few->memory.tag[MEM_ACTIVATIONS] - BASE_LAYERS * kept,
                            .scratch = (double)all->memory.tag[MEM_SCRATCH],
                            .params = params,
                            .experts = experts,
                            .ends_params = (double)few->params - BASE_LAYERS * params,
                            .state = state,
                            .ends_state = (double)few->memory.tag[MEM_OPTIMIZER] - BASE_LAYERS * state,
                            .activations = more.activations};
    ret_cost->activations.kept = (more.activations.kept - less.activations.kept) / layers;
    return OK;
}

static bool matches(const LayerCost *cost, const SearchLayout *layout) {
    return cost->tp == layout->mesh.tp && cost->cp == mesh_extent(layout->mesh, AXIS_CP) &&
           cost->cp_mode == layout->cp_mode && cost->cp_heads == layout->mesh.heads &&
           cost->ep == mesh_experts(layout->mesh) && cost->sequence == layout->sequence &&
           cost->micro_batch == layout->micro_batch && cost->recompute == layout->recompute;
}

static Status find_layer(SearchCosts *costs, const SearchLayout *layout, const LayerCost **ret_cost) {
    LayerCost cost;
    for (size_t i = costs->layers; i-- > 0;)
        if (matches(&costs->layer[i], layout)) {
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

static Status find_partition(SearchCosts *costs, int parts, const int **ret_first) {
    if (!costs->partition[parts])
        TRY(runner_partition(costs->model, costs->seq, parts, &costs->partition[parts]));
    *ret_first = costs->partition[parts];
    return OK;
}

/* Layers of the first and the last stage, and the most of any stage in between. */
typedef struct StageLayers {
    double first, last, between;
} StageLayers;

static Status count_layers(SearchCosts *costs, const SearchLayout *layout, StageLayers *ret_layers) {
    const int *first = NULL;
    StageLayers layers = {0};
    int pp = layout->mesh.pp;
    TRY(find_partition(costs, pp * layout->chunks, &first));
    for (int s = 0; s < pp; s++) {
        double blocks = 0;
        for (int c = 0; c < layout->chunks; c++) blocks += first[c * pp + s + 1] - first[c * pp + s];
        if (s == 0) layers.first = blocks - 1 - (pp == 1); /* the first and the last block are the ends */
        if (s == pp - 1) layers.last = blocks - 1 - (pp == 1);
        if (s > 0 && s < pp - 1) layers.between = fmax(layers.between, blocks);
    }
    *ret_layers = layers;
    return OK;
}

/* ---- memory ---- */

static double element_size(const SearchCosts *costs) {
    const char *precision = costs->spec->base.config.device.precision;
    return precision && (!strcmp(precision, "fp32") || !strcmp(precision, "tf32")) ? 4 : 2;
}

/* Whether gathered parameters are kept from forward to backward. */
static bool keeps_params(const SearchCosts *costs, const SearchLayout *layout) {
    return layout->zero == 3 && costs->spec->base.config.run.keep_params;
}

/* Parameters of the largest unit outside the layers (embedding or output). ZeRO-3 gathers a large
 * vocabulary matrix in pieces of about a layer's size. */
static double end_unit(const SearchLayout *layout, const LayerCost *cost) {
    return layout->zero == 3 ? fmin(cost->ends_params, cost->params) : cost->ends_params;
}

/* The part of `bytes` that a rank holds if they are sharded; the fraction `experts` of them over the ranks
 * that have the same experts. */
static double sharded(const SearchLayout *layout, double bytes, double experts) {
    return bytes * (1 - experts + experts * mesh_experts(layout->mesh)) / mesh_copies(layout->mesh);
}

/* Parameters, gradients and optimizer state of a rank, in bytes. `end`: the stage has an end. With ZeRO-2 and
 * -3, the two largest units are unsharded at a time. */
static double state_bytes(const SearchCosts *costs, const SearchLayout *layout, const LayerCost *cost,
                          double layers, bool end) {
    double size = element_size(costs), count = layers * cost->params + end * cost->ends_params;
    double largest = end ? fmax(cost->params, end_unit(layout, cost)) : cost->params;
    double second = layers > 1 || !end ? cost->params : 0;
    double experts = count > 0 ? layers * cost->experts / count : 0, share = sharded(layout, count, experts);
    double state = layers * cost->state + end * cost->ends_state;
    double optimizer = layout->zero >= 1 ? sharded(layout, state, experts) : state;
    double grads = layout->zero >= 2 ? 4 * (share + largest + second) : 4 * count;
    if (layout->zero >= 2 && layout->micros > 1) grads += 8 * sharded(layout, largest, experts);
    double gathered = keeps_params(costs, layout) ? count : largest + second;
    double params = layout->zero == 3 ? size * (share + gathered) : size * count;
    return optimizer + grads + params;
}

/* Micro-batches for which the first stage stores activations at the same time. Interleaved chunks have
 * separate buffers, each as large as it ever needs to be: about 1.5 times the total of a single chunk. */
static double in_flight(const SearchLayout *layout) {
    double p = layout->mesh.pp, m = layout->micros;
    if (layout->schedule == SCHEDULE_GPIPE) return m;
    if (layout->schedule == SCHEDULE_INTERLEAVED) return fmin(m, (layout->chunks % 2 ? 1.6 : 1.5) * p);
    return fmin(m, p);
}

static double message_bytes(const SearchCosts *costs, const SearchLayout *layout) {
    double parts = (layout->sequence ? layout->mesh.tp : 1) * mesh_extent(layout->mesh, AXIS_CP);
    double rows = (double)layout->micro_batch * (double)costs->seq / parts;
    return rows * (double)costs->model->config.hidden * element_size(costs);
}

static double memory_of(const SearchCosts *costs, const SearchLayout *layout, const LayerCost *cost,
                        const StageLayers *layers) {
    bool staged = layout->mesh.pp > 1;
    double rows = message_bytes(costs, layout), held = in_flight(layout), kept = cost->kept;
    /* Gradients kept for the weight-gradient half of backward: the outputs of about nine GEMMs per layer. */
    if (layout->schedule == SCHEDULE_ZERO_BUBBLE && layout->recompute != RECOMPUTE_BLOCK)
        kept += 9 * rows / (layout->sequence ? 1 : layout->mesh.tp);
    double messages = staged ? 4 * rows : 0, inputs = held * rows;
    if (offload_activations(costs->spec->base.config.run.offload)) inputs = OFFLOAD_SLOTS * rows;
    double first = state_bytes(costs, layout, cost, layers->first, true) + messages + inputs +
                   held * layers->first * kept;
    double at_last =
        layout->schedule == SCHEDULE_GPIPE || layout->schedule == SCHEDULE_ZERO_BUBBLE ? held : 1;
    double last = state_bytes(costs, layout, cost, layers->last, true) + messages + cost->ends_kept +
                  at_last * layers->last * kept;
    return fmax(first, last) + cost->scratch;
}

/* The estimate that corresponds to software_memory. */
static double software_memory_of(const SearchCosts *costs, const SearchLayout *layout, const LayerCost *cost,
                                 const StageLayers *layers) {
    const Software *software = costs->spec->base.software;
    const ActivationMemory *activations = &cost->activations;
    double p = layout->mesh.pp, m = layout->micros, v = layout->chunks;
    double at_first = fmin(m, p + (v > 1 ? (p - 1) / v : 0)), at_last = fmin(m, p - (p - 1) / v);
    if (layout->schedule == SCHEDULE_GPIPE) at_first = at_last = m;
    if (layout->schedule == SCHEDULE_ZERO_BUBBLE) at_last = at_first;
    DType dtype = element_size(costs) == 4 ? DT_F32 : DT_F16;
    double busy = fmax(activations->layer, activations->logits);
    double first = software_state(software, dtype, state_bytes(costs, layout, cost, layers->first, true)) +
                   at_first * layers->first * activations->kept + (p > 1 ? activations->layer : busy);
    double last = software_state(software, dtype, state_bytes(costs, layout, cost, layers->last, true)) +
                  at_last * layers->last * activations->kept + busy;
    if (at_last < at_first) return software_held(software, fmax(first, last));
    /* With the same number of micro-batches on all stages, a middle stage with more layers may need the most.
     */
    double state = software_state(software, dtype, state_bytes(costs, layout, cost, layers->between, false));
    double between = state + at_first * layers->between * activations->kept + activations->layer;
    return software_held(software, fmax(fmax(first, last), between));
}

/* ---- time ---- */

/* Seconds for a ring all-gather or reduce-scatter of `bytes` over `size` ranks, `stride` ranks apart. The
 * ranks of a node share its links to other nodes. */
static double ring_seconds(const Cluster *cluster, double bytes, int size, int stride) {
    double per_node = fmax(1, fmin(size, floor(cluster->devices_per_node / stride)));
    bool inside = (double)size * stride <= cluster->devices_per_node;
    double within = cluster->within.bandwidth * cluster->within.share;
    double between = per_node * cluster->between.bandwidth * cluster->between.share;
    double bandwidth = inside || per_node > 1 ? within : between;
    if (!inside) bandwidth = fmin(bandwidth, between);
    double latency = inside ? cluster->within.latency_s : cluster->between.latency_s;
    return size == 1 ? 0 : ceil(log2(size)) * latency + (size - 1) * (bytes / size / bandwidth);
}

/* The same for the values of parameters, over the ranks that have the same ones. */
static double params_seconds(const Cluster *cluster, const SearchLayout *layout, double size, double params,
                             double experts) {
    int copies = mesh_copies(layout->mesh), apart = mesh_apart(layout->mesh, AXES_COPIES),
        ep = mesh_experts(layout->mesh);
    return ring_seconds(cluster, size * (params - experts), copies, apart) +
           ring_seconds(cluster, size * experts, copies / ep, apart * ep);
}

static double message_seconds(const SearchCosts *costs, const SearchLayout *layout) {
    bool inside = 2.0 * mesh_stride(layout->mesh, AXIS_PP) <= costs->cluster->devices_per_node;
    const Link *link = inside ? &costs->cluster->within : &costs->cluster->between;
    return link->latency_s + message_bytes(costs, layout) / link->bandwidth;
}

/* The time that the pipeline takes to fill and drain. With fewer micro-batches than stages, chunks do not
 * help. */
static double bubble_seconds(const SearchLayout *layout, double forward, double backward, double message) {
    double hops = layout->mesh.pp - 1, all = forward + backward,
           short_of = fmax(layout->mesh.pp - layout->micros, 0);
    double each = layout->schedule == SCHEDULE_ZERO_BUBBLE ? forward : all;
    double filling = short_of * all + (hops - short_of) * each / layout->chunks;
    return filling + hops * 2 * message * layout->chunks;
}

/* The time of a stage per micro-batch, including data-parallel communication: ZeRO-3 gathers parameters in
 * every forward and, unless it keeps them, backward; ZeRO-2 and -3 reduce gradients in every backward. */
typedef struct StageTime {
    double forward, backward;
} StageTime;

/* Computation and communication that overlap imperfectly: 40% of the shorter one remains exposed. */
static double overlapped(double a, double b) {
    return fmax(a, b) + 0.4 * fmin(a, b);
}

static StageTime stage_time(const SearchLayout *layout, bool keeps, double forward, double backward,
                            double params_s, double grads_s) {
    StageTime time = {forward, backward};
    double communication = (layout->zero == 3 && !keeps ? params_s : 0) + (layout->zero >= 2 ? grads_s : 0);
    if (layout->zero == 3) time.forward = overlapped(forward, params_s);
    if (layout->zero >= 2) time.backward = overlapped(backward, communication);
    return time;
}

static double time_of(const SearchCosts *costs, const SearchLayout *layout, const LayerCost *cost,
                      const StageLayers *layers) {
    const Cluster *cluster = costs->cluster;
    double max_layers = fmax(fmax(layers->first, layers->last), layers->between), micros = layout->micros;
    double params = layers->first * cost->params + cost->ends_params, experts = layers->first * cost->experts;
    double grads_s = params_seconds(cluster, layout, 4, params, experts);
    double params_s = params_seconds(cluster, layout, element_size(costs), params, experts);
    bool keeps = keeps_params(costs, layout);
    StageTime stage = stage_time(layout, keeps, max_layers * cost->forward_s, max_layers * cost->backward_s,
                                 params_s, grads_s);
    StageTime last = stage_time(layout, keeps, layers->last * cost->forward_s + cost->ends_forward_s,
                                layers->last * cost->backward_s + cost->ends_backward_s, params_s, grads_s);
    double each = fmax(stage.forward + stage.backward, last.forward + last.backward), exposed = 0;
    double updated = layout->zero ? sharded(layout, params, experts / fmax(params, 1)) : params;
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
