/* Rounds of pruning, each followed by training to recover.
 *
 *   OUT/pruning.json   settings, and a row for each completed round
 *   OUT/round-K        the training run of round K; its checkpoint is the model of that round
 *   OUT/pruned-K       the pruned model it started from, while the round is in progress
 *   OUT/latest         link to the last round's checkpoint, so that OUT can be used as a model
 *
 * Round 0, the baseline, trains just as long without pruning. Each round depends only on the previous one, so
 * a resumed run redoes or continues rounds that have no row. Rank 0 prunes and writes; all ranks train. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "compress/prune_rounds.h"
#include "train/run_summary.h"

typedef struct Rounds {
    const PruneSpec *spec;
    const char *out;
    const char *base; /* a run whose round 0 is shared, or NULL */
    ModelDir dense;   /* the original checkpoint ... */
    PruneState size;  /* ... and its size; on rank 0 */
    char *file;       /* pruning.json */
    json_t *result;   /* its contents */
    json_t *beside;   /* pruning.json of spec->beside, or NULL */
    bool first;       /* this is rank 0 */
    bool stopped;     /* a round was interrupted */
} Rounds;

static void rounds_done(Rounds *r) {
    model_dir_done(&r->dense);
    free(r->file);
    json_decref(r->result);
    json_decref(r->beside);
}

/* The pruned fraction after a round. It starts from that of round 0, because a model may already have zeros.
 */
static double amount_after(const Rounds *r, int64_t round) {
    double progress = (double)round / (double)r->spec->rounds, last = r->spec->amount, first = 0;
    json_has_number(json_array_get(json_object_get(r->result, "rounds"), 0), "sparsity", &first);
    if (round == r->spec->rounds) return last;
    if (!strcmp(r->spec->ramp, "even")) return first + (last - first) * progress;
    return 1 - (1 - first) * pow((1 - last) / (1 - first), progress);
}

static Status round_path(const Rounds *r, const char *name, int64_t round, char **ret_path) {
    return str_format(ret_path, "%s/%s-%lld", r->out, name, (long long)round);
}

/* Settings that must not change when a run is resumed. */
static Status describe(Rounds *r) {
    const PruneSpec *a = r->spec;
    r->result = json_pack("{s:{s:s, s:s, s:s?, s:f, s:s, s:s, s:I, s:I, s:I}, s:[]}", "settings", "model",
                          r->dense.path, "kind", a->kind, "score", a->score, "amount", a->amount, "scope",
                          a->per_matrix ? "per-matrix" : "global", "ramp", a->ramp, "rounds",
                          (json_int_t)a->rounds, "steps_per_round", (json_int_t)a->steps_per_round,
                          "row_multiple", (json_int_t)a->row_multiple, "rounds");
    return r->result ? OK : FAILED("out of memory");
}

/* Reads the completed rounds of a run to resume. Otherwise the directory must be new or empty. */
static Status open_out(Rounds *r) {
    TRY(path_join(&r->file, r->out, "pruning.json"));
    TRY(describe(r));
    bool begun = r->spec->resume && path_exists(r->file);
    if (r->first && !begun) TRY(hf_save_check(r->out));
    TRY(barrier(r->spec->world));
    if (begun) {
        CLEANUP(json_decrefp) json_t *saved = NULL;
        TRY(json_read_file(r->file, &saved));
        if (!json_equal(json_object_get(saved, "settings"), json_object_get(r->result, "settings")))
            return USAGE("%s was started with different options; repeat those, or choose another {out}",
                         r->file);
        if (!json_is_array(json_object_get(saved, "rounds")))
            return FAILED("%s: 'rounds' must be a list", r->file);
        json_decref(r->result);
        r->result = json_incref(saved);
    }
    if (!r->first) return OK;
    TRY(dir_make(r->out));
    return json_write_file(r->file, r->result);
}

static Status open_beside(Rounds *r) {
    CLEANUP(mem_freep) char *path = NULL;
    if (!r->spec->beside) return OK;
    TRY(path_join(&path, r->spec->beside, "pruning.json"));
    TRY(json_read_file(path, &r->beside));
    if (json_is_array(json_object_get(r->beside, "rounds"))) return OK;
    return FAILED("%s: 'rounds' must be a list", path);
}

/* ---- one round ---- */

/* Round 0: nothing is pruned. Rejects an amount that the model has already reached. */
static Status check_dense(const Rounds *r) {
    double sparsity = prune_sparsity(r->spec, &r->size, &r->size);
    if (r->spec->amount <= sparsity)
        return USAGE("{amount} %g: the fraction %.4g of the layers' %s is already zero; use a larger amount",
                     r->spec->amount, sparsity,
                     !strcmp(r->spec->kind, "weights") ? "weights" : "matrix rows");
    return OK;
}

/* On rank 0: writes the model that the round starts from, and its size. */
static Status prune_round(Rounds *r, int64_t round, const char *start, PruneState *ret_state) {
    CLEANUP(mem_freep) char *before = NULL, *newest = NULL;
    if (round == 0) {
        *ret_state = r->size;
        return check_dense(r);
    }
    TRY(round_path(r, "round", round - 1, &before));
    TRY(ckpt_latest(before, &newest));
    TRY(dir_remove(start));
    return prune_model(r->spec, newest, amount_after(r, round), &r->size, start, ret_state);
}

/* The settings of a round's training run, as train would write them. */
static Status train_settings(const Rounds *r, const Settings *config, json_t **ret_settings) {
    CLEANUP(json_decrefp) json_t *settings = json_clone((json_t *)(uintptr_t)r->spec->settings);
    CLEANUP(json_decrefp)
    json_t *changed = json_pack("{s:s, s:s, s:I, s:I, s:b}", "model", config->model.name, "out",
                                config->ckpt.out, "steps", (json_int_t)config->training.steps, "seed",
                                (json_int_t)config->run.seed, "keep-zeros", config->run.optim.keep_zeros);
    if (!settings || !changed || json_object_update(settings, changed)) return FAILED("out of memory");
    *ret_settings = json_incref(settings);
    return OK;
}

static Status train_round(Rounds *r, int64_t round, const char *start, const char *run,
                          json_t **ret_summary) {
    const PruneSpec *spec = r->spec;
    Settings config = spec->train;
    config.model.name = start;
    config.ckpt.out = run;
    config.training.steps = config.validation.every = spec->steps_per_round;
    config.training.epochs = 0;
    config.run.seed += (uint64_t)round; /* another data order */
    config.ckpt.save_every = 0;
    config.ckpt.keep = config.report.log_every = 1;
    config.ckpt.resume = path_is_dir(run);
    if (prune_leaves_zeros(spec)) config.run.optim.keep_zeros = true;
    CLEANUP(json_decrefp) json_t *settings = NULL;
    TRY(train_settings(r, &config, &settings));
    return train_run(&config, settings, ret_summary);
}

/* ---- results ---- */

static int ascending(const void *one, const void *two) {
    double a = *(const double *)one, b = *(const double *)two;
    return (a > b) - (a < b);
}

typedef struct StepTimes {
    double *at;
    size_t count, capacity;
} StepTimes;

static void step_times_done(StepTimes *times) {
    free(times->at);
}

static Status add_line(const json_t *line, StepTimes *times, double *val_loss) {
    double value;
    if (json_has_number(line, "val_loss", &value) && json_int_at(line, "step") == 0) *val_loss = value;
    if (!json_has_number(line, "step_ms", &value)) return OK;
    TRY(mem_grow(&times->at, &times->capacity, times->count + 1, sizeof *times->at));
    times->at[times->count++] = value;
    return OK;
}

/* The median step time, and the validation loss before the first step. */
static Status read_metrics(const char *run, double *ret_step_ms, double *ret_val_loss) {
    CLEANUP(mem_freep) char *path = NULL, *text = NULL;
    CLEANUP(step_times_done) StepTimes times = {0};
    size_t size = 0;
    TRY(path_join(&path, run, "metrics.jsonl"));
    TRY(file_read(path, (size_t)1 << 30, &text, &size));
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
        CLEANUP(json_decrefp) json_t *line = NULL;
        TRY(json_parse(at, (size_t)(end - at), path, &line));
        TRY(add_line(line, &times, ret_val_loss));
    }
    if (!times.count) return OK;
    qsort(times.at, times.count, sizeof *times.at, ascending);
    *ret_step_ms = times.at[times.count / 2];
    return OK;
}

static Status add_row(Rounds *r, int64_t round, const PruneState *state, const char *run,
                      const RunSummary *summary) {
    double step_ms = NAN, pruned = NAN;
    TRY(read_metrics(run, &step_ms, &pruned));
    /* Tokens per step from the run's rates, divided by the median step, which excludes the slow first one. */
    double batch = (double)r->spec->train.training.batch;
    double tokens = summary->tokens_per_s * batch / summary->samples_per_s / (1e-3 * step_ms);
    json_t *row =
        json_pack("{s:I, s:f, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:O*}", "round", (json_int_t)round,
                  "sparsity", prune_sparsity(r->spec, state, &r->size), "params_total",
                  (json_int_t)state->params, "inner", (json_int_t)state->inner, "heads",
                  (json_int_t)state->heads, "zero_rows", (json_int_t)state->zero_rows, "val_loss_pruned",
                  json_finite(pruned), "val_loss", json_finite(summary->val_loss), "step_ms",
                  json_finite(step_ms), "tokens_per_s", json_finite(tokens), "load", summary->load);
    if (json_array_append_new(json_object_get(r->result, "rounds"), row)) return FAILED("out of memory");
    return json_write_file(r->file, r->result);
}

/* Updates `latest`, and removes the optimizer state of all but the last round. */
static Status finish_round(const Rounds *r, int64_t round, const char *start, const char *run) {
    CLEANUP(mem_freep) char *link = NULL, *target = NULL, *newest = NULL;
    TRY(ckpt_latest(run, &newest));
    TRY(path_join(&link, r->out, "latest"));
    TRY(str_format(&target, "round-%lld/checkpoints/%s", (long long)round, strrchr(newest, '/') + 1));
    TRY(link_replace(link, target));
    if (round > 0) TRY(dir_remove(start));
    if (round == r->spec->rounds) return OK;
    CLEANUP(mem_freep) char *state = NULL;
    TRY(path_join(&state, newest, "optimizer.safetensors"));
    unlink(state);
    return OK;
}

static Status one_round(Rounds *r, int64_t round) {
    CLEANUP(mem_freep) char *start = NULL, *run = NULL;
    CLEANUP(run_summary_done) RunSummary summary = run_summary_take(NULL);
    PruneState state = {0};
    TRY(round_path(r, "round", round, &run));
    TRY(round_path(r, "pruned", round, &start));
    if (r->first) TRY(prune_round(r, round, start, &state));
    TRY(barrier(r->spec->world));
    TRY(train_round(r, round, round ? start : r->dense.path, run, &summary.json));
    summary = run_summary_take(summary.json);
    r->stopped = summary.interrupted;
    if (r->stopped || !r->first) return OK;
    TRY(add_row(r, round, &state, run, &summary));
    return finish_round(r, round, start, run);
}

/* Round 0 does not depend on the kind: takes the row and the run of `base`. */
static Status share_baseline(Rounds *r) {
    CLEANUP(mem_freep) char *path = NULL, *link = NULL, *target = NULL;
    CLEANUP(json_decrefp) json_t *saved = NULL, *row = NULL;
    TRY(check_dense(r));
    TRY(path_join(&path, r->base, "pruning.json"));
    TRY(json_read_file(path, &saved));
    row = json_clone_deep(json_array_get(json_object_get(saved, "rounds"), 0));
    if (!json_is_object(row)) return FAILED("%s: 'rounds' must contain round 0", path);
    TRY(round_path(r, "round", 0, &link));
    TRY(str_format(&target, "../%s/round-0", strrchr(r->base, '/') + 1));
    TRY(link_replace(link, target));
    if (json_object_set_new(row, "sparsity", json_real(prune_sparsity(r->spec, &r->size, &r->size))) ||
        json_array_append(json_object_get(r->result, "rounds"), row))
        return FAILED("out of memory");
    return json_write_file(r->file, r->result);
}

static Status look_at_dense(Rounds *r) {
    TRY(model_dir_open(&r->dense, r->spec->train.model.name));
    if (r->first) TRY(prune_model(r->spec, r->dense.path, 0, NULL, NULL, &r->size));
    if (r->first) TRY(prune_check_amount(r->spec, &r->size));
    return OK;
}

Status prune_rounds(const PruneSpec *spec, const char *base, json_t **ret_result, bool *ret_stopped) {
    CLEANUP(rounds_done)
    Rounds r = {.spec = spec, .out = spec->train.ckpt.out, .base = base, .first = spec->world->rank == 0};
    TRY(look_at_dense(&r));
    TRY(open_beside(&r));
    TRY(open_out(&r));
    int64_t done = (int64_t)json_array_size(json_object_get(r.result, "rounds"));
    if (base && !done) {
        if (r.first) TRY(share_baseline(&r));
        done = 1;
    }
    for (int64_t round = done; round <= spec->rounds && !r.stopped; round++) TRY(one_round(&r, round));
    if (r.first) {
        TRY(prune_conclude(spec, r.result, r.result, r.beside));
        TRY(json_write_file(r.file, r.result));
    }
    *ret_stopped = r.stopped;
    *ret_result = json_incref(r.result);
    return OK;
}
