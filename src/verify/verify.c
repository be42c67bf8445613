#include "verify/verify.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/rng.h"
#include "device/registry.h"
#include "plan/links.h"
#include "verify/internal.h"

int verify_precision(const Verify *v, const TrialSpec *spec) {
    int i = 0;
    while (v->precision[i].dtype != spec->dtype || v->precision[i].fp8 != spec->fp8) i++;
    return i;
}

const Record *verify_record(const Verify *v, const TrialSpec *spec) {
    return &v->record[spec->job * v->precisions + verify_precision(v, spec)];
}

Status verify_has_time(Verify *v, double end, bool *ret_has) {
    bool has = clock_wall() < end;
    TRY(host_broadcast(v->spec->host, &has, sizeof has, 0));
    *ret_has = has;
    return OK;
}

Status verify_mesh(Verify *v, MeshSpec spec, Mesh **ret_mesh) {
    Group *world = v->spec->world;
    int ranks = (int)mesh_ranks(spec, AXES_ALL);
    for (size_t i = 0; i < v->meshes; i++)
        if (mesh_same(v->mesh[i].spec, spec)) {
            *ret_mesh = v->mesh[i].mesh;
            return OK;
        }
    TRY(mem_grow(&v->mesh, &v->mesh_capacity, v->meshes + 1, sizeof *v->mesh));
    KeptMesh *kept = &v->mesh[v->meshes++];
    *kept = (KeptMesh){.spec = spec};
    bool inside = world->rank < ranks;
    if (ranks < world->size) TRY(group_split(world, !inside, world->rank, GROUP_TENSORS, &kept->part));
    if (inside) TRY(mesh_new(&kept->mesh, kept->part ? kept->part : world, spec));
    *ret_mesh = kept->mesh;
    return OK;
}

static void verify_done(Verify *v) {
    for (size_t i = v->meshes; i-- > 0;) {
        mesh_free(v->mesh[i].mesh);
        group_free(v->mesh[i].part);
    }
    free(v->mesh);
    for (int i = 0; v->record && i < v->jobs * v->precisions; i++) trial_record_done(&v->record[i]);
    free(v->record);
    free(v->bad);
    verify_findings_done(&v->findings);
    progress_free(v->progress);
}

/* ---- each rank alone ---- */

static TrialSpec alone(const Verify *v, int job, int precision, int batch) {
    const Precision *p = &v->precision[precision];
    return (TrialSpec){
        .job = job, .batch = batch, .micro_batch = 2, .dtype = p->dtype, .fp8 = p->fp8, .wide = p->fp8};
}

/* What a rank's own runs have found. */
typedef struct Alone {
    Diff diff;
    int step;
    uint64_t bits;
} Alone;

static Status report_alone(Verify *v, CheckKind check, const TrialSpec *spec, const Alone *all,
                           const bool *rank, int worst) {
    char text[TRIAL_TEXT];
    const Diff *diff = &all[worst].diff;
    bool kernels = check == CHECK_KERNELS;
    int param = kernels ? diff->param[diff->first] : -1;
    return verify_fault(&v->findings, &(Fault){.check = check,
                                               .layout = trial_text(text, spec),
                                               .step = kernels ? all[worst].step : 0,
                                               .what = kernels ? diff_name(diff->first) : "bits",
                                               .spec = spec,
                                               .param = param,
                                               .difference = kernels ? diff->of[diff->first] : 0,
                                               .limit = kernels ? diff_limit(spec, diff->first) : 0,
                                               .rank = rank});
}

/* Ranks of the same kind of machine must have the same bits, those of others are compared by the kernels'
 * check alone. Marks those in the minority, or all if there is none. */
static bool mark_others(const Alone *all, const uint64_t *kind, int ranks, bool *rank) {
    bool same = true;
    for (int r = 0; r < ranks; r++) {
        int alike = 0, others = 0;
        for (int s = 0; s < ranks; s++) {
            alike += kind[s] == kind[r] && all[s].bits == all[r].bits;
            others += kind[s] == kind[r] && all[s].bits != all[r].bits;
        }
        rank[r] = others > 0 && alike <= others;
        same &= !others;
    }
    return same;
}

/* The first rank whose own results are right and, among those, not in a minority. */
static int find_good(const bool *wrong, const bool *other, int ranks) {
    for (int r = 0; r < ranks; r++)
        if (!wrong[r] && !other[r]) return r;
    for (int r = 0; r < ranks; r++)
        if (!wrong[r]) return r;
    return 0;
}

/* Runs a job on this rank alone, also with the reference kernels on its CPU, and compares with the others'.
 * The record of a rank that is right becomes everyone's. */
static Status check_alone(Verify *v, int job, int precision, Device *cpu, const uint64_t *kind) {
    Group *host = v->spec->host;
    int ranks = host->size, worst = 0, failed = 0;
    const KernelTable *reference;
    TrialSpec spec = alone(v, job, precision, TRIAL_BATCH);
    Record *record = &v->record[job * v->precisions + precision];
    CLEANUP(trial_record_done) Record plain = {0};
    CLEANUP(mem_freep) Alone *all = NULL;
    CLEANUP(mem_freep) bool *wrong = NULL, *other = NULL;
    TRY(mem_new((size_t)ranks, sizeof *all, &all));
    TRY(mem_new((size_t)ranks, sizeof *wrong, &wrong));
    TRY(mem_new((size_t)ranks, sizeof *other, &other));
    TRY(kernels_find("ref", &reference));
    TRY(trial_record(&plain, &spec, reference, cpu, false, NULL));
    RecordCheck check = {.expected = &plain, .diff = DIFF_NONE};
    TRY(trial_record(record, &spec, v->table, v->spec->device, v->spec->flip == host->rank, &check));
    Alone own = {.diff = check.diff, .step = check.step, .bits = record->bits};
    TRY(host_gather(host, all, &own, sizeof own));
    Diff diff = {0};
    for (int r = 0; r < ranks; r++) {
        diff_add(&diff, &all[r].diff);
        wrong[r] = all[r].diff.exceeded;
        if (wrong[r] && !failed++) worst = r;
    }
    verify_case(&v->findings, CHECK_KERNELS, precision, &spec, &diff, failed > 0);
    if (failed) TRY(report_alone(v, CHECK_KERNELS, &spec, all, wrong, worst));
    bool same = mark_others(all, kind, ranks, other);
    if (ranks > 1) verify_case(&v->findings, CHECK_RANKS, precision, &spec, NULL, !same);
    if (!same && !failed) TRY(report_alone(v, CHECK_RANKS, &spec, all, other, 0));
    for (int r = 0; r < ranks; r++) v->bad[r] |= wrong[r] || other[r];
    return trial_record_share(record, host, find_good(wrong, other, ranks));
}

/* The next rank that is right, in turn; any if none is. */
static int next_right(const bool *bad, int ranks, int rank) {
    for (int i = 1; i <= ranks; i++)
        if (!bad[(rank + i) % ranks]) return (rank + i) % ranks;
    return (rank + 1) % ranks;
}

/* Many ranks train on larger batches in layouts. Ranks that are right take turns in computing what one rank
 * does with these, so that a rank's work does not grow with their number. */
static Status record_batches(Verify *v) {
    Group *host = v->spec->host;
    int count = v->jobs * v->precisions, root = host->size - 1;
    CLEANUP(mem_freep) int *roots = NULL;
    TRY(mem_new((size_t)count, sizeof *roots, &roots));
    for (int i = 0; i < count; i++) {
        TrialSpec spec = alone(v, i / v->precisions, i % v->precisions, v->batch);
        Record *record = &v->record[i];
        root = roots[i] = next_right(v->bad, host->size, root);
        record->spec = spec;
        if (root != host->rank) continue;
        progress_update(v->progress, 0, "one rank on larger batches");
        trial_record_done(record);
        TRY(trial_record(record, &spec, v->table, v->spec->device, false, NULL));
    }
    for (int i = 0; i < count; i++) TRY(trial_record_share(&v->record[i], host, roots[i]));
    return OK;
}

static Status check_each(Verify *v) {
    CLEANUP(device_freep) Device *cpu = NULL;
    CLEANUP(mem_freep) uint64_t *kind = NULL;
    char name[CPU_NAME], text[64];
    TRY(device_new_cpu(&cpu, 1));
    TRY(mem_new((size_t)v->spec->host->size, sizeof *kind, &kind));
    host_cpu(name);
    uint64_t own = rng_mix(rng_hash(name), rng_hash(kernels_cpu_isa()));
    TRY(host_gather(v->spec->host, kind, &own, sizeof own));
    for (int job = 0; job < v->jobs; job++)
        for (int p = 0; p < v->precisions; p++) {
            TrialJob of;
            trial_job(job, &of);
            snprintf(text, sizeof text, "%s %s, each rank alone", of.name, v->precision[p].name);
            progress_update(v->progress, 0, text);
            TRY(check_alone(v, job, p, cpu, kind));
        }
    return v->batch == TRIAL_BATCH ? OK : record_batches(v);
}

/* ---- the machine ---- */

static void describe(const Device *device, char *text, size_t size) {
    CudaInfo info;
    char cpu[CPU_NAME];
    if (device_is_host(device)) {
        host_cpu(cpu);
        snprintf(text, size, "%s, %s", cpu, kernels_cpu_isa());
        return;
    }
    device_cuda_info(&info);
    snprintf(text, size, "%s %s", info.device[device->index].name, info.device[device->index].place.text);
}

static Status list_ranks(Verify *v, json_t **ret_list) {
    enum { TEXT = 192 };
    Group *host = v->spec->host;
    char own[TEXT], name[HOST_SIZE];
    CLEANUP(mem_freep) char(*all)[TEXT] = NULL;
    TRY(mem_new((size_t)host->size, sizeof *all, &all));
    describe(v->spec->device, own, sizeof own);
    TRY(host_gather(host, all, own, sizeof own));
    json_t *list = json_array();
    for (int r = 0; r < host->size; r++)
        json_array_append_new(list, json_pack("{s:i, s:s, s:s}", "rank", r, "host", group_host(host, r, name),
                                              "device", all[r]));
    *ret_list = list;
    return OK;
}

static json_t *link_json(const PairLink *link, size_t count) {
    if (!count) return json_null();
    PairLink slowest = links_slowest(link, count);
    return json_pack("{s:f, s:f}", "latency_us", 1e6 * slowest.latency_s, "mbytes_per_s",
                     1e-6 * slowest.bandwidth);
}

static Status measure_links(Verify *v, json_t **ret_links) {
    LinkTable links = {0};
    if (v->spec->world->size > 1) {
        progress_update(v->progress, 0, "links");
        TRY(links_measure(&links, v->spec->world, v->spec->device));
    }
    *ret_links = json_pack("{s:o, s:o}", "within", link_json(links.within, links.withins), "between",
                           link_json(links.between, links.betweens));
    link_table_done(&links);
    return OK;
}

static void find_precisions(Verify *v) {
    static const char *const names[COVER_PRECISIONS] = {"fp32", "bf16", "fp16", "fp8"};
    bool gpu = !device_is_host(v->spec->device);
    for (int i = 0; i < COVER_PRECISIONS; i++) {
        Precision *precision = &v->precision[v->precisions];
        CLEANUP(status_freep) Status without = kernels_precision(gpu ? "cuda" : "cpu", names[i], precision);
        if (!without) without = device_check_precision(v->spec->device, names[i]);
        v->precisions += !without;
    }
}

static Status run(Verify *v, json_t **ret_result) {
    CLEANUP(json_decrefp) json_t *links = NULL, *ranks = NULL, *checks = NULL;
    double start = clock_wall();
    bool ok;
    TrialJob job;
    TRY(kernels_find(v->spec->kernels, &v->table));
    find_precisions(v);
    TRY(verify_findings_init(&v->findings, v->spec->host));
    while (trial_job(v->jobs, &job)) v->jobs++;
    TRY(mem_new((size_t)(v->jobs * v->precisions), sizeof *v->record, &v->record));
    TRY(mem_new((size_t)v->spec->host->size, sizeof *v->bad, &v->bad));
    TRY(progress_new(&v->progress, v->spec->log, "verify", 100, 5, !v->spec->log));
    v->batch = cover_batch(v->spec->host->size);
    TRY(list_ranks(v, &ranks));
    TRY(check_each(v));
    TRY(measure_links(v, &links));
    v->end = clock_wall() + v->spec->seconds;
    if (v->spec->host->size > 1) TRY(verify_moves(v));
    TRY(verify_layouts(v));
    progress_end(v->progress);
    TRY(verify_findings_json(&v->findings, v->precision, v->precisions, &checks, &ok));
    *ret_result = json_pack("{s:b, s:f, s:O, s:I, s:I, s:O, s:O, s:O}", "ok", (int)ok, "seconds",
                            clock_wall() - start, "ranks", ranks, "pairs", (json_int_t)v->pairs,
                            "pairs_covered", (json_int_t)v->pairs_covered, "checks", checks, "failures",
                            v->findings.failures, "links", links);
    return *ret_result ? OK : FAILED("out of memory");
}

Status verify_run(const VerifySpec *spec, json_t **ret_result) {
    Verify v = {.spec = spec};
    Status status = run(&v, ret_result);
    verify_done(&v);
    return status;
}
