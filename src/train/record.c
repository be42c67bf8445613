/* A step's figures are differences of monotonic counters; the run's figures are their sums. Utilization and
 * similar ratios are relative to time inside steps, so that evaluation and checkpoints, which have their own
 * phases, do not distort them.
 */
#include "train/record.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/memory.h"
#include "device/registry.h"
#include "train/peak.h"

/* A process's first steps allocate memory, fault pages in and tune kernels. The run's rates leave them out if
 * there are enough others. */
enum { FIRST_STEPS = 2, ENOUGH_STEPS = 10 };

#define ENERGY_INTERVAL_S 30 /* counters wrap after minutes */

static const char *const phase_names[PHASES] = {
    [PHASE_COMPUTE] = "compute",       [PHASE_COMM] = "comm",   [PHASE_BUBBLE] = "bubble",
    [PHASE_OPTIMIZER] = "optimizer",   [PHASE_DATA] = "data",   [PHASE_EVAL] = "eval",
    [PHASE_CHECKPOINT] = "checkpoint", [PHASE_SETUP] = "setup", [PHASE_OTHER] = "other"};

/* ---- start and end of a run ---- */

void record_begin(Record *record) {
    *record = (Record){.wall_start = clock_wall(), .peak_flops = NAN, .gpu_now = NAN};
    record->load_from[LOAD_RUN] = load_now();
}

/* The gradient noise state in a checkpoint. */
static const struct {
    const char *name;
    size_t offset;
} noise_fields[] = {
    {"steps", offsetof(Noise, steps)},
    {"square", offsetof(Noise, square)},
    {"signal", offsetof(Noise, signal)},
    {"trace", offsetof(Noise, trace)},
    {"signal_signal", offsetof(Noise, signal_signal)},
    {"signal_trace", offsetof(Noise, signal_trace)},
    {"trace_trace", offsetof(Noise, trace_trace)},
};

static double *noise_field(Noise *noise, size_t i) {
    return (double *)((char *)noise + noise_fields[i].offset);
}

void record_restore_noise(Record *record, const json_t *noise) {
    for (size_t i = 0; i < sizeof noise_fields / sizeof *noise_fields; i++)
        *noise_field(&record->noise, i) = json_number_at(noise, noise_fields[i].name);
}

Status record_ready(Record *record, const Job *job, int64_t batch, const char *precision,
                    const json_t *noise) {
    record->job = job;
    record->batch = (double)batch;
    record_restore_noise(record, noise);
    TRY(mem_new((size_t)job->runner->mesh->size, sizeof *record->ranks, &record->ranks));
    TRY(peak_of_ranks(job, precision, &record->peak_flops));
    energy_init(&record->energy, "/sys/class/powercap");
    record->gpu_energy = device_energy(job->device);
    record->ready_at = record->energy_at = clock_wall();
    record->all.phase_s[PHASE_SETUP] = record->ready_at - record->wall_start;
    return OK;
}

void record_done(Record *record) {
    free(record->ranks);
    record->ranks = NULL;
}

json_t *record_noise(const Record *record) {
    Noise noise = record->noise;
    json_t *object = json_object();
    for (size_t i = 0; object && i < sizeof noise_fields / sizeof *noise_fields; i++)
        json_object_set_new(object, noise_fields[i].name, json_real(*noise_field(&noise, i)));
    return object;
}

/* ---- a step ---- */

void record_step_begin(Record *record, int64_t number) {
    Runner *runner = record->job->runner;
    runner->probe = runner->spec.noise && (number - 1) % noise_every(!device_is_host(runner->device)) == 0;
    record->step = (RankRecord){.gpu = NAN};
    record->times = runner->times;
    mesh_sent_by_traffic(runner->mesh, record->sent);
    record->waits = mesh_waits(runner->mesh);
    record->cpu = clock_cpu();
    record->wall = clock_wall();
}

/* The driver updates its figure only a few times per second. */
static void sample_gpu(Record *record) {
    const double interval_s = 0.2;
    double now = clock_wall();
    if (device_is_host(record->job->device) || now - record->gpu_at < interval_s) return;
    record->gpu_at = now;
    record->gpu_now = device_utilization(record->job->device);
    if (!isfinite(record->gpu_now)) return;
    record->gpu_sum += record->gpu_now;
    record->gpu_samples++;
}

/* Computes the step's figures from the counters. */
static void measure_times(Record *record) {
    const Runner *runner = record->job->runner;
    const RunnerTimes *now = &runner->times, *before = &record->times;
    RankRecord *step = &record->step;
    double now_s = clock_wall();
    MeshWaits waits = mesh_waits(runner->mesh);
    step->run_s = now_s - record->wall_start;
    step->step_s = now_s - record->wall - step->phase_s[PHASE_CHECKPOINT]; /* see record_copy */
    record->work_s += step->step_s - (waits.all - record->waits.all);
    step->work_s = record->work_s;
    step->phase_s[PHASE_COMPUTE] = now->compute_s - before->compute_s;
    step->phase_s[PHASE_OPTIMIZER] = now->update_s - before->update_s;
    step->schedule_s = now->schedule_s - before->schedule_s;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) {
        step->waited_s[axis] = now->waited_s[axis] - before->waited_s[axis];
        step->phase_s[axis == AXIS_PP ? PHASE_BUBBLE : PHASE_COMM] += step->waited_s[axis];
    }
    double known = 0;
    for (int p = 0; p < PHASE_OTHER; p++) known += step->phase_s[p];
    step->phase_s[PHASE_OTHER] = step->step_s - known;
    if (device_is_host(runner->device))
        step->busy_s = clock_cpu() - record->cpu - (waits.cpu - record->waits.cpu);
    else
        step->busy_s = now->device_s - before->device_s - (waits.tickets - record->waits.tickets);
    mesh_sent_by_traffic(runner->mesh, step->sent);
    for (int t = 0; t < TRAFFICS; t++)
        for (int k = 0; k < COMM_KINDS; k++) comm_bytes_add(&step->sent[t][k], record->sent[t][k], -1);
}

static void measure_memory(RankRecord *rank, const Device *device) {
    for (int tag = 0; tag < MEM_TAGS; tag++) rank->peak[tag] = (int64_t)device->mem[tag].peak;
    rank->peak[MEM_TAGS] = (int64_t)device->total.peak;
    rank->host_peak = (int64_t)device->host.peak;
}

/* Adds the step to the run's figures. */
static void add_step(Record *record) {
    const RankRecord *step = &record->step;
    RankRecord *all = &record->all;
    for (int p = 0; p < STEP_PHASES; p++)
        if (p != PHASE_DATA) all->phase_s[p] += step->phase_s[p]; /* record_phase already added it */
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) all->waited_s[axis] += step->waited_s[axis];
    all->schedule_s += step->schedule_s;
    all->step_s += step->step_s;
    all->busy_s += step->busy_s;
    for (int t = 0; t < TRAFFICS; t++)
        for (int k = 0; k < COMM_KINDS; k++) comm_bytes_add(&all->sent[t][k], step->sent[t][k], 1);
}

static void end_first_steps(Record *record) {
    record->all.first_step_s = record->all.step_s;
    record->all.first_busy_s = record->all.busy_s;
    record->first_tokens = record->tokens;
    record->load_from[LOAD_STEPS] = load_now();
}

static void read_energy(Record *record) {
    energy_look(&record->energy);
    record->energy_at = clock_wall();
}

static void measure_energy(Record *record) {
    RankRecord *all = &record->all;
    read_energy(record);
    all->host_energy_j = record->energy.count ? record->energy.joules : NAN;
    all->gpu_energy_j = device_energy(record->job->device) - record->gpu_energy;
    if (device_is_host(record->job->device)) return;
    CudaInfo info;
    device_cuda_info(&info);
    all->gpus = info.devices;
}

/* How much CPU time this process and the whole host have used since the start and since the first steps. */
static void measure_load(Record *record) {
    record->all.cores = host_cores();
    for (LoadSpan span = 0; span < LOAD_SPANS; span++)
        record->all.load[span] = load_since(&record->load_from[span]);
    if (record->steps < FIRST_STEPS) record->all.load[LOAD_STEPS].wall_s = 0;
}

/* Leaves the first steps out of the run's rates. */
static int64_t drop_first_steps(Record *record) {
    RankRecord *all = &record->all;
    if (record->steps < ENOUGH_STEPS) return 0;
    all->step_s -= all->first_step_s;
    all->busy_s -= all->first_busy_s;
    record->tokens -= record->first_tokens;
    return FIRST_STEPS;
}

void record_step_end(Record *record, const StepResult *result) {
    const Runner *runner = record->job->runner;
    const RunnerSpec *spec = &runner->spec;
    measure_times(record);
    measure_memory(&record->step, record->job->device);
    sample_gpu(record);
    record->step.gpu = record->gpu_now;
    add_step(record);
    record->steps++;
    record->tokens += result->tokens;
    if (record->steps == FIRST_STEPS) end_first_steps(record);
    if (record->energy.count && clock_wall() - record->energy_at > ENERGY_INTERVAL_S) read_energy(record);
    if (!isfinite(result->micro_norm) || result->skipped) return;
    noise_add(&record->noise, result->micro_norm, (double)(spec->micro_batch * runner_joined(runner)),
              result->grad_norm, record->batch / runner_workers(runner));
}

void record_phase(Record *record, Phase phase, double seconds) {
    record->all.phase_s[phase] += seconds;
    if (phase == PHASE_DATA) record->step.phase_s[phase] += seconds;
    if (phase == PHASE_CHECKPOINT) record->pending_save_s += seconds;
}

void record_copy(Record *record, double seconds) {
    record_phase(record, PHASE_CHECKPOINT, seconds);
    record->step.phase_s[PHASE_CHECKPOINT] += seconds;
}

Status record_gather(Record *record) {
    Group *world = record->job->runner->mesh->world;
    record->work_s = 0;
    return host_gather(world, record->ranks, &record->step, sizeof record->step);
}

/* ---- figures over ranks ---- */

/* CPU: fraction of all threads' time spent computing. GPU: fraction of time with work queued on it. Waiting
 * for other ranks does not count as busy. */
static double utilization(const Record *record, const RankRecord *rank) {
    const Device *device = record->job->device;
    double time = rank->step_s * (device_is_host(device) ? device->threads : 1);
    return time > 0 ? fmin(fmax(rank->busy_s / time, 0), 1) : NAN;
}

static double bubble_fraction(const RankRecord *rank) {
    return rank->schedule_s > 0 ? rank->waited_s[AXIS_PP] / rank->schedule_s : 0;
}

static int rank_count(const Record *record) {
    return record->job->runner->mesh->size;
}

static double mean_of(const Record *record, double (*figure)(const Record *, const RankRecord *)) {
    double sum = 0;
    for (int r = 0; r < rank_count(record); r++) sum += figure(record, &record->ranks[r]);
    return sum / rank_count(record);
}

static double gpu_utilization(const Record *record, const RankRecord *rank) {
    (void)record;
    return rank->gpu;
}

static double step_seconds(const Record *record, const RankRecord *rank) {
    (void)record;
    return rank->step_s;
}

static double run_seconds(const Record *record, const RankRecord *rank) {
    (void)record;
    return rank->run_s;
}

static double bubble_of(const Record *record, const RankRecord *rank) {
    (void)record;
    return bubble_fraction(rank);
}

/* Mean phase times over ranks from .. from + ranks - 1; keys are phase name plus suffix. */
static json_t *phases_json(const Record *record, int from, int ranks, int phases, const char *suffix,
                           double scale) {
    json_t *object = json_object();
    for (int p = 0; p < phases; p++) {
        char key[32];
        double sum = 0;
        for (int r = from; r < from + ranks; r++) sum += record->ranks[r].phase_s[p];
        snprintf(key, sizeof key, "%s%s", phase_names[p], suffix);
        json_object_set_new(object, key, json_real(scale * sum / ranks));
    }
    return object;
}

static void put_bytes(json_t *object, const char *key, uint64_t bytes) {
    if (bytes) json_object_set_new(object, key, json_integer((json_int_t)bytes));
}

/* Nonzero bytes sent, by axis and kind, and the part that leaves the node: {"data": {"all_reduce": 1024,
 * "between_nodes": 512}}. */
static json_t *sent_json(const Record *record, int from, int ranks) {
    json_t *object = json_object();
    for (int t = 0; t < TRAFFICS; t++) {
        json_t *kinds = json_object();
        uint64_t between = 0;
        for (CommKind kind = 0; kind < COMM_KINDS; kind++) {
            CommBytes sum = {0};
            for (int r = from; r < from + ranks; r++) comm_bytes_add(&sum, record->ranks[r].sent[t][kind], 1);
            put_bytes(kinds, comm_info(kind)->name, comm_bytes_sum(sum));
            between += sum.between;
        }
        put_bytes(kinds, "between_nodes", between);
        if (json_object_size(kinds)) json_object_set(object, mesh_traffic_name(t), kinds);
        json_decref(kinds);
    }
    return object;
}

static CommBytes sent_total(const Record *record) {
    CommBytes sum = {0};
    for (int r = 0; r < rank_count(record); r++)
        for (int t = 0; t < TRAFFICS; t++)
            for (int k = 0; k < COMM_KINDS; k++) comm_bytes_add(&sum, record->ranks[r].sent[t][k], 1);
    return sum;
}

/* Maximum over ranks, by kind of memory. */
static json_t *peak_json(const Record *record) {
    json_t *object = json_object();
    for (int tag = 0; tag <= MEM_TAGS; tag++) {
        int64_t max = 0;
        for (int r = 0; r < rank_count(record); r++)
            if (record->ranks[r].peak[tag] > max) max = record->ranks[r].peak[tag];
        json_object_set_new(object, tag < MEM_TAGS ? mem_tag_name((MemTag)tag) : "total",
                            json_integer((json_int_t)max));
    }
    return object;
}

/* Figures of each rank, unless there are too many for one line. */
static json_t *each_json(const Record *record) {
    enum { MAX_LISTED = 64 };
    json_t *object = json_object(), *busy = json_array();
    if (rank_count(record) > MAX_LISTED) {
        json_decref(busy);
        return object;
    }
    for (int r = 0; r < rank_count(record); r++)
        json_array_append_new(busy, json_finite(utilization(record, &record->ranks[r])));
    json_object_set_new(object, "utilization", busy);
    for (int p = 0; p < STEP_PHASES; p++) {
        char key[32];
        json_t *list = json_array();
        for (int r = 0; r < rank_count(record); r++)
            json_array_append_new(list, json_real(1e3 * record->ranks[r].phase_s[p]));
        snprintf(key, sizeof key, "%s_ms", phase_names[p]);
        json_object_set_new(object, key, list);
    }
    return object;
}

/* ---- metrics lines and the summary ---- */

static double mfu_of(const Record *record, double tokens_per_s) {
    return tokens_per_s * job_flops_per_token(record->job) / record->peak_flops;
}

/* The noise scale with its standard error, the statistical efficiency of the batch relative to one
 * micro-batch, and samples/s times this efficiency. */
typedef struct Efficiency {
    NoiseScale noise;
    double efficiency, goodput;
} Efficiency;

static Efficiency efficiency_of(const Record *record, double samples_per_s) {
    NoiseScale noise = noise_scale(&record->noise);
    double efficiency =
        noise_efficiency(noise.scale, (double)record->job->runner->spec.micro_batch, record->batch);
    return (Efficiency){noise, efficiency, samples_per_s * efficiency};
}

static Status add_efficiency(json_t *line, Efficiency found) {
    CLEANUP(json_decrefp)
    json_t *more = json_pack("{s:o, s:o, s:o, s:o}", "noise_scale", json_finite(found.noise.scale),
                             "noise_scale_error", json_finite(found.noise.error), "statistical_efficiency",
                             json_finite(found.efficiency), "goodput", json_finite(found.goodput));
    return more && json_object_update(line, more) == 0 ? OK : FAILED("out of memory");
}

Status record_line(Record *record, const StepResult *result, json_t *line) {
    double step_s = mean_of(record, step_seconds), samples_per_s = record->batch / step_s;
    int ranks = rank_count(record);
    CommBytes sent = sent_total(record);
    CLEANUP(json_decrefp)
    json_t *more = json_pack(
        "{s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o}", "samples_per_s", samples_per_s,
        "tokens_per_s", (double)result->tokens / step_s, "step_ms", 1e3 * step_s, "elapsed_s",
        record->step.run_s, "utilization", json_finite(mean_of(record, utilization)), "mfu",
        json_finite(mfu_of(record, (double)result->tokens / step_s)), "micro_norm",
        json_finite(result->micro_norm), "phases_ms", phases_json(record, 0, ranks, STEP_PHASES, "", 1e3),
        "sent_bytes", (json_int_t)comm_bytes_sum(sent), "between_nodes_bytes", (json_int_t)sent.between,
        "comm_bytes_by_group", sent_json(record, 0, ranks), "peak_bytes", peak_json(record));
    if (!more || json_object_update(line, more) != 0) return FAILED("out of memory");
    if (ranks > 1) json_object_set_new(line, "ranks", each_json(record));
    if (!device_is_host(record->job->device))
        json_object_set_new(line, "gpu_utilization", json_finite(mean_of(record, gpu_utilization)));
    if (record->pending_save_s > 0)
        json_object_set_new(line, "checkpoint_ms", json_real(1e3 * record->pending_save_s));
    record->pending_save_s = 0;
    return add_efficiency(line, efficiency_of(record, samples_per_s));
}

static json_t *rank_json(const Record *record, int rank) {
    const RankRecord *own = &record->ranks[rank];
    json_t *memory = json_object(), *sent = json_object();
    for (MemTag tag = 0; tag < MEM_TAGS; tag++)
        json_object_set_new(memory, mem_tag_name(tag), json_integer((json_int_t)own->peak[tag]));
    json_object_set_new(memory, "total", json_integer((json_int_t)own->peak[MEM_TAGS]));
    json_object_set_new(memory, "host", json_integer((json_int_t)own->host_peak));
    CommBytes total = {0};
    for (CommKind kind = 0; kind < COMM_KINDS; kind++) {
        CommBytes sum = {0};
        for (int t = 0; t < TRAFFICS; t++) comm_bytes_add(&sum, own->sent[t][kind], 1);
        comm_bytes_add(&total, sum, 1);
        json_object_set_new(sent, comm_info(kind)->name, json_integer((json_int_t)comm_bytes_sum(sum)));
    }
    json_object_set_new(sent, "total", json_integer((json_int_t)comm_bytes_sum(total)));
    json_object_set_new(sent, "between_nodes", json_integer((json_int_t)total.between));
    json_t *phases = phases_json(record, rank, 1, PHASES, "_s", 1);
    MeshSpec mesh = mesh_spec(record->job->runner->mesh);
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) {
        char key[32];
        snprintf(key, sizeof key, "wait_%s_s", axis_info(axis)->title);
        if (mesh_shows(mesh, axis)) json_object_set_new(phases, key, json_real(own->waited_s[axis]));
    }
    char host[HOST_SIZE];
    group_host(record->job->runner->mesh->world, rank, host);
    return json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:f, s:o}", "rank", rank, "host", host,
                     "utilization", json_finite(utilization(record, own)), "gpu_utilization",
                     json_finite(own->gpu), "peak_bytes", memory, "comm_bytes", sent, "comm_bytes_by_group",
                     sent_json(record, rank, 1), "bubble", bubble_fraction(own), "phases", phases);
}

static bool same_host(const Record *record, int a, int b) {
    char one[HOST_SIZE], two[HOST_SIZE];
    const Group *world = record->job->runner->mesh->world;
    return !strcmp(group_host(world, a, one), group_host(world, b, two));
}

/* The load of the host on which a rank runs, during the steps or, if they are too short, since the start. */
static json_t *host_load(const Record *record, int rank) {
    const RankRecord *own = &record->ranks[rank];
    const Device *device = record->job->device;
    LoadSpan span = own->load[LOAD_STEPS].wall_s >= LOAD_EXACT_S ? LOAD_STEPS : LOAD_RUN;
    double cpu_s = 0, wanted = 0;
    char host[HOST_SIZE];
    int ranks = 0;
    for (int r = 0; r < rank_count(record); r++) {
        if (!same_host(record, r, rank)) continue;
        ranks++;
        cpu_s += record->ranks[r].load[span].cpu_s;
        wanted += device_is_host(device) ? device->threads : 1;
    }
    json_t *load = load_add_gpus(load_json(&own->load[span], cpu_s, own->cores, wanted), own->gpus, ranks);
    if (load)
        json_object_set_new(load, "host",
                            json_string(group_host(record->job->runner->mesh->world, rank, host)));
    return load;
}

/* Energy of all hosts and GPUs; NAN if none is reported. GPUs are assigned round-robin, so
 * a host's ranks after the first `gpus` share those. */
static double total_energy(const Record *record) {
    double sum = 0;
    bool known = false;
    for (int r = 0; r < rank_count(record); r++) {
        const RankRecord *rank = &record->ranks[r];
        int before = 0; /* ranks of the same host */
        for (int other = 0; other < r; other++) before += same_host(record, r, other);
        if (!before && isfinite(rank->host_energy_j)) {
            sum += rank->host_energy_j;
            known = true;
        }
        if (isfinite(rank->gpu_energy_j) && before < rank->gpus) {
            sum += rank->gpu_energy_j;
            known = true;
        }
    }
    return known ? sum : NAN;
}

/* The load of the host with the most contention; NULL if unknown. */
static json_t *worst_load(const Record *record) {
    json_t *worst = NULL;
    double most = -1;
    for (int r = 0; r < rank_count(record); r++) {
        bool first = true; /* of its host */
        for (int other = 0; other < r && first; other++) first = !same_host(record, r, other);
        json_t *load = first ? host_load(record, r) : NULL;
        double contention = json_number_at(load, "contention");
        if (load && contention > most) {
            json_decref(worst);
            worst = json_incref(load);
            most = contention;
        }
        json_decref(load);
    }
    return worst;
}

/* What all ranks have sent outside steps: parameters at the start, in validations and, if only rank 0 has the
 * files, from and to these. */
static Status add_other(const Record *record, RunSummary *summary) {
    const Job *job = record->job;
    CommBytes sent[COMM_KINDS], sum = {0};
    mesh_sent(job->runner->mesh, sent);
    for (int k = 0; k < COMM_KINDS; k++) {
        comm_bytes_add(&sum, sent[k], 1);
        if (job->disk) comm_bytes_add(&sum, job->disk->group->sent[k], 1);
        for (int t = 0; t < TRAFFICS; t++) comm_bytes_add(&sum, record->all.sent[t][k], -1);
    }
    int64_t bytes[] = {(int64_t)comm_bytes_sum(sum), (int64_t)sum.between};
    TRY(host_reduce(job->runner->mesh->world, bytes, 2, DT_I64, REDUCE_SUM));
    summary->other_sent_bytes = (double)bytes[0];
    summary->other_between_nodes_bytes = (double)bytes[1];
    return OK;
}

Status record_summary(Record *record, RunSummary *summary) {
    const Mesh *mesh = record->job->runner->mesh;
    RankRecord *own = &record->all;
    double known = 0;
    for (int p = 0; p < PHASES; p++) known += own->phase_s[p];
    own->run_s = clock_wall() - record->wall_start;
    own->phase_s[PHASE_OTHER] += own->run_s - known;
    own->gpu = record->gpu_samples ? record->gpu_sum / (double)record->gpu_samples : NAN;
    measure_memory(own, record->job->device);
    measure_load(record);
    measure_energy(record);
    double all_tokens = (double)record->tokens;
    int64_t excluded = drop_first_steps(record), steps = record->steps - excluded;
    TRY(host_gather(mesh->world, record->ranks, own, sizeof *own));
    double seconds = steps ? mean_of(record, step_seconds) : NAN;
    Efficiency found = efficiency_of(record, (double)steps * record->batch / seconds);
    summary->steps_measured = (double)steps;
    summary->steps_excluded = (double)excluded;
    summary->load = worst_load(record);
    summary->energy_j = total_energy(record);
    summary->tokens_per_j = summary->energy_j > 0 ? all_tokens / summary->energy_j : NAN;
    summary->runtime_s = mean_of(record, run_seconds);
    summary->tokens_per_s = (double)record->tokens / seconds;
    summary->samples_per_s = (double)steps * record->batch / seconds;
    summary->step_ms = 1e3 * seconds / (double)steps;
    summary->utilization = mean_of(record, utilization);
    summary->gpu_utilization = mean_of(record, gpu_utilization);
    summary->mfu = mfu_of(record, summary->tokens_per_s);
    summary->peak_flops = record->peak_flops;
    summary->bubble = mean_of(record, bubble_of);
    summary->phases = phases_json(record, 0, mesh->size, PHASES, "_s", 1);
    summary->sent_bytes = (double)comm_bytes_sum(sent_total(record));
    summary->between_nodes_bytes = (double)sent_total(record).between;
    summary->comm_bytes_by_group = sent_json(record, 0, mesh->size);
    TRY(add_other(record, summary));
    summary->ranks = json_array();
    for (int r = 0; r < mesh->size; r++) json_array_append_new(summary->ranks, rank_json(record, r));
    summary->noise_scale = found.noise.scale;
    summary->noise_scale_error = found.noise.error;
    summary->statistical_efficiency = found.efficiency;
    summary->goodput = found.goodput;
    return OK;
}
