/* Costs of other software. GEMMs use the same model as weft's; everything else in a layer is charged to its
 * attention kernel according to the LayerProfile. */
#include "plan/software.h"

#include <math.h>

#include "base/memory.h"

/* ---- time ---- */

/* Attention that materializes the full score matrix: batched GEMMs and passes over the scores in between.
 * Includes all other work of the layer outside of its GEMMs, because a layer has exactly one attention. */
static Cost layer_cost(const Costs *costs, const StepEvent *event) {
    const Software *software = &costs->cluster->software;
    bool backward = event->what == KERNEL_ATTENTION_BACKWARD;
    double heads = event->size[0], T = event->size[1], D = event->size[2],
           scores = heads * T * T * costs->width;
    bool causal = event->flops < (backward ? 9.9 : 3.9) * heads * T * T * D;
    LayerKind kind = causal ? LAYER_CAUSAL : LAYER_BIDIRECTIONAL;
    const LayerProfile *profile = backward ? &software->backward[kind] : &software->forward[kind];
    double part = heads * T * D * costs->width, rows = part * costs->channel[CHANNEL_TENSOR].size;
    double moved = cost_memory(costs, scores + 2 * part);
    double wide = fmax(cost_gemm(costs, costs->rate, heads * T, T, D), moved);
    double deep = fmax(cost_gemm(costs, costs->rate, heads * T, D, T), moved);
    double seconds = backward ? wide + 3 * deep : wide + deep;
    seconds += cost_memory(costs, profile->rows * rows + profile->parts * part);
    seconds += profile->scores * scores / (costs->cluster->memory_bandwidth * software->score_share);
    double stall = profile->stall_s + (event->phase == TIME_RECOMPUTE ? software->recompute_stall_s : 0);
    return (Cost){.device_s = seconds, .launches = profile->launches, .stall_s = stall};
}

Cost software_cost(const Costs *costs, const StepEvent *event) {
    const Software *software = &costs->cluster->software;
    const double *size = event->size;
    Cost cost = {0};
    KernelWork work = kernel_info((KernelId)event->what)->work;
    if (work == KERNEL_WORK_ATTENTION) return layer_cost(costs, event);
    if (work == KERNEL_WORK_MATMUL)
        cost.device_s =
            fmax(cost_gemm(costs, costs->rate, size[0], size[1], size[2]), cost_memory(costs, event->bytes));
    if (work == KERNEL_WORK_UPDATE) {
        cost.device_s = cost_memory(costs, size[0] * software->update_bytes);
        cost.stall_s = size[1] * software->update_stall_s;
    }
    switch (event->what) {
    case KERNEL_XENT_LOSS:
    case KERNEL_XENT_LOSS_FP8:
    case KERNEL_XENT_FINISH:
        cost.device_s = cost_memory(costs, size[0] * size[1] * software->loss_bytes);
        break;
    case KERNEL_EMBEDDING_FORWARD:
    case KERNEL_EMBEDDING_BACKWARD: cost.device_s = cost_memory(costs, event->bytes); break;
    default: break;
    }
    return cost;
}

/* ---- memory ---- */

static void add_layer(ActivationMemory *memory, const Software *software, const Plan *plan,
                      const StepEvent *event) {
    double T = event->size[1], width = (double)dtype_size(plan->runner.dtype);
    double part = event->size[0] * T * event->size[2] * width, rows = part * plan->mesh.tp;
    double scores = event->size[0] * T * T * width;
    memory->layer = software->held_rows * rows + software->held_parts * part + software->held_scores * scores;
    memory->kept += plan->runner.recompute == RECOMPUTE_BLOCK ? rows : memory->layer;
}

ActivationMemory software_activations(const Software *software, const Plan *plan, int stage) {
    const StepEvents *events = &plan->stage[stage].events;
    ActivationMemory memory = {0};
    for (int chunk = 0; chunk < events->chunks; chunk++) {
        EventRange forward =
            *step_events_slot(events, events->computation, ACTION_FORWARD, chunk, MICRO_LAST);
        for (int i = 0; i < forward.count; i++) {
            const StepEvent *event = &events->event[forward.first + i];
            if (event->kind != STEP_KERNEL) continue;
            if (event->what == KERNEL_ATTENTION_FORWARD) add_layer(&memory, software, plan, event);
            if (event->what == KERNEL_XENT_LOSS || event->what == KERNEL_XENT_LOSS_FP8 ||
                event->what == KERNEL_XENT_FINISH)
                memory.logits += event->size[0] * event->size[1] * software->held_logit_bytes;
        }
    }
    return memory;
}

double software_state(const Software *software, DType dtype, double bytes) {
    return bytes * software->held_param_bytes / (dtype == DT_F32 ? 16 : 18);
}

double software_held(const Software *software, double bytes) {
    return fmax(bytes, fmin(bytes * (1 + software->held_fragmentation), software->available));
}

static double stage_memory(const Software *software, const Plan *plan, int stage, const Schedule *schedule) {
    const DryRunRank *rank = &plan->stage[stage];
    const size_t *tag = rank->memory.tag;
    double state = (double)tag[MEM_PARAMS] + (double)tag[MEM_GRADS] + (double)tag[MEM_OPTIMIZER];
    ActivationMemory memory = software_activations(software, plan, stage);
    double buffer_sets = (double)schedule->in_flight / rank->events.chunks;
    return software_state(software, plan->runner.dtype, state) + buffer_sets * memory.kept +
           fmax(memory.layer, memory.logits);
}

Status software_memory(const Software *software, Plan *plan, int micros) {
    const RunnerSpec *run = &plan->runner;
    ScheduleSpec spec = {.kind = run->schedule,
                         .stages = plan->stages,
                         .chunks = run->chunks > 0 ? (int)run->chunks : 1,
                         .micros = micros,
                         .forward_only = plan->forward_only};
    CLEANUP(mem_freep) Schedule *stages = NULL;
    TRY(mem_new((size_t)plan->stages, sizeof *stages, &stages));
    TRY(schedule_init_all(stages, &spec));
    for (int s = 0; s < plan->stages; s++) {
        plan->stage[s].memory.needed =
            (size_t)software_held(software, stage_memory(software, plan, s, &stages[s]));
        schedule_done(&stages[s]);
    }
    return OK;
}
