#include "plan/plan.h"

#include <string.h>

#include "plan/software.h"
#include "train/job.h"

enum {
    MOST_RANKS = 1 << 20,
    MOST_MICROS = 1 << 16,
    EVAL_MICROS = 4 /* of an evaluation, for each stage; see job_evaluate */,
    EVAL_LIMIT = 64,
};

void plan_done(Plan *plan) {
    for (int s = 0; plan->stage && s < plan->stages; s++) dryrun_rank_done(&plan->stage[s]);
    free(plan->stage);
    *plan = (Plan){0};
}

static Status check_ranks(MeshSpec mesh) {
    double ranks = (double)mesh.dp * mesh.tp * mesh.pp;
    if (ranks > MOST_RANKS)
        return USAGE("dp %d x tp %d x pp %d makes %.0f ranks, expected at most %d", mesh.dp, mesh.tp, mesh.pp,
                     ranks, MOST_RANKS);
    return OK;
}

/* Sizes are added up as whole numbers of bytes: what could not be held by any machine is refused here, with a
 * wide margin below what would overflow. */
static Status check_sizes(const Job *job) {
    const double most = 0x1p58;
    const ModelConfig *c = &job->model->config;
    const RunnerSpec *run = &job->plan;
    double params = (double)model_params(job->model), tokens = (double)run->micro_batch * (double)job->seq;
    if (20 * params > most)
        return USAGE("a model of %.3g parameters cannot be planned, expected at most %.0e", params, 1e16);
    double width = 64 * (double)c->hidden + 8 * (double)c->inner + (double)c->vocab;
    double bytes = 8 * tokens * (double)run->micros * width * (double)(c->layers + 2);
    if (bytes > most)
        return USAGE(
            "%d micro-batches of %lld sequences of %lld tokens cannot be planned for this model: use "
            "a smaller --batch, --micro-batch or --seq",
            run->micros, (long long)run->micro_batch, (long long)job->seq);
    if (run->micros > MOST_MICROS)
        return USAGE("--batch: makes %d micro-batches on each replica, expected at most %d", run->micros,
                     MOST_MICROS);
    return OK;
}

static Status settle_job(Job **ret_job, const PlanSpec *spec, Mesh *mesh, Device *device) {
    TrainConfig config = spec->config;
    config.mesh = mesh;
    config.on = device;
    JobSpec job = job_spec_of(&config);
    job.format = "u32"; /* without data, the vocabulary is the model's own */
    job.optim = (OptimSpec){.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .clip = 1};
    TRY(job_new(ret_job, &job));
    return check_sizes(*ret_job);
}

/* ---- stages ---- */

/* From some number on, more micro-batches do not take more memory: a pipeline is full, and gradients that
 * come are added to some that are there. Interleaved schedules take them in groups of as many as there are
 * stages, or in less even ones where that does not divide. */
static int micros_for_memory(const RunnerSpec *run, int stages) {
    enum { UNEVEN_GROUPS = 16 };
    bool holds_all = stages > 1 && run->schedule == SCHEDULE_GPIPE;
    bool uneven = run->schedule == SCHEDULE_INTERLEAVED && run->micros % stages;
    int enough = stages == 1 ? 3 : (uneven ? UNEVEN_GROUPS : 3) * stages + run->micros % stages;
    return holds_all || run->micros < enough ? run->micros : enough;
}

/* The stage before this one that has as many blocks in each chunk and is no end; -1: none. */
static int same_stage(const int *first, int stages, int chunks, int stage) {
    for (int s = 1; s < stage && stage < stages - 1; s++) {
        bool same = true;
        for (int part = s, own = stage; part < stages * chunks; part += stages, own += stages)
            same = same && first[part + 1] - first[part] == first[own + 1] - first[own];
        if (same) return s;
    }
    return -1;
}

/* What a sketch does with a stage: those at the ends and the one after the first need most memory. Of others
 * only the time is of interest, for which three micro-batches are enough, or that of one like it. */
static Status sketch_stage(Plan *plan, const DryRunSpec *run, const int *first, int stage) {
    enum { FIRST_MIDDLE_LAST = 3 };
    int rank = stage * run->mesh.dp * run->mesh.tp, chunks = run->spec.chunks ? run->spec.chunks : 1;
    int alike = same_stage(first, plan->stages, chunks, stage);
    if (alike > 0) return dryrun_rank_copy(&plan->stage[stage], &plan->stage[alike]);
    DryRunSpec quick = *run;
    quick.evals = 0;
    bool full = stage < 2 || stage == plan->stages - 1;
    if (!full && quick.spec.micros > FIRST_MIDDLE_LAST) quick.spec.micros = FIRST_MIDDLE_LAST;
    return dryrun_rank(&quick, rank, &plan->stage[stage]);
}

/* A run of fewer micro-batches than the step has, and what all of them send: each of those in the middle as
 * much, which a second run of a few more tells. */
static Status run_stage(const DryRunSpec *run, int micros, int rank, DryRunRank *ret_rank) {
    DryRunRank more = {0};
    DryRunSpec longer = *run;
    uint64_t group = (uint64_t)run->mesh.pp, rest = (uint64_t)(micros - run->spec.micros);
    longer.spec.micros += run->mesh.pp;
    longer.timed = false;
    longer.evals = 0;
    TRY(dryrun_rank(run, rank, ret_rank));
    if (!rest) return OK;
    TRY(dryrun_rank(&longer, rank, &more));
    for (int k = 0; k < COMM_KINDS; k++)
        ret_rank->sent[k] += (more.sent[k] - ret_rank->sent[k]) / group * rest;
    dryrun_rank_done(&more);
    return OK;
}

static Status run_stages(Plan *plan, const DryRunSpec *run, const PlanSpec *spec) {
    MeshSpec mesh = run->mesh;
    int micros = spec->memory_only ? run->spec.micros : plan->runner.micros;
    CLEANUP(mem_freep) int *first = NULL;
    TRY(mem_new((size_t)mesh.pp, sizeof *plan->stage, &plan->stage));
    plan->stages = mesh.pp;
    if (spec->sketch)
        TRY(runner_cut(run->model, run->spec.seq, mesh.pp * (run->spec.chunks ? run->spec.chunks : 1),
                       &first));
    for (int s = 0; s < mesh.pp; s++) {
        if (spec->sketch)
            TRY(sketch_stage(plan, run, first, s));
        else
            TRY(run_stage(run, micros, s * mesh.dp * mesh.tp, &plan->stage[s]));
    }
    if (spec->software) TRY(software_memory(spec->software, plan, run->spec.micros));
    for (int s = 0; s < mesh.pp; s++)
        if (plan->stage[s].memory.saving > plan->stage[plan->fullest].memory.saving) plan->fullest = s;
    return OK;
}

/* What a plan takes: layers that are carried out, about 10 us each, and for each stage the lists of all. */
static Status check_work(const DryRunSpec *run, const ModelConfig *model) {
    const double most_layers = 4e6, most_actions = 1e9;
    double pp = run->mesh.pp, chunks = run->spec.chunks ? run->spec.chunks : 1, micros = run->spec.micros;
    if ((double)model->layers * micros <= most_layers && pp * pp * chunks * micros <= most_actions) return OK;
    return USAGE("%lld layers in %d stages with %d micro-batches or more take too long to plan: use fewer "
                 "layers, --pp or --batch",
                 (long long)model->layers, run->mesh.pp, run->spec.micros);
}

static void pick_all(HostBatch *batch) {
    batch->pick_count = batch->B * batch->T;
    batch->loss_count[LOSS_TOKEN] = batch->pick_count;
    for (int64_t i = 0; i < batch->pick_count; i++) {
        batch->picks[i] = (int32_t)i;
        batch->pick_labels[i] = batch->labels[i];
    }
}

Status plan_init(Plan *ret_plan, const PlanSpec *spec) {
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(mesh_freep) Mesh *mesh = NULL;
    CLEANUP(job_freep) Job *job = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    CLEANUP(plan_done) Plan plan = {.mesh = spec->mesh, .batch = spec->config.batch};
    int threads = spec->config.threads ? (int)spec->config.threads : 1;
    TRY(check_ranks(spec->mesh));
    TRY(device_new_dryrun(&device, threads));
    TRY(mesh_new_dryrun(&mesh, spec->mesh, 0, true));
    TRY(settle_job(&job, spec, mesh, device));
    TRY(host_batch_new(&batch, job->plan.micro_batch, job->seq));
    job_make_up(job, batch);
    if (spec->software && spec->software->all_positions > 0 && job->task == TASK_MLM) pick_all(batch);
    plan.model = job->model->config;
    plan.runner = job->plan;
    plan.runner.mesh = NULL;
    plan.tf32 = spec->config.precision && !strcmp(spec->config.precision, "tf32");
    plan.seq = job->seq;
    plan.params_total = model_params(job->model);
    TRY(params_stored(job->model, spec->mesh.tp, &plan.params_stored));
    int evals = spec->mesh.pp == 1 ? 1 : EVAL_MICROS * spec->mesh.pp;
    DryRunSpec run = {.model = job->model,
                      .spec = job->plan,
                      .mesh = spec->mesh,
                      .device = spec->config.device,
                      .threads = threads,
                      .batch = batch,
                      .timed = spec->timed || spec->software,
                      .evals = evals < EVAL_LIMIT ? evals : EVAL_LIMIT};
    run.spec.micros = micros_for_memory(&run.spec, spec->mesh.pp);
    TRY(check_work(&run, &plan.model));
    TRY(run_stages(&plan, &run, spec));
    *ret_plan = plan;
    plan = (Plan){0};
    return OK;
}

/* ---- as JSON ---- */

static json_t *memory_json(const RankMemory *memory) {
    json_t *json = json_object();
    for (MemTag tag = 0; tag < MEM_TAGS; tag++)
        json_object_set_new(json, mem_tag_name(tag), json_integer((json_int_t)memory->tag[tag]));
    json_object_set_new(json, "total", json_integer((json_int_t)memory->total));
    json_object_set_new(json, "host", json_integer((json_int_t)memory->host));
    return json;
}

static json_t *sent_json(const uint64_t sent[COMM_KINDS]) {
    json_t *json = json_object();
    uint64_t total = 0;
    for (CommKind kind = 0; kind < COMM_KINDS; kind++) {
        total += sent[kind];
        json_object_set_new(json, comm_kind_name(kind), json_integer((json_int_t)sent[kind]));
    }
    json_object_set_new(json, "total", json_integer((json_int_t)total));
    return json;
}

static json_t *stages_json(const Plan *plan) {
    json_t *list = json_array();
    for (int s = 0; s < plan->stages; s++) {
        const DryRunRank *rank = &plan->stage[s];
        json_array_append_new(
            list, json_pack("{s:i, s:i, s:i, s:I, s:o, s:I, s:o}", "stage", s, "first_rank",
                            s * plan->mesh.dp * plan->mesh.tp, "blocks", rank->blocks, "params",
                            (json_int_t)rank->kept, "memory", memory_json(&rank->memory), "memory_saving",
                            (json_int_t)rank->memory.saving, "comm_bytes", sent_json(rank->sent)));
    }
    return list;
}

static json_t *layout_json(const Plan *plan, const PlanSpec *spec) {
    const MeshSpec *mesh = &plan->mesh;
    const RunnerSpec *run = &plan->runner;
    const TrainConfig *c = &spec->config;
    const char *precision = c->precision ? c->precision : dtype_name(run->dtype);
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:s, s:s, s:i, s:s, s:s, s:s, s:I, s:I, s:i, s:I}",
                     "ranks", mesh->dp * mesh->tp * mesh->pp, "dp", mesh->dp, "tp", mesh->tp, "pp", mesh->pp,
                     "zero", run->zero, "shard", mesh->shard ? mesh->shard : mesh->dp, "sequence_parallel",
                     run->sequence, "offload", c->offload ? c->offload : "none", "pp_schedule",
                     schedule_name(run->schedule), "pp_chunks", run->chunks, "recompute", c->recompute,
                     "precision", precision, "device", c->device, "batch", (json_int_t)plan->batch,
                     "micro_batch", (json_int_t)run->micro_batch, "micros", run->micros, "seq",
                     (json_int_t)plan->seq);
}

static json_t *model_json(const ModelConfig *c) {
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "family", c->family == FAMILY_GPT2 ? "gpt2" : "bert",
                     "layers", (json_int_t)c->layers, "hidden", (json_int_t)c->hidden, "heads",
                     (json_int_t)c->heads, "inner", (json_int_t)c->inner, "vocab", (json_int_t)c->vocab);
}

/* One rank stands for all: the one that holds, and the one that sends, most. */
Status plan_json(const Plan *plan, const PlanSpec *spec, json_t **ret_json) {
    int64_t params = 0;
    uint64_t most = 0;
    const DryRunRank *sender = &plan->stage[0];
    for (int s = 0; s < plan->stages; s++) {
        uint64_t sent = 0;
        for (CommKind kind = 0; kind < COMM_KINDS; kind++) sent += plan->stage[s].sent[kind];
        if (plan->stage[s].kept > params) params = plan->stage[s].kept;
        if (sent > most) most = sent, sender = &plan->stage[s];
    }
    json_t *json = json_pack(
        "{s:o, s:I, s:I, s:I, s:o, s:I, s:o, s:o, s:o}", "model", model_json(&plan->model), "params_total",
        (json_int_t)plan->params_total, "params_stored", (json_int_t)plan->params_stored, "params_per_rank",
        (json_int_t)params, "memory_per_rank", memory_json(&plan->stage[plan->fullest].memory),
        "memory_saving", (json_int_t)plan->stage[plan->fullest].memory.saving, "comm",
        sent_json(sender->sent), "layout", layout_json(plan, spec), "stages", stages_json(plan));
    if (!json) return FAILED("out of memory while writing the plan");
    *ret_json = json;
    return OK;
}
