/* Plans a layout by dry-running one rank of every pipeline stage (plan/dryrun.h). Only as many micro-batches
 * are run as memory depends on; what the remaining ones send is extrapolated. Sizes are checked first, so
 * that sums of bytes cannot overflow and a plan takes a bounded time. */
#include "plan/plan.h"

#include <stdarg.h>
#include <string.h>

#include "base/clock.h"
#include "base/terminal.h"
#include "data/task.h"
#include "plan/software.h"
#include "train/job.h"

enum {
    MAX_RANKS = 1 << 20,
    MAX_MICROS = 1 << 16,
    EVAL_MICROS = 4 /* micro-batches of an evaluation, per stage; see job_evaluate */,
    EVAL_LIMIT = 64,
};

/* ---- progress ---- */

Status plan_progress_init(PlanProgress *ret_progress, FILE *out) {
    *ret_progress = (PlanProgress){.start = clock_wall()};
    return progress_new(&ret_progress->bar, out, "planning", 0, 5, !terminal_live(out));
}

void plan_progress_done(PlanProgress *progress) {
    progress_free(progress->bar);
}

/* Short plans show nothing. */
static void show_progress(PlanProgress *progress, int stage, int stages) {
    const double delay_s = 0.5;
    char note[160];
    if (!progress || clock_wall() - progress->start < delay_s) return;
    if (stages > 1)
        snprintf(note, sizeof note, "%s%sstage %d of %d", progress->what, *progress->what ? ", " : "",
                 stage + 1, stages);
    else
        snprintf(note, sizeof note, "%s", progress->what);
    progress_update(progress->bar, progress->plans, note);
}

void plan_progress_note(PlanProgress *progress, const char *fmt, ...) {
    if (!progress) return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(progress->what, sizeof progress->what, fmt, args);
    va_end(args);
    show_progress(progress, 0, 0);
}

/* ---- checks ---- */

void plan_done(Plan *plan) {
    for (int s = 0; plan->stage && s < plan->stages; s++) dryrun_rank_done(&plan->stage[s]);
    free(plan->stage);
    *plan = (Plan){0};
}

static Status check_ranks(MeshSpec mesh) {
    char text[MESH_TEXT];
    int64_t ranks = mesh_ranks(mesh, AXES_ALL);
    if (ranks > MAX_RANKS)
        return USAGE("%s is %lld ranks; the planner supports at most %d", mesh_text(mesh, text),
                     (long long)ranks, MAX_RANKS);
    return OK;
}

/* Rejects sizes that no machine could hold, with a wide margin below what would overflow 64-bit sums of
 * bytes. */
static Status check_sizes(const Job *job) {
    const double max_bytes = 0x1p58;
    const ModelConfig *c = &job->model->config;
    const RunnerSpec *run = &job->settings.run;
    double params = (double)model_params(job->model), tokens = (double)run->micro_batch * (double)job->seq;
    if (20 * params > max_bytes)
        return USAGE("a model with %.3g parameters cannot be planned; the limit is %.0e", params, 1e16);
    double width =
        64 * (double)c->hidden + 8 * (double)(c->inner + c->top_k * c->expert_inner) + (double)c->vocab;
    double bytes = 8 * tokens * (double)run->micros * width * (double)(c->layers + 2);
    if (bytes > max_bytes)
        return USAGE("%d micro-batches of %lld sequences of %lld tokens cannot be planned for this model; "
                     "reduce {batch}, {micro-batch} or {seq}",
                     run->micros, (long long)run->micro_batch, (long long)job->seq);
    if (run->micros > MAX_MICROS)
        return USAGE("{batch}: %d micro-batches per replica; the planner supports at most %d", run->micros,
                     MAX_MICROS);
    return OK;
}

static Status settle_job(Job **ret_job, const PlanSpec *spec, Mesh *mesh, Device *device) {
    Settings config = spec->config;
    config.run.mesh = mesh;
    config.device.on = device;
    config.data.format = "u32"; /* there is no data, so the vocabulary is the model's own */
    TRY(job_default_optim(&config));
    TRY(job_new(ret_job, &config, JOB_TRAIN));
    return check_sizes(*ret_job);
}

/* ---- stages ---- */

/* The number of micro-batches after which memory no longer grows: the pipeline is full and gradients are
 * accumulated into existing ones. Interleaved schedules process micro-batches in groups of one per stage;
 * groups are uneven if the number of stages does not divide the number of micro-batches. GPipe keeps all
 * micro-batches. */
static int micros_for_memory(const RunnerSpec *run, int stages) {
    enum { UNEVEN_GROUPS = 16 };
    bool keeps_all = stages > 1 && run->schedule == SCHEDULE_GPIPE;
    bool uneven = run->schedule == SCHEDULE_INTERLEAVED && run->micros % stages;
    int enough = stages == 1 ? 3 : (uneven ? UNEVEN_GROUPS : 3) * stages + run->micros % stages;
    return keeps_all || run->micros < enough ? run->micros : enough;
}

/* An earlier stage, not the first, with the same number of blocks in every chunk; -1 if there is none or
 * `stage` is the last. */
static int same_stage(const int *first, int stages, int chunks, int stage) {
    for (int s = 1; s < stage && stage < stages - 1; s++) {
        bool same = true;
        for (int part = s, own = stage; part < stages * chunks; part += stages, own += stages)
            same = same && first[part + 1] - first[part] == first[own + 1] - first[own];
        if (same) return s;
    }
    return -1;
}

/* A unit's parameters with more optimizer state than its matrices come last (Muon leaves them to AdamW), so
 * with ZeRO the last replica has the most. The first one may own more matrices. */
static Status use_fullest_replica(const DryRunSpec *run, int first, DryRunRank *rank) {
    if (!run->spec.zero || mesh_copies(run->mesh) == 1 || !optim_kind(&run->spec.optim)->transform) return OK;
    DryRunSpec last = *run;
    DryRunRank other = {0};
    last.timed = false;
    TRY(dryrun_rank(&last, first + (mesh_copies(run->mesh) - 1) * mesh_apart(run->mesh, AXES_COPIES),
                    &other));
    if (other.memory.needed > rank->memory.needed) rank->memory = other.memory;
    dryrun_rank_done(&other);
    return OK;
}

/* Dry-runs a stage for a sketch. Only the first two stages and the last can need the most memory and are run
 * in full. The others matter only for time: they run three micro-batches or copy an identical stage. */
static Status sketch_stage(Plan *plan, const DryRunSpec *run, const int *first, int stage) {
    enum { FIRST_MIDDLE_LAST = 3 };
    int rank = stage * mesh_stride(run->mesh, AXIS_PP), chunks = run->spec.chunks ? (int)run->spec.chunks : 1;
    int same = same_stage(first, plan->stages, chunks, stage);
    if (same > 0) return dryrun_rank_copy(&plan->stage[stage], &plan->stage[same]);
    DryRunSpec quick = *run;
    bool full = stage < 2 || stage == plan->stages - 1;
    if (!full) quick.evals = 0;
    if (!full && quick.spec.micros > FIRST_MIDDLE_LAST) quick.spec.micros = FIRST_MIDDLE_LAST;
    TRY(dryrun_rank(&quick, rank, &plan->stage[stage]));
    return full ? use_fullest_replica(&quick, rank, &plan->stage[stage]) : OK;
}

/* Dry-runs a stage with the micro-batches of `run` and extrapolates the bytes sent to `micros`: a second run
 * with one more micro-batch per stage shows what each of those in the middle sends. */
static Status run_stage(const DryRunSpec *run, int micros, int rank, DryRunRank *ret_rank) {
    DryRunRank more = {0};
    DryRunSpec longer = *run;
    int64_t group = run->mesh.pp, rest = micros - run->spec.micros;
    longer.spec.micros += run->mesh.pp;
    longer.timed = false;
    longer.evals = 0;
    TRY(dryrun_rank(run, rank, ret_rank));
    TRY(use_fullest_replica(run, rank, ret_rank));
    if (!rest) return OK;
    TRY(dryrun_rank(&longer, rank, &more));
    for (int k = 0; k < COMM_KINDS; k++) {
        CommBytes added = more.sent[k];
        comm_bytes_add(&added, ret_rank->sent[k], -1);
        added = (CommBytes){added.within / (uint64_t)group, added.between / (uint64_t)group};
        comm_bytes_add(&ret_rank->sent[k], added, rest);
    }
    dryrun_rank_done(&more);
    return OK;
}

static Status run_stages(Plan *plan, const DryRunSpec *run, const PlanSpec *spec) {
    MeshSpec mesh = run->mesh;
    int micros = spec->memory_only ? run->spec.micros : plan->runner.micros;
    bool alike = model_trained(run->model) == model_params(run->model), sketch = spec->sketch && alike;
    CLEANUP(mem_freep) int *first = NULL;
    TRY(mem_new((size_t)mesh.pp, sizeof *plan->stage, &plan->stage));
    plan->stages = mesh.pp;
    if (sketch || (!alike && mesh.pp > 1))
        TRY(runner_partition(run->model, run->spec.seq,
                             mesh.pp * (run->spec.chunks ? (int)run->spec.chunks : 1), &first));
    if (first) plan->forward_only = runner_forward_only(run->model, first);
    for (int s = 0; s < mesh.pp; s++) {
        show_progress(spec->progress, s, mesh.pp);
        if (sketch)
            TRY(sketch_stage(plan, run, first, s));
        else
            TRY(run_stage(run, micros, s * mesh_stride(mesh, AXIS_PP), &plan->stage[s]));
    }
    if (spec->software) TRY(software_memory(spec->software, plan, run->spec.micros));
    for (int s = 0; s < mesh.pp; s++)
        if (plan->stage[s].memory.needed > plan->stage[plan->fullest].memory.needed) plan->fullest = s;
    return OK;
}

/* Bounds the time of a plan: about 10 us per executed layer, plus the schedules of all stages. */
static Status check_work(const DryRunSpec *run, const ModelConfig *model) {
    const double max_layers = 4e6, max_actions = 1e9;
    double pp = run->mesh.pp, chunks = run->spec.chunks ? (int)run->spec.chunks : 1,
           micros = run->spec.micros;
    if ((double)model->layers * micros <= max_layers && pp * pp * chunks * micros <= max_actions) return OK;
    return USAGE(
        "%lld layers in %d stages with %d or more micro-batches take too long to plan; reduce the number "
        "of layers, {pp} or {batch}",
        (long long)model->layers, run->mesh.pp, run->spec.micros);
}

/* Makes the model compute every position of the batch. */
static void pick_all(HostBatch *batch) {
    for (int64_t i = 0; i < batch->B * batch->T; i++) batch->labels[i] = 0;
    host_batch_count(batch);
}

/* A step at the start of a warm-up of the sequence length, whose kernels may need other workspace; NULL
 * without one. */
static Status first_batch(const Job *job, HostBatch **ret_batch) {
    if (!job->seq_warmup.steps) return OK;
    TRY(host_batch_new(ret_batch, job->settings.run.micro_batch, job->seq));
    job_fill_synthetic(job, *ret_batch);
    host_batch_divide(*ret_batch, seq_warmup_length(&job->seq_warmup, 1));
    return OK;
}

Status plan_init(Plan *ret_plan, const PlanSpec *spec) {
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(mesh_freep) Mesh *mesh = NULL;
    CLEANUP(job_freep) Job *job = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL, *first = NULL;
    CLEANUP(plan_done) Plan plan = {.mesh = spec->mesh, .batch = spec->config.training.batch};
    int threads = spec->config.device.threads ? (int)spec->config.device.threads : 1;
    TRY(check_ranks(spec->mesh));
    TRY(device_new_dryrun(&device, threads));
    TRY(mesh_new_dryrun(&mesh, spec->mesh, 0, spec->per_node, true));
    TRY(settle_job(&job, spec, mesh, device));
    TRY(host_batch_new_targets(&batch, job->settings.run.micro_batch, job->seq,
                               config_targets(&job->model->config)));
    job_fill_synthetic(job, batch);
    TRY(first_batch(job, &first));
    if (spec->software && spec->software->all_positions > 0 && task_data(job->task)->picks) pick_all(batch);
    plan.model = job->model->config;
    plan.runner = job->settings.run;
    plan.runner.mesh = NULL;
    plan.tf32 = spec->config.device.precision && !strcmp(spec->config.device.precision, "tf32");
    plan.seq = job->seq;
    plan.params_total = model_params(job->model);
    plan.params_trained = model_trained(job->model);
    plan.params_adapters = model_adapters(job->model);
    TRY(model_params_stored(job->model, spec->mesh.tp, &plan.params_stored));
    int evals = spec->mesh.pp == 1 ? 1 : EVAL_MICROS * spec->mesh.pp;
    DryRunSpec run = {.model = job->model,
                      .spec = job->settings.run,
                      .mesh = spec->mesh,
                      .device = spec->config.device.name,
                      .capability = spec->capability,
                      .threads = threads,
                      .per_node = spec->per_node,
                      .batch = batch,
                      .first = first,
                      .timed = spec->timed || spec->software,
                      .evals = evals < EVAL_LIMIT ? evals : EVAL_LIMIT,
                      .scores = task_validation_scores(job)};
    run.spec.whole_blocks = spec->software != NULL;
    run.spec.step_micros = run.spec.micros;
    run.spec.micros = micros_for_memory(&run.spec, spec->mesh.pp);
    TRY(check_work(&run, &plan.model));
    TRY(run_stages(&plan, &run, spec));
    if (spec->progress) spec->progress->plans++;
    return MOVE(ret_plan, plan);
}

/* ---- JSON ---- */

static json_t *memory_json(const RankMemory *memory) {
    json_t *json = json_object();
    for (MemTag tag = 0; tag < MEM_TAGS; tag++)
        json_object_set_new(json, mem_tag_name(tag), json_integer((json_int_t)memory->tag[tag]));
    json_object_set_new(json, "total", json_integer((json_int_t)memory->total));
    json_object_set_new(json, "host", json_integer((json_int_t)memory->host));
    return json;
}

static json_t *sent_json(const CommBytes sent[COMM_KINDS]) {
    json_t *json = json_object();
    CommBytes total = {0};
    for (CommKind kind = 0; kind < COMM_KINDS; kind++) {
        comm_bytes_add(&total, sent[kind], 1);
        json_object_set_new(json, comm_info(kind)->name,
                            json_integer((json_int_t)comm_bytes_sum(sent[kind])));
    }
    json_object_set_new(json, "total", json_integer((json_int_t)comm_bytes_sum(total)));
    json_object_set_new(json, "between_nodes", json_integer((json_int_t)total.between));
    return json;
}

static json_t *stages_json(const Plan *plan) {
    json_t *list = json_array();
    for (int s = 0; s < plan->stages; s++) {
        const DryRunRank *rank = &plan->stage[s];
        json_array_append_new(
            list, json_pack("{s:i, s:i, s:i, s:I, s:o, s:I, s:I, s:o}", "stage", s, "first_rank",
                            s * mesh_stride(plan->mesh, AXIS_PP), "blocks", rank->blocks, "params",
                            (json_int_t)rank->kept, "memory", memory_json(&rank->memory), "memory_saving",
                            (json_int_t)rank->memory.needed, "memory_snapshot",
                            (json_int_t)rank->memory.snapshot, "comm_bytes", sent_json(rank->sent)));
    }
    return list;
}

static json_t *layout_json(const Plan *plan, const PlanSpec *spec) {
    const MeshSpec *mesh = &plan->mesh;
    const RunnerSpec *run = &plan->runner;
    const Settings *c = &spec->config;
    const char *precision = c->device.precision ? c->device.precision : dtype_name(run->dtype);
    const OuterSpec *outer = &run->outer;
    json_t *layout = json_pack("{s:I}", "ranks", (json_int_t)mesh_ranks(*mesh, AXES_ALL));
    mesh_put(layout, *mesh);
    if (mesh->cp > 1) json_object_set_new(layout, "cp_mode", json_string(context_mode_names[run->cp_mode]));
    if (run->cp_mode == CONTEXT_BOTH) json_object_set_new(layout, "cp_heads", json_integer(mesh->heads));
    json_t *rest = json_pack(
        "{s:i, s:i, s:b, s:s, s:s, s:i, s:s, s:s, s:s, s:I, s:I, s:i, s:I, s:I, s:I, s:I, s:s, s:s}", "zero",
        (int)run->zero, "shard", mesh_shard(*mesh), "sequence_parallel", run->sequence, "offload",
        offload_names[c->run.offload], "pp_schedule", schedule_name(run->schedule), "pp_chunks",
        (int)run->chunks, "recompute", recompute_names[c->run.recompute], "precision", precision, "device",
        c->device.name, "batch", (json_int_t)plan->batch, "micro_batch", (json_int_t)run->micro_batch,
        "micros", run->micros, "seq", (json_int_t)plan->seq, "sync_every", (json_int_t)outer->every,
        "sync_fragments", (json_int_t)outer->fragments, "sync_overlap", (json_int_t)outer->overlap,
        "sync_dtype", grad_type_names[outer->type], "grad_dtype", grad_type_names[run->grad_type]);
    json_object_update(layout, rest);
    json_decref(rest);
    return layout;
}

static json_t *model_json(const ModelConfig *c) {
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "family", c->family->type, "layers",
                     (json_int_t)c->layers, "hidden", (json_int_t)c->hidden, "heads", (json_int_t)c->heads,
                     "inner", (json_int_t)c->inner, "vocab", (json_int_t)c->vocab);
}

/* Per-rank values are those of the rank with the most memory and of the rank that sends the most bytes. */
Status plan_json(const Plan *plan, const PlanSpec *spec, json_t **ret_json) {
    int64_t params = 0;
    uint64_t most = 0;
    size_t snapshot = 0;
    const DryRunRank *sender = &plan->stage[0];
    for (int s = 0; s < plan->stages; s++) {
        uint64_t sent = 0;
        for (CommKind kind = 0; kind < COMM_KINDS; kind++) sent += comm_bytes_sum(plan->stage[s].sent[kind]);
        if (plan->stage[s].kept > params) params = plan->stage[s].kept;
        if (plan->stage[s].memory.snapshot > snapshot) snapshot = plan->stage[s].memory.snapshot;
        if (sent > most) most = sent, sender = &plan->stage[s];
    }
    CLEANUP(json_decrefp)
    json_t *json = json_pack(
        "{s:o, s:I, s:I, s:I, s:o, s:I, s:I, s:o, s:o, s:o}", "model", model_json(&plan->model),
        "params_total", (json_int_t)plan->params_total, "params_stored", (json_int_t)plan->params_stored,
        "params_per_rank", (json_int_t)params, "memory_per_rank",
        memory_json(&plan->stage[plan->fullest].memory), "memory_saving",
        (json_int_t)plan->stage[plan->fullest].memory.needed, "memory_snapshot", (json_int_t)snapshot, "comm",
        sent_json(sender->sent), "layout", layout_json(plan, spec), "stages", stages_json(plan));
    if (!json) return FAILED("out of memory while writing the plan");
    if (plan->params_trained < plan->params_total)
        TRY(json_put(json, "params_trained", json_integer(plan->params_trained)));
    if (plan->params_adapters) TRY(json_put(json, "params_adapters", json_integer(plan->params_adapters)));
    *ret_json = json_incref(json);
    return OK;
}
