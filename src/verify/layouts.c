#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/progress.h"
#include "verify/internal.h"

/* Steps of the second run of a layout, whose bits must be those of the first. */
enum { REPEATED_STEPS = 2 };

/* What a layout's ranks found. */
typedef struct Outcome {
    Diff diff;    /* the largest differences */
    bool differs; /* from one rank */
    bool repeats, equal;
    int step, param; /* of the first difference */
    DiffKind kind;
    double difference;
    uint64_t bits[REPEATED_STEPS];
} Outcome;

/* ---- one rank's differences, together ---- */

/* Adds a step's differences of all ranks; the first step that exceeds a limit says where. */
static Status add_step(Group *group, const Diff *own, int step, const TrialSpec *spec, Outcome *outcome,
                       bool *rank) {
    CLEANUP(mem_freep) Diff *all = NULL;
    TRY(mem_new((size_t)group->size, sizeof *all, &all));
    TRY(host_gather(group, all, own, sizeof *own));
    DiffKind kind = DIFF_KINDS;
    for (int r = 0; r < group->size; r++) {
        diff_add(&outcome->diff, &all[r]);
        if (all[r].exceeded && all[r].first < kind) kind = all[r].first;
    }
    if (kind == DIFF_KINDS) return OK;
    outcome->differs = true;
    outcome->step = step + 1;
    outcome->kind = kind;
    for (int r = 0; r < group->size; r++) {
        rank[r] = diff_is_more(all[r].of[kind], diff_limit(spec, kind));
        if (!rank[r] || !diff_is_more(all[r].of[kind], outcome->difference)) continue;
        outcome->difference = all[r].of[kind];
        outcome->param = all[r].param[kind];
    }
    return OK;
}

/* ---- copies ---- */

typedef struct Copy {
    PieceHash hash;
    int rank;
} Copy;

static int by_place(const void *a, const void *b) {
    const Copy *one = a, *two = b;
    if (one->hash.param != two->hash.param) return one->hash.param < two->hash.param ? -1 : 1;
    if (one->hash.first != two->hash.first) return one->hash.first < two->hash.first ? -1 : 1;
    if (one->hash.count != two->hash.count) return one->hash.count < two->hash.count ? -1 : 1;
    return one->rank - two->rank;
}

static bool same_place(const Copy *one, const Copy *two) {
    return one->hash.param == two->hash.param && one->hash.first == two->hash.first &&
           one->hash.count == two->hash.count;
}

/* Copies 0 .. count - 1 of the same elements: marks the ranks in the minority, or all if there is none. */
static bool mark_unequal(const Copy *copy, size_t count, bool *rank) {
    size_t most = 0, best = 0;
    bool tie = false;
    for (size_t i = 0; i < count; i++) {
        size_t alike = 0;
        for (size_t j = 0; j < count; j++) alike += copy[i].hash.crc == copy[j].hash.crc;
        if (alike == most && copy[i].hash.crc != copy[best].hash.crc) tie = true;
        if (alike > most) most = alike, best = i, tie = false;
    }
    for (size_t i = 0; i < count; i++)
        if (most < count) rank[copy[i].rank] |= tie || copy[i].hash.crc != copy[best].hash.crc;
    return most == count;
}

/* Compares what ranks have of the same elements, in stages, shards and replicas. */
static Status compare_copies(const Trial *trial, Group *group, Outcome *outcome, bool *rank) {
    CLEANUP(mem_freep) PieceHash *own = NULL, *all = NULL;
    CLEANUP(mem_freep) Copy *copy = NULL;
    size_t count = 0, copies = 0;
    TRY(trial_pieces(trial, &own, &count));
    TRY(mem_new(count * (size_t)group->size, sizeof *all, &all));
    TRY(mem_new(count * (size_t)group->size, sizeof *copy, &copy));
    TRY(host_gather(group, all, own, count * sizeof *own));
    for (size_t i = 0; i < count * (size_t)group->size; i++)
        if (all[i].count) copy[copies++] = (Copy){all[i], (int)(i / count)};
    qsort(copy, copies, sizeof *copy, by_place);
    for (size_t from = 0, to; from < copies; from = to) {
        for (to = from + 1; to < copies && same_place(&copy[from], &copy[to]);) to++;
        if (mark_unequal(&copy[from], to - from, rank) || !outcome->equal) continue;
        outcome->equal = false;
        outcome->step = RECORD_STEPS;
        outcome->param = (int)copy[from].hash.param;
    }
    return OK;
}

/* ---- a layout ---- */

static Status run_steps(Verify *v, const TrialSpec *spec, Mesh *mesh, Outcome *outcome, bool *rank) {
    CLEANUP(trial_done) Trial trial = {0};
    const Record *record = verify_record(v, spec);
    uint64_t bits = 0;
    TRY(trial_new(&trial, spec, v->table, v->spec->device, mesh));
    for (int step = 0; step < RECORD_STEPS && !outcome->differs; step++) {
        StepResult result;
        Diff diff = DIFF_NONE;
        TRY(trial_step(&trial, step, record_compare_gradients, &(RecordDiff){record, &diff}, &result));
        if (step < REPEATED_STEPS) {
            TRY(trial_bits(&trial, &result, &bits));
            outcome->bits[step] = bits;
        }
        if (mesh->rank == v->spec->flip && step == 1) TRY(trial_flip(&trial));
        TRY(record_compare_update(record, &trial, step, &diff));
        TRY(add_step(mesh->world, &diff, step, spec, outcome, rank));
    }
    return outcome->differs ? OK : compare_copies(&trial, mesh->world, outcome, rank);
}

static Status repeat_steps(Verify *v, const TrialSpec *spec, Mesh *mesh, Outcome *outcome, bool *rank) {
    CLEANUP(trial_done) Trial trial = {0};
    CLEANUP(mem_freep) int *all = NULL;
    uint64_t bits = 0;
    int differs = 0;
    TRY(mem_new((size_t)mesh->size, sizeof *all, &all));
    TRY(trial_new(&trial, spec, v->table, v->spec->device, mesh));
    for (int step = 0; step < REPEATED_STEPS; step++) {
        StepResult result;
        TRY(trial_step(&trial, step, NULL, NULL, &result));
        TRY(trial_bits(&trial, &result, &bits));
        if (bits != outcome->bits[step] && !differs) differs = step + 1;
    }
    TRY(host_gather(mesh->world, all, &differs, sizeof differs));
    for (int r = 0; r < mesh->size; r++) {
        rank[r] = all[r];
        if (all[r] && (outcome->repeats || all[r] < outcome->step)) outcome->step = all[r];
        if (all[r]) outcome->repeats = false;
    }
    return OK;
}

/* Runs a layout, whose ranks are the world's first; the result is known to all. `rank`: those on which it
 * differs. */
static Status run_layout(Verify *v, const TrialSpec *spec, bool again, Outcome *ret_outcome, bool *rank) {
    Group *host = v->spec->host;
    Mesh *mesh = NULL;
    Outcome outcome = {.repeats = true, .equal = true, .param = -1, .diff = DIFF_NONE};
    char text[TRIAL_TEXT];
    memset(rank, 0, (size_t)host->size);
    TRY(verify_mesh(v, spec->mesh, &mesh));
    Status status = mesh ? run_steps(v, spec, mesh, &outcome, rank) : OK;
    bool passed = !outcome.differs && outcome.equal;
    if (!status && mesh && again && passed) status = repeat_steps(v, spec, mesh, &outcome, rank);
    if (status) return status_wrap(status, "%s", trial_text(text, spec));
    TRY(host_broadcast(host, &outcome, sizeof outcome, 0));
    TRY(host_broadcast(host, rank, (size_t)host->size, 0));
    *ret_outcome = outcome;
    return OK;
}

static bool has_failed(const Outcome *outcome) {
    return outcome->differs || !outcome->equal || !outcome->repeats;
}

/* ---- the smallest layout ---- */

enum { SIMPLER = 15 };

/* The k-th simplification of a layout. */
static TrialSpec simplify(TrialSpec spec, int k) {
    switch (k) {
    case 0: spec.mesh.pp = 1, spec.schedule = SCHEDULE_1F1B, spec.chunks = 1; break;
    case 1: spec.mesh.tp = 1, spec.sequence = false; break;
    case 2: spec.mesh.dp = 1, spec.mesh.shard = 0; break;
    case 3: spec.mesh.dp = spec.mesh.dp > 2 ? 2 : spec.mesh.dp, spec.mesh.shard = 0; break;
    case 4: spec.mesh.ep = 0; break;
    case 5: spec.zero = 0, spec.keep = false, spec.mesh.shard = 0, spec.offload = OFFLOAD_NONE; break;
    case 6: spec.schedule = SCHEDULE_1F1B, spec.chunks = 1; break;
    case 7: spec.recompute = RECOMPUTE_NONE; break;
    case 8: spec.sequence = false; break;
    case 9: spec.keep = false; break;
    case 10: spec.offload = OFFLOAD_NONE; break;
    case 11: spec.job = 0; break;
    case 12: spec.dtype = DT_F32, spec.fp8 = spec.wide = false; break;
    case 13: spec.mesh.cp = 1, spec.mesh.shard = spec.mesh.heads = 0, spec.cp_mode = CONTEXT_AUTO; break;
    case 14: spec.mesh.heads = 0, spec.cp_mode = CONTEXT_AUTO; break;
    }
    int ep = mesh_experts_fit(spec.mesh);
    spec.mesh.ep = ep > 1 ? ep : 0;
    return spec;
}

/* Simplifies a layout that fails as long as it fails. */
static Status find_smallest(Verify *v, TrialSpec *spec) {
    enum { SEARCH_S = 20 };
    CLEANUP(mem_freep) bool *rank = NULL;
    double end = clock_wall() + SEARCH_S;
    TRY(mem_new((size_t)v->spec->host->size, sizeof *rank, &rank));
    for (int k = 0; k < SIMPLER; k++) {
        TrialSpec simpler = simplify(*spec, k);
        bool has;
        Outcome outcome;
        if (!memcmp(&simpler, spec, sizeof simpler) || !trial_is_legal(&simpler)) continue;
        if (mesh_ranks(simpler.mesh, AXES_ALL) == 1) continue; /* one rank has nothing to differ from */
        TRY(verify_has_time(v, end, &has));
        if (!has) break;
        TRY(run_layout(v, &simpler, true, &outcome, rank));
        if (has_failed(&outcome)) *spec = simpler;
    }
    return OK;
}

/* ---- all of them ---- */

static Status report(Verify *v, const TrialSpec *spec, const Outcome *outcome, const bool *rank) {
    enum { SEARCHED = 2 }; /* failures for which the smallest layout is searched */
    char text[TRIAL_TEXT], smallest[TRIAL_TEXT];
    TrialSpec smaller = *spec;
    CheckKind check = outcome->differs ? CHECK_LAYOUTS : outcome->equal ? CHECK_REPEATS : CHECK_REPLICAS;
    bool searched = v->failing++ < SEARCHED;
    if (searched) TRY(find_smallest(v, &smaller));
    Fault fault = {.check = check,
                   .layout = trial_text(text, spec),
                   .smallest = searched ? trial_text(smallest, &smaller) : NULL,
                   .step = outcome->step,
                   .what = outcome->differs ? diff_name(outcome->kind) : "bits",
                   .spec = spec,
                   .param = check == CHECK_REPEATS ? -1 : outcome->param,
                   .difference = outcome->difference,
                   .limit = outcome->differs ? diff_limit(spec, outcome->kind) : 0,
                   .rank = rank};
    return verify_fault(&v->findings, &fault);
}

static Status check_layout(Verify *v, const TrialSpec *spec) {
    CLEANUP(mem_freep) bool *rank = NULL;
    Outcome outcome;
    int precision = verify_precision(v, spec);
    TRY(mem_new((size_t)v->spec->host->size, sizeof *rank, &rank));
    TRY(run_layout(v, spec, true, &outcome, rank));
    verify_case(&v->findings, CHECK_LAYOUTS, precision, spec, &outcome.diff, outcome.differs);
    if (!outcome.differs) verify_case(&v->findings, CHECK_REPLICAS, precision, spec, NULL, !outcome.equal);
    if (!outcome.differs && outcome.equal)
        verify_case(&v->findings, CHECK_REPEATS, precision, spec, NULL, !outcome.repeats);
    return has_failed(&outcome) ? report(v, spec, &outcome, rank) : OK;
}

Status verify_layouts(Verify *v) {
    enum { FAILURES = 4 }; /* enough to see a pattern */
    CLEANUP(cover_done) Cover cover = {0};
    Group *host = v->spec->host;
    bool first = host->rank == 0, has = true;
    if (first)
        TRY(cover_init(&cover, host->size, !device_is_host(v->spec->device), v->precision, v->precisions));
    while (has && v->failing < FAILURES) {
        struct {
            bool found;
            TrialSpec spec;
        } next = {0};
        char text[TRIAL_TEXT];
        if (first) next.found = cover_next(&cover, &next.spec);
        TRY(host_broadcast(host, &next, sizeof next, 0));
        if (!next.found) break;
        progress_update(v->progress, 100 * cover.covered / (cover.pairs ? cover.pairs : 1),
                        trial_text(text, &next.spec));
        TRY(check_layout(v, &next.spec));
        TRY(verify_has_time(v, v->end, &has));
    }
    v->pairs = cover.pairs;
    v->pairs_covered = cover.covered;
    TRY(host_broadcast(host, &v->pairs, sizeof v->pairs, 0));
    return host_broadcast(host, &v->pairs_covered, sizeof v->pairs_covered, 0);
}
