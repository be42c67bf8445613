#include "plan/time.h"

#include "base/memory.h"

const char *time_phase(TimePhase phase) {
    static const char *const names[PHASE_COUNT] = {"forward",       "recompute", "backward",
                                                   "communication", "bubble",    "optimizer"};
    return names[phase];
}

static Rate rate_of(const RunnerSpec *run) {
    return run->fp8                ? RATE_FP8
           : run->dtype == DT_BF16 ? RATE_BF16
           : run->dtype == DT_F16  ? RATE_FP16
                                   : RATE_FP32;
}

Status plan_time(const Plan *plan, const Cluster *cluster, PlanTime *ret_time) {
    PlanTime time = {0};
    const RunnerSpec *run = &plan->runner;
    const MeshSpec *mesh = &plan->mesh;
    Rate rate = rate_of(run);
    double tokens = (double)plan->batch * (double)plan->seq, ranks = (double)mesh->dp * mesh->tp * mesh->pp;
    double scores =
        2.0 * (double)plan->model.layers * (double)config_attention(&plan->model) * (double)plan->seq;
    double forward = tokens * (2 * (double)plan->params_total + scores);
    double speed = cluster->peak_flops[rate] * cluster->product_share[rate] * ranks;
    time.model_flops = 3 * forward;
    time.phase_s[PHASE_FORWARD] = forward / speed;
    time.phase_s[PHASE_BACKWARD] = 2 * forward / speed;
    if (run->recompute == RECOMPUTE_BLOCK) time.phase_s[PHASE_RECOMPUTE] = forward / speed;
    double busy = time.phase_s[PHASE_FORWARD] + time.phase_s[PHASE_BACKWARD] + time.phase_s[PHASE_RECOMPUTE];
    time.phase_s[PHASE_BUBBLE] = busy * (mesh->pp - 1) / run->micros / (run->chunks ? run->chunks : 1);
    uint64_t most = 0;
    for (int s = 0; s < plan->stages; s++) {
        uint64_t sent = 0;
        for (int k = 0; k < COMM_KINDS; k++) sent += plan->stage[s].sent[k];
        if (sent < most) continue;
        most = sent;
        for (int k = 0; k < COMM_KINDS; k++) time.sent[k] = (double)plan->stage[s].sent[k];
    }
    const Link *link = ranks > cluster->devices_per_node ? &cluster->between : &cluster->within;
    time.phase_s[PHASE_COMMUNICATION] = (double)most / (link->bandwidth * link->share);
    double kept = (double)plan->stage[0].kept;
    time.phase_s[PHASE_OPTIMIZER] = 30 * kept / (cluster->memory_bandwidth * cluster->memory_share);
    for (TimePhase phase = 0; phase < PHASE_COUNT; phase++) time.step_s += time.phase_s[phase];
    time.samples_per_s = (double)plan->batch / time.step_s;
    time.tokens_per_s = tokens / time.step_s;
    time.mfu = time.model_flops / time.step_s / (ranks * cluster->peak_flops[rate]);
    time.bubble = time.phase_s[PHASE_BUBBLE] / time.step_s;
    *ret_time = time;
    return OK;
}

Status time_json(const PlanTime *time, json_t *json) {
    CLEANUP(json_decrefp) json_t *phases = json_object();
    for (TimePhase phase = 0; phase < PHASE_COUNT; phase++)
        json_object_set_new(phases, time_phase(phase), json_real(1e3 * time->phase_s[phase]));
    CLEANUP(json_decrefp)
    json_t *more =
        json_pack("{s:f, s:O, s:f, s:f, s:f, s:f, s:f}", "step_ms", 1e3 * time->step_s, "phases_ms", phases,
                  "samples_per_s", time->samples_per_s, "tokens_per_s", time->tokens_per_s, "model_flops",
                  time->model_flops, "mfu", time->mfu, "bubble", time->bubble);
    if (!more || json_object_update(json, more) != 0) return FAILED("out of memory while writing the plan");
    return OK;
}
