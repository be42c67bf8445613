/* Roofline estimates: a kernel takes the maximum of its compute and memory time, plus fixed times per launch.
 * Kernels that were measured on the cluster use their curve instead. */
#include "plan/cost.h"

#include <math.h>

#include "plan/software.h"

/* ---- links ---- */

/* The time of an operation on n bytes, divided by n: first for the bytes that a rank moves within its node,
 * then for those that the group's ranks of a node send to other nodes. weft's own collectives sum within a
 * node first (comm/placement.h) and count what they send; NCCL's rings pass all bytes through every rank. */
static double share_within(const Costs *costs, const GroupLink *link, CommKind what) {
    double ranks = costs->cluster->gpu ? link->size : link->per_node;
    if (link->per_node == 1) return 0;
    return comm_info(what)->passes * (ranks - 1) / ranks / link->within;
}

static double share_between(const Costs *costs, const GroupLink *link, CommKind what) {
    double parts = costs->cluster->gpu ? link->size : link->nodes;
    if (link->nodes == 1) return 0;
    return comm_info(what)->passes * (parts - 1) / parts / link->between;
}

/* The link of a group of `size` ranks that are `stride` apart. */
static GroupLink link_of_group(const Costs *costs, int size, double stride) {
    const Link *within = &costs->cluster->within, *between = &costs->cluster->between;
    double node = costs->cluster->devices_per_node;
    double per_node = stride >= node ? 1 : fmin(size, floor(node / stride));
    GroupLink link = {.size = size,
                      .per_node = per_node,
                      .nodes = ceil(size / per_node),
                      .within = within->bandwidth * within->share,
                      .between = per_node * between->bandwidth * between->share};
    link.hops_within = per_node > 1 ? ceil(log2(per_node)) : 0;
    link.hops_between = link.nodes > 1 ? ceil(log2(link.nodes)) : 0;
    bool out = share_between(costs, &link, COMM_ALL_REDUCE) > share_within(costs, &link, COMM_ALL_REDUCE);
    link.port = link.nodes > 1 && (out || per_node == 1) ? PORT_BETWEEN : PORT_WITHIN;
    return link;
}

static Rate rate_of(const Plan *plan) {
    const RunnerSpec *run = &plan->runner;
    if (run->fp8) return RATE_FP8;
    if (plan->tf32) return RATE_TF32;
    return run->dtype == DT_BF16 ? RATE_BF16 : run->dtype == DT_F16 ? RATE_FP16 : RATE_FP32;
}

Costs costs_of(const Plan *plan, const Cluster *cluster) {
    const MeshSpec *mesh = &plan->mesh;
    int shard = mesh_shard(*mesh), ep = mesh_experts(*mesh), same = mesh_experts_shard(*mesh);
    double replica = mesh_apart(*mesh, AXES_COPIES), stage = mesh_stride(*mesh, AXIS_PP);
    Costs costs = {.cluster = cluster,
                   .rate = rate_of(plan),
                   .width = (double)dtype_size(plan->runner.dtype),
                   .host_state = offload_state(plan->runner.offload) != OFFLOAD_NONE};
    costs.channel[CHANNEL_TENSOR] = link_of_group(&costs, mesh->tp, mesh_stride(*mesh, AXIS_TP));
    costs.channel[CHANNEL_CONTEXT] =
        link_of_group(&costs, mesh_extent(*mesh, AXIS_CP), mesh_stride(*mesh, AXIS_CP));
    costs.channel[CHANNEL_SHARD] = link_of_group(&costs, shard, replica);
    costs.channel[CHANNEL_REPLICA] = link_of_group(&costs, mesh_copies(*mesh) / shard, replica * shard);
    costs.channel[CHANNEL_EXPERT] = link_of_group(&costs, ep, replica);
    costs.channel[CHANNEL_EXPERT_SHARD] = link_of_group(&costs, same, replica * ep);
    costs.channel[CHANNEL_EXPERT_REPLICA] =
        link_of_group(&costs, mesh_copies(*mesh) / (ep * same), replica * ep * same);
    costs.channel[CHANNEL_ENDS] = link_of_group(&costs, 2, stage * (mesh->pp - 1));
    costs.channel[CHANNEL_FROM_HOST] = (GroupLink){.size = 1, .nodes = 1, .port = PORT_FROM_HOST};
    costs.channel[CHANNEL_TO_HOST] = (GroupLink){.size = 1, .nodes = 1, .port = PORT_TO_HOST};
    return costs;
}

double cost_launch(const Costs *costs) {
    const Cluster *cluster = costs->cluster;
    return cluster->software.present ? cluster->software.launch_s : cluster->launch_s;
}

static double host_bandwidth(const Costs *costs) {
    return costs->cluster->host.bandwidth * costs->cluster->host.share;
}

/* Other software may reduce gradients of another type. */
static double operation_bytes(const Costs *costs, const StepEvent *event) {
    double bytes = event->bytes;
    if (costs->cluster->software.present &&
        (event->channel == CHANNEL_SHARD || event->channel == CHANNEL_REPLICA ||
         event->channel == CHANNEL_EXPERT_SHARD || event->channel == CHANNEL_EXPERT_REPLICA))
        bytes *= costs->cluster->software.gradient_bytes / sizeof(float);
    return bytes;
}

double cost_sent(const Costs *costs, const StepEvent *event) {
    double size = costs->channel[event->channel].size, bytes = operation_bytes(costs, event);
    if (channel_is_host(event->channel)) return event->bytes;
    double passes = comm_info((CommKind)event->what)->passes;
    return passes > 0 ? passes * bytes * (size - 1) / size : event->size[0] + event->size[1];
}

double cost_operation(const Costs *costs, const StepEvent *event) {
    const GroupLink *link = &costs->channel[event->channel];
    if (channel_is_host(event->channel))
        return costs->cluster->host.latency_s + event->bytes / host_bandwidth(costs);
    double latency = link->hops_within * costs->cluster->within.latency_s +
                     link->hops_between * costs->cluster->between.latency_s;
    CommKind kind = (CommKind)event->what;
    bool counted = comm_info(kind)->passes == 0; /* every rank sends directly */
    if (!counted) latency *= comm_info(kind)->passes;
    if (costs->cluster->software.present && event->channel == CHANNEL_TENSOR && kind == COMM_ALL_REDUCE)
        latency += costs->cluster->software.tensor_wait_s;
    double bytes = operation_bytes(costs, event);
    double within = counted ? event->size[1] / link->within : bytes * share_within(costs, link, kind);
    double between = costs->cluster->gpu && !counted ? bytes * share_between(costs, link, kind)
                                                     : event->size[0] * link->per_node / link->between;
    return latency + fmax(within, between);
}

double cost_message(const Costs *costs, const Plan *plan, int stage, double bytes) {
    const MeshSpec *mesh = &plan->mesh;
    double apart = mesh_stride(*mesh, AXIS_PP), node = costs->cluster->devices_per_node;
    double next = stage + 1 < mesh->pp ? stage + 1 : 0;
    bool same = floor(stage * apart / node) == floor(next * apart / node);
    const Link *link = same ? &costs->cluster->within : &costs->cluster->between;
    /* GPUs have their own ports. CPUs share their node's, with those ranks of the stage that are on it. */
    double alone = same || costs->cluster->gpu ? 1 : node / fmin(apart, node);
    return link->latency_s + bytes / (alone * link->bandwidth * link->share);
}

/* ---- kernels ---- */

double cost_memory(const Costs *costs, double bytes) {
    return bytes / (costs->cluster->memory_bandwidth * costs->cluster->memory_share);
}

double cost_gemm(const Costs *costs, Rate rate, double M, double N, double K) {
    const Cluster *c = costs->cluster;
    return 2 * (M * N + c->product_wave / 2) * (K + c->product_depth) /
           (c->peak_flops[rate] * c->product_share[rate]);
}

/* With fp8, everything but the linear layers is in bf16. */
static Rate plain_rate(const Costs *costs) {
    bool bf16 = costs->rate == RATE_FP8 && costs->cluster->peak_flops[RATE_BF16] > 0;
    return bf16 ? RATE_BF16 : costs->rate;
}

static Cost cost_linear(const Costs *costs, const StepEvent *event) {
    const double *size = event->size;
    double outputs = size[0] * size[1], passes = 0, launches = 1;
    if (event->what == KERNEL_LINEAR_BACKWARD_WEIGHT) {
        passes = size[0] * size[2] * costs->width; /* the bias gradient reads dy */
        launches++;
    } else if ((event->traits & OP_ACT) &&
               !(event->what == KERNEL_LINEAR_BACKWARD_INPUT && plain_rate(costs) == RATE_BF16)) {
        /* GELU is a separate pass; bf16 GEMMs fuse its derivative. */
        passes = 2 * outputs * costs->width;
        launches++;
    }
    double compute = cost_gemm(costs, plain_rate(costs), size[0], size[1], size[2]);
    return (Cost){.device_s = fmax(compute, cost_memory(costs, event->bytes)) + cost_memory(costs, passes),
                  .launches = launches};
}

/* Quantizing to fp8 reads an element and writes it twice, also transposed, unless the previous kernel did.
 * With exact scaling, inputs and weights are first read once more to find the largest magnitude (amax);
 * backward already has the amax of most gradients. */
enum { QUANTIZE_BYTES = 4, AMAX_BYTES = 2 };

static Cost cost_fp8(const Costs *costs, const StepEvent *event) {
    double M = event->size[0], N = event->size[1], K = event->size[2];
    bool backward = event->what == KERNEL_LINEAR_FP8_BACKWARD, exact = !(event->traits & OP_DELAYED);
    double gemms = cost_gemm(costs, RATE_FP8, M, N, K), amax = exact ? AMAX_BYTES : 0;
    double quantize = (QUANTIZE_BYTES + amax) * N * K, launches = exact ? 5 : 3;
    if (!backward && !(event->traits & OP_QUANTIZED)) quantize += (QUANTIZE_BYTES + amax) * M * K;
    if (backward) {
        gemms = cost_gemm(costs, RATE_FP8, M, K, N) + cost_gemm(costs, RATE_FP8, N, K, M);
        quantize = QUANTIZE_BYTES * (M * N) + (QUANTIZE_BYTES + amax) * (N * K);
        launches = exact ? 8 : 5;
    }
    return (Cost){.device_s = gemms + cost_memory(costs, quantize), .launches = launches};
}

/* The time of the Hopper kernels relative to that of their share, which is for 1024 causal positions of width
 * 64. Starting a head, the diagonal and the order of additions cost as much as these additional positions;
 * these figures and those of the width and dropout are from measurements of the kernels alone. */
static double hopper_factor(const StepEvent *event, bool backward) {
    static const double lost[2][2] = {{157, 529}, {505, 980}}; /* forward, backward; bidirectional, causal */
    double heads = event->size[0], T = event->size[1], D = event->size[2];
    bool causal = event->flops < (backward ? 9.9 : 3.9) * heads * T * T * D;
    double factor = (1 + lost[backward][causal] / T) / (1 + lost[backward][true] / 1024);
    if (event->traits & OP_DROPOUT) factor *= backward ? 1.12 : 1.35;
    return D == 128 && !backward ? factor / 1.5 : factor;
}

/* The time of attention relative to that of the kernels that its share was measured with, Hopper's or cuDNN's
 * (kernels/cuda/attention.c chooses). With dropout, it draws masks in the kernel. The portable kernels, which
 * take 8.1 and 20.7 ms forward and backward on an H200 instead of 2.4 and 7.3 ms, replace cuDNN's if there is
 * dropout or cuDNN does not serve the call. */
static double attention_factor(const Costs *costs, const StepEvent *event, bool backward) {
    const Cluster *c = costs->cluster;
    bool hopper = c->capability >= 9 && c->capability < 10, dropout = event->traits & OP_DROPOUT;
    Rate rate = plain_rate(costs);
    double positions = event->size[1], width = event->size[2];
    if (!c->gpu) return 1;
    if (rate != RATE_BF16 && rate != RATE_FP16) return dropout ? 1.4 : 1;
    if (hopper && positions >= 96 && (width == 64 || width == 128)) return hopper_factor(event, backward);
    if (!dropout && !(event->traits & OP_PARTIAL)) return 1;
    return !hopper ? 1.4 : backward ? 2.8 : 3.4;
}

/* Before compute capability 7.5, attention uses no tensor cores; see kernels/cuda/cuda.h. */
static Cost cost_attention(const Costs *costs, const StepEvent *event) {
    const Cluster *c = costs->cluster;
    bool backward = event->what == KERNEL_ATTENTION_BACKWARD;
    bool plain = c->gpu && c->capability > 0 && c->capability < 7.5;
    double peak = c->peak_flops[plain ? RATE_FP32 : plain_rate(costs)];
    double compute = event->flops / (peak * c->attention_share[backward]);
    compute *= attention_factor(costs, event, backward);
    return (Cost){.device_s = fmax(compute, cost_memory(costs, event->bytes)), .launches = backward ? 3 : 1};
}

static Cost cost_plain(const Costs *costs, const StepEvent *event) {
    double bytes = event->bytes, seconds = 0;
    if (kernel_info((KernelId)event->what)->work == KERNEL_WORK_UPDATE) {
        if (costs->host_state) seconds = bytes / host_bandwidth(costs);
        bytes *= 30.0 / 18; /* state is read and written; the event counts it once */
    }
    seconds = fmax(seconds, fmax(cost_memory(costs, bytes), event->flops / costs->cluster->vector_flops));
    return (Cost){.device_s = seconds, .launches = kernel_info((KernelId)event->what)->launches};
}

/* The measured time; false if the kernel was not measured. Measurements run a single replica, whose sum of
 * squares is not split into parts. */
static bool cost_measured(const Costs *costs, const StepEvent *event, Cost *ret_cost) {
    int what = event->what == KERNEL_SUM_SQUARES_PARTS ? KERNEL_SUM_SQUARES : event->what;
    if (event->kind != STEP_KERNEL) return false;
    const KernelCurves *curves = &costs->cluster->kernels[costs->rate];
    const KernelCurve *curve = kernel_curves_find(curves, what, event->traits);
    if (!curve || !curve->count) return false;
    double work = kernel_curve_work(curves, (KernelId)event->what, event->flops, event->bytes, event->size);
    *ret_cost = (Cost){.device_s = kernel_curve_seconds(curve, work), .launches = 1};
    return true;
}

Cost cost_event(const Costs *costs, const StepEvent *event) {
    Cost cost = {.launches = 1};
    if (cost_measured(costs, event, &cost)) {
        cost.device_s += costs->cluster->kernel_s;
        return cost;
    }
    if (event->kind == STEP_ZERO) {
        if (!costs->cluster->software.present) cost.device_s = cost_memory(costs, event->bytes);
    } else if (event->kind == STEP_COPY && event->what == COPY_ON_DEVICE) {
        cost.device_s = cost_memory(costs, 2 * event->bytes);
    } else if (event->kind == STEP_COPY) {
        cost.device_s = costs->cluster->host.latency_s + event->bytes / host_bandwidth(costs);
    } else if (event->kind == STEP_KERNEL && costs->cluster->software.present) {
        cost = software_cost(costs, event);
    } else if (event->kind == STEP_KERNEL) {
        switch (kernel_info((KernelId)event->what)->work) {
        case KERNEL_WORK_MATMUL: cost = cost_linear(costs, event); break;
        case KERNEL_WORK_FP8: cost = cost_fp8(costs, event); break;
        case KERNEL_WORK_ATTENTION: cost = cost_attention(costs, event); break;
        default: cost = cost_plain(costs, event); break;
        }
    }
    cost.device_s += cost.launches * costs->cluster->kernel_s;
    return cost;
}
