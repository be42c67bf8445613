/* Checkpoints: each is saved in one layout after half of the steps, and loaded in the next one, which must
 * have the same weights and continue like one rank. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/progress.h"
#include "train/job.h"
#include "verify/internal.h"

enum { HALF = RECORD_STEPS / 2, MOVES = 16 };

/* Directory and disk, for all moves. */
typedef struct Place {
    char *dir;      /* on rank 0, and elsewhere if all ranks are on one host */
    RootDisk *disk; /* NULL: they are */
    bool made;      /* by this rank */
} Place;

static void place_done(Place *place) {
    if (place->made) status_free(dir_remove(place->dir));
    free(place->dir);
    root_disk_free(place->disk);
}

static Status place_init(Verify *v, Place *ret_place) {
    enum { PATH = 512 };
    Group *host = v->spec->host;
    char path[PATH] = "";
    Place place = {0};
    if (host->rank == 0) {
        TRY(dir_make_temporary(&place.dir));
        place.made = true;
        snprintf(path, sizeof path, "%s", place.dir);
    }
    Status status = host_broadcast(host, path, sizeof path, 0);
    bool shared = group_hosts(host) == 1;
    if (!status && !shared) status = root_disk_new(&place.disk, host, v->spec->device);
    if (!status && host->rank && shared) status = str_dup(path, &place.dir);
    if (status) {
        place_done(&place);
        return status;
    }
    *ret_place = place;
    return OK;
}

/* A checksum of all weights, the same on all ranks: -1 where this rank has none of an element, and every
 * rank that has it has the same bits. */
static Status weights_crc(const Trial *trial, Group *world, int64_t numel, uint32_t *ret_crc) {
    CLEANUP(mem_freep) int64_t *bits = NULL;
    TRY(mem_new((size_t)numel, sizeof *bits, &bits));
    for (int64_t i = 0; i < numel; i++) bits[i] = -1;
    TRY(trial_weight_bits(trial, bits));
    TRY(host_reduce(world, bits, numel, DT_I64, REDUCE_MAX));
    *ret_crc = crc32c(0, bits, (size_t)numel * sizeof *bits);
    return OK;
}

static Status save(Verify *v, const TrialSpec *spec, const Place *place, uint32_t *ret_crc) {
    CLEANUP(trial_done) Trial trial = {0};
    CLEANUP(json_decrefp) json_t *progress = json_pack("{s:i}", "step", HALF);
    Mesh *mesh;
    TRY(verify_mesh(v, spec->mesh, &mesh));
    TRY(trial_new(&trial, spec, v->table, v->spec->device, mesh));
    Runner *runner = trial.runner;
    for (int step = 0; step < HALF; step++) {
        StepResult result;
        TRY(trial_step(&trial, step, NULL, NULL, &result));
    }
    TRY(weights_crc(&trial, v->spec->host, verify_record(v, spec)->numel, ret_crc));
    TRY(runner_balance_save(runner, progress));
    CheckpointState state = runner_checkpoint(runner);
    state.progress = progress;
    state.disk = place->disk;
    return ckpt_save(place->dir ? place->dir : "", HALF, &state, runner->stream, 1);
}

static Status load(const Place *place, Runner *runner, Group *host) {
    CLEANUP(mirror_done) Mirror mirror = {0};
    CLEANUP(mem_freep) char *dir = NULL;
    CLEANUP(json_decrefp) json_t *progress = NULL;
    if (!place->disk || host->rank == 0) TRY(ckpt_latest(place->dir, &dir));
    if (place->disk) TRY(mirror_init(&mirror, place->disk, dir ? dir : ""));
    const char *from = place->disk ? mirror.path : dir;
    if (!from) return FAILED("%s: the checkpoint is not there", place->dir ? place->dir : "rank 0");
    CheckpointState state = runner_checkpoint(runner);
    state.disk = place->disk;
    TRY(ckpt_load(from, &state, runner->stream, NULL, &progress));
    TRY(runner_balance_load(runner, from, progress));
    return runner_publish(runner);
}

/* Loads the checkpoint and continues; the differences are this rank's. */
static Status resume(Verify *v, const TrialSpec *spec, const Place *place, uint32_t saved, bool *ret_equal,
                     Diff *diff, int *ret_step) {
    CLEANUP(trial_done) Trial trial = {0};
    const Record *record = verify_record(v, spec);
    Mesh *mesh;
    uint32_t crc;
    TRY(verify_mesh(v, spec->mesh, &mesh));
    TRY(trial_new(&trial, spec, v->table, v->spec->device, mesh));
    TRY(load(place, trial.runner, v->spec->host));
    TRY(weights_crc(&trial, v->spec->host, record->numel, &crc));
    *ret_equal = crc == saved;
    for (int step = HALF; step < RECORD_STEPS; step++) {
        StepResult result;
        bool before = diff->exceeded;
        TRY(trial_step(&trial, step, record_compare_gradients, &(RecordDiff){record, diff}, &result));
        TRY(record_compare_update(record, &trial, step, diff));
        if (diff->exceeded && !before) *ret_step = step + 1;
    }
    return OK;
}

static Status move(Verify *v, const TrialSpec *from, const TrialSpec *to, const Place *place) {
    Group *host = v->spec->host;
    CLEANUP(mem_freep) Diff *all = NULL;
    CLEANUP(mem_freep) bool *rank = NULL;
    Diff diff = DIFF_NONE;
    uint32_t saved = 0;
    bool equal = false;
    int step = 0;
    char text[TRIAL_TEXT], next[TRIAL_TEXT], both[2 * TRIAL_TEXT + 8];
    snprintf(both, sizeof both, "%s, then %s", trial_text(text, from), trial_text(next, to));
    TRY(mem_new((size_t)host->size, sizeof *all, &all));
    TRY(mem_new((size_t)host->size, sizeof *rank, &rank));
    Status status = save(v, from, place, &saved);
    if (!status) status = resume(v, to, place, saved, &equal, &diff, &step);
    if (status) return status_wrap(status, "%s", both);
    TRY(host_gather(host, all, &diff, sizeof diff));
    int64_t first = step ? -step : -RECORD_STEPS - 1;
    TRY(host_reduce(host, &first, 1, DT_I64, REDUCE_MAX));
    Diff worst = DIFF_NONE;
    for (int r = 0; r < host->size; r++) {
        diff_add(&worst, &all[r]);
        rank[r] = all[r].exceeded || !equal;
    }
    bool failed = worst.exceeded || !equal;
    verify_case(&v->findings, CHECK_MOVES, verify_precision(v, to), to, &worst, failed);
    if (!failed) return OK;
    int param = equal ? worst.param[worst.first] : -1;
    return verify_fault(&v->findings,
                        &(Fault){.check = CHECK_MOVES,
                                 .layout = both,
                                 .step = equal ? (int)-first : HALF,
                                 .what = equal ? diff_name(worst.first) : "weights after loading",
                                 .spec = to,
                                 .param = param,
                                 .difference = equal ? worst.of[worst.first] : 0,
                                 .limit = equal ? diff_limit(to, worst.first) : 0,
                                 .rank = rank});
}

Status verify_moves(Verify *v) {
    CLEANUP(cover_done) Cover cover = {0};
    CLEANUP(place_done) Place place = {0};
    double end = clock_wall() + 0.2 * v->spec->seconds;
    TrialSpec before = {0};
    bool has = true, any = false; /* however slow the machine is, one is tried */
    char text[TRIAL_TEXT];
    /* Each layout is loaded from that before it, as another model in turn, in fp32. */
    TRY(cover_init(&cover, v->spec->host->size, !device_is_host(v->spec->device), v->precision, 1));
    TRY(place_init(v, &place));
    for (int i = 0; i <= MOVES && (has || !any); i++) {
        TrialSpec next;
        if (!cover_next(&cover, &next)) break;
        before.job = next.job;
        bool tried = i && trial_is_legal(&before); /* as this model */
        if (tried) progress_update(v->progress, 0, trial_text(text, &next));
        if (tried) TRY(move(v, &before, &next, &place));
        any |= tried;
        before = next;
        TRY(verify_has_time(v, end, &has));
    }
    return OK;
}
