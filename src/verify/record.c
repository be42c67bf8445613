#include "verify/record.h"

#include <math.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "base/rng.h"

/* ---- the parameters of a store ---- */

/* A parameter, and the part of it that a store has on this rank. */
typedef struct Piece {
    ModelParam param;
    StorePart part;
    int64_t global, next; /* position of the parameter in a record's values, and of the next one */
} Piece;

/* Moves on to the next parameter. *piece is {0} at first; false after the last one. */
static bool piece_next(const Store *store, Piece *piece) {
    piece->global = piece->next;
    if (!model_param_next(store->model, &piece->param)) return false;
    piece->next += param_count(piece->param.desc);
    store_part(store, piece->param.ref, &piece->part);
    return true;
}

/* The same, but skips parameters of which the store has nothing. */
static bool piece_next_here(const Store *store, Piece *piece) {
    while (piece_next(store, piece))
        if (piece->part.count) return true;
    return false;
}

static Status piece_get(const Piece *piece, Stream *stream, float **ret_copy, const float **ret_values) {
    return values_get(stream, piece->part.values, piece->part.count, ret_copy, ret_values);
}

/* ---- records ---- */

/* What a record has of a step; states are numbered from PART_STATE. */
enum { PART_GRADIENT, PART_WEIGHT, PART_STATE };

static float *values_of(const Record *record, int step, int part) {
    return record->values + (part * RECORD_STEPS + step) * record->numel;
}

static size_t record_bytes(const Record *record) {
    return (size_t)(record->parts * RECORD_STEPS * record->numel) * sizeof *record->values;
}

static const Store *store_of(const Runner *runner, int part) {
    return part == PART_GRADIENT ? runner->grads
           : part == PART_WEIGHT ? runner->params
                                 : runner->state[part - PART_STATE];
}

static int parts_of(const Runner *runner) {
    int states = 0;
    while (states < OPTIM_STATES && runner->state[states]) states++;
    return PART_STATE + states;
}

static Status copy_store(const Store *store, Stream *stream, float *to) {
    for (Piece piece = {0}; piece_next_here(store, &piece);) {
        CLEANUP(mem_freep) float *copy = NULL;
        const float *values;
        TRY(piece_get(&piece, stream, &copy, &values));
        for (int64_t at = 0; at < piece.part.count;) {
            ParamRun run = slot_run(piece.part.slot, piece.part.from + at, piece.part.count - at);
            if (run.global >= 0)
                memcpy(to + piece.global + run.global, values + at, (size_t)run.count * sizeof *to);
            at += run.count;
        }
    }
    return OK;
}

static uint64_t hash_of(const Record *record) {
    uint64_t values = crc32c(0, record->values, record_bytes(record));
    return rng_mix(
        rng_mix(crc32c(0, record->loss, sizeof record->loss), crc32c(0, record->norm, sizeof record->norm)),
        values);
}

void trial_record_done(Record *record) {
    free(record->values);
    *record = (Record){0};
}

Status trial_record_share(Record *record, Group *group, int root) {
    TRY(host_broadcast(group, record->loss, sizeof record->loss, root));
    TRY(host_broadcast(group, record->norm, sizeof record->norm, root));
    TRY(host_broadcast(group, record->scale, sizeof record->scale, root));
    return host_broadcast(group, record->values, record_bytes(record), root);
}

/* ---- differences ---- */

const char *diff_name(DiffKind kind) {
    static const char *const names[DIFF_KINDS] = {"loss", "gradient norm", "gradient", "optimizer state",
                                                  "weight"};
    return names[kind];
}

/* In fp32, orders of summation differ by a few units in the last place; the limits are about four times what
 * CPUs and GPUs show. In 16 bits they move some activations by one rounding error, a loss is the mean of only
 * a few terms, and gradients of such small models differ most: what is lost there is half of a gradient or
 * more. States would then say no more than gradients. */
double diff_limit(const TrialSpec *spec, DiffKind kind) {
    static const double limits[][DIFF_KINDS] = {{2e-6, 1e-4, 3.2e-4, 3.2e-4, 1e-5},
                                                {1.0 / 256, 0.2, 0.5, 0, 1e-3},
                                                {1.0 / 2048, 0.1, 0.3, 0, 1e-3},
                                                {0.02, 0.3, 1, 0, 1e-3}};
    int row = spec->fp8 ? 3 : spec->dtype == DT_BF16 ? 1 : spec->dtype == DT_F16 ? 2 : 0;
    ModelConfig config;
    trial_config(spec, &config);
    /* The outputs of a token's experts are rounded one by one before they are added. */
    bool more = row && kind == DIFF_LOSS && config.experts;
    return (more ? 2 : 1) * limits[row][kind];
}

bool diff_is_more(double found, double most) {
    return found > most || (isnan(found) && !isnan(most));
}

static void note(const TrialSpec *spec, Diff *diff, DiffKind kind, double found, int param) {
    if (!diff_is_more(found, diff->of[kind])) return;
    diff->of[kind] = found;
    diff->param[kind] = param;
    if (found <= diff_limit(spec, kind) || diff->exceeded) return;
    diff->exceeded = true;
    diff->first = kind;
}

void diff_add(Diff *diff, const Diff *other) {
    for (DiffKind kind = 0; kind < DIFF_KINDS; kind++) {
        if (!diff_is_more(other->of[kind], diff->of[kind])) continue;
        diff->of[kind] = other->of[kind];
        diff->param[kind] = other->param[kind];
    }
    if (!diff->exceeded && other->exceeded) diff->first = other->first;
    diff->exceeded |= other->exceeded;
}

static double size_of(const float *values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
    return sqrt(sum);
}

static double largest_of(const float *values, int64_t count) {
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        if (fabs((double)values[i]) > largest) largest = fabs((double)values[i]);
    return largest;
}

/* Some gradients, such as that of the bias of all keys, are nothing but rounding errors, and others, such as
 * that of a norm of few heads, are mostly those in 16 bits: of a part of the gradient's norm. The same holds
 * for the states made from them. */
static double vector_size(const Record *record, int step, int part, const Piece *piece) {
    const int share = record->spec.dtype == DT_F32 ? 100 : 20;
    double all = part == PART_GRADIENT ? record->scale[step] * record->norm[step]
                                       : size_of(values_of(record, step, part), record->numel);
    const float *own = values_of(record, step, part) + piece->global;
    return fmax(fmax(size_of(own, param_count(&piece->part.slot->desc)), all / share), 1e-30);
}

/* How far rounding errors of gradients can move a weight. AdamW divides a gradient by its own size, and with
 * it its error. */
static double slack_of(const Record *record, int step, const Piece *piece, const double *size,
                       int64_t element) {
    double limit = diff_limit(&record->spec, DIFF_GRADIENT), slack = 0;
    for (int s = 0; s <= step; s++) {
        double gradient = fabs((double)values_of(record, s, PART_GRADIENT)[piece->global + element]);
        slack += fmin(2, 4 * limit * size[s] / fmax(gradient, 1e-30));
    }
    return trial_lr(&record->spec) * slack;
}

/* Passes over the elements of a piece: the largest difference beyond the slack, or the size of all. */
static Status compare_piece(const Record *record, const Trial *trial, int step, const Piece *piece, int part,
                            double *ret_diff) {
    const float *values, *whole = values_of(record, step, part) + piece->global;
    CLEANUP(mem_freep) float *copy = NULL;
    bool weights = part == PART_WEIGHT;
    double worst = 0, squares = 0, size[RECORD_STEPS];
    for (int s = 0; s <= step && weights; s++) size[s] = vector_size(record, s, PART_GRADIENT, piece);
    TRY(piece_get(piece, trial->runner->stream, &copy, &values));
    for (int64_t at = 0; at < piece->part.count;) {
        ParamRun run = slot_run(piece->part.slot, piece->part.from + at, piece->part.count - at);
        for (int64_t k = 0; k < run.count; k++) {
            double target = run.global < 0 ? 0 : (double)whole[run.global + k];
            double off = fabs((double)values[at + k] - target);
            squares += off * off;
            if (weights && run.global >= 0)
                off = fdim(off, slack_of(record, step, piece, size, run.global + k));
            if (diff_is_more(off, worst)) worst = off;
        }
        at += run.count;
    }
    enum { LEAST = 10 }; /* weights that are all small are compared with a tenth */
    double largest = fmax(largest_of(whole, param_count(&piece->part.slot->desc)), 1.0 / LEAST);
    *ret_diff = weights ? worst / largest : sqrt(squares) / vector_size(record, step, part, piece);
    return OK;
}

static Status compare(const Record *record, const Trial *trial, int step, int part, Diff *diff) {
    DiffKind kind = part == PART_GRADIENT ? DIFF_GRADIENT : part == PART_WEIGHT ? DIFF_WEIGHT : DIFF_STATE;
    if (!(diff_limit(&record->spec, kind) > 0)) return OK;
    for (Piece piece = {0}; piece_next_here(store_of(trial->runner, part), &piece);) {
        double found = 0;
        TRY(compare_piece(record, trial, step, &piece, part, &found));
        note(&record->spec, diff, kind, found, piece.param.number);
    }
    return OK;
}

static double relative(double found, double expected) {
    return found == expected ? 0 : fabs(found - expected) / fmax(fabs(expected), 1e-30);
}

Status record_compare_gradients(void *context, const Trial *trial, int step, const StepResult *result) {
    const Record *record = ((RecordDiff *)context)->record;
    Diff *diff = ((RecordDiff *)context)->diff;
    note(&record->spec, diff, DIFF_LOSS, relative(result->loss, record->loss[step]), -1);
    note(&record->spec, diff, DIFF_NORM, relative(result->grad_norm, record->norm[step]), -1);
    if (!isfinite(record->norm[step])) return OK; /* fp16: skipped, by both */
    return compare(record, trial, step, PART_GRADIENT, diff);
}

Status record_compare_update(const Record *record, const Trial *trial, int step, Diff *diff) {
    for (int part = PART_STATE; part < record->parts; part++) TRY(compare(record, trial, step, part, diff));
    return compare(record, trial, step, PART_WEIGHT, diff);
}

/* ---- runs ---- */

/* A record that is being made, and what it is compared with; NULL: nothing. */
typedef struct RecordedStep {
    Record *record;
    RecordCheck *check;
} RecordedStep;

static Status record_gradients(void *context, const Trial *trial, int step, const StepResult *result) {
    Record *record = ((RecordedStep *)context)->record;
    RecordCheck *check = ((RecordedStep *)context)->check;
    const Runner *runner = trial->runner;
    record->loss[step] = result->loss;
    record->norm[step] = result->grad_norm;
    record->scale[step] = runner->loss_scale.scale;
    TRY(copy_store(runner->grads, runner->stream, values_of(record, step, PART_GRADIENT)));
    RecordDiff diff = {check ? check->expected : NULL, check ? &check->diff : NULL};
    return check ? record_compare_gradients(&diff, trial, step, result) : OK;
}

static Status do_step(Record *record, Trial *trial, int step, bool flip, RecordCheck *check) {
    Runner *runner = trial->runner;
    StepResult result;
    bool compares = check && !check->diff.exceeded;
    TRY(trial_step(trial, step, record_gradients, &(RecordedStep){record, compares ? check : NULL}, &result));
    if (flip) TRY(trial_flip(trial));
    for (int part = PART_WEIGHT; part < record->parts; part++)
        TRY(copy_store(store_of(runner, part), runner->stream, values_of(record, step, part)));
    if (compares) TRY(record_compare_update(check->expected, trial, step, &check->diff));
    if (compares && check->diff.exceeded) check->step = step + 1;
    return OK;
}

Status trial_record(Record *ret_record, const TrialSpec *spec, const KernelTable *table, Device *device,
                    bool flip, RecordCheck *check) {
    CLEANUP(trial_done) Trial trial = {0};
    CLEANUP(trial_record_done) Record record = {.spec = *spec};
    TRY(trial_new(&trial, spec, table, device, NULL));
    record.numel = model_params(trial.model);
    record.parts = parts_of(trial.runner);
    TRY(mem_new((size_t)(record.parts * RECORD_STEPS * record.numel), sizeof *record.values, &record.values));
    for (int step = 0; step < RECORD_STEPS; step++)
        TRY(do_step(&record, &trial, step, flip && step == 1, check));
    record.bits = hash_of(&record);
    *ret_record = record;
    record.values = NULL;
    return OK;
}

/* ---- bits ---- */

Status trial_flip(Trial *trial) {
    Store *store = trial->runner->params;
    for (Piece piece = {0}; piece_next_here(store, &piece);) {
        float value;
        uint32_t bits;
        Values values = piece.part.values;
        CLEANUP(mem_freep) float *copy = NULL, *staging = NULL;
        const float *old;
        float *fresh;
        TRY(values_get(trial->runner->stream, values, 1, &copy, &old));
        memcpy(&bits, old, sizeof bits);
        bits ^= bits ? 1u << 29 : 1u << 30; /* a bit of the exponent */
        memcpy(&value, &bits, sizeof value);
        TRY(values_space(trial->runner->stream, values, 1, &staging, &fresh));
        *fresh = value;
        return values_set(trial->runner->stream, values, 1, staging);
    }
    return OK;
}

Status trial_bits(const Trial *trial, const StepResult *result, uint64_t *bits) {
    const Store *store = trial->runner->params;
    uint64_t hash = rng_mix(*bits, crc32c(0, &result->loss, sizeof result->loss));
    for (Piece piece = {0}; piece_next_here(store, &piece);) {
        CLEANUP(mem_freep) float *copy = NULL;
        const float *values;
        TRY(piece_get(&piece, trial->runner->stream, &copy, &values));
        hash = rng_mix(hash, crc32c(0, values, (size_t)piece.part.count * sizeof *values));
    }
    *bits = hash;
    return OK;
}

Status trial_weight_bits(const Trial *trial, int64_t *bits) {
    const Store *store = trial->runner->params;
    for (Piece piece = {0}; piece_next_here(store, &piece);) {
        CLEANUP(mem_freep) float *copy = NULL;
        const float *values;
        TRY(piece_get(&piece, trial->runner->stream, &copy, &values));
        for (int64_t at = 0; at < piece.part.count;) {
            ParamRun run = slot_run(piece.part.slot, piece.part.from + at, piece.part.count - at);
            for (int64_t k = 0; run.global >= 0 && k < run.count; k++) {
                uint32_t value;
                memcpy(&value, &values[at + k], sizeof value);
                bits[piece.global + run.global + k] = value;
            }
            at += run.count;
        }
    }
    return OK;
}

/* Padding is left out: what else two ranks have of the same elements must be equal. */
static Status hash_piece(const Trial *trial, const Piece *piece, PieceHash *ret_hash) {
    CLEANUP(mem_freep) float *copy = NULL;
    const float *values;
    PieceHash hash = {.param = (uint32_t)piece->param.number, .first = -1};
    TRY(piece_get(piece, trial->runner->stream, &copy, &values));
    for (int64_t at = 0; at < piece->part.count;) {
        ParamRun run = slot_run(piece->part.slot, piece->part.from + at, piece->part.count - at);
        if (run.global >= 0) {
            if (hash.first < 0) hash.first = run.global;
            hash.count += run.count;
            hash.crc = crc32c(hash.crc, values + at, (size_t)run.count * sizeof *values);
        }
        at += run.count;
    }
    *ret_hash = hash;
    return OK;
}

Status trial_pieces(const Trial *trial, PieceHash **ret_pieces, size_t *ret_count) {
    const Store *store = trial->runner->params;
    CLEANUP(mem_freep) PieceHash *pieces = NULL;
    size_t count = 0, at = 0;
    for (Piece piece = {0}; piece_next(store, &piece);) count++;
    TRY(mem_new(count, sizeof *pieces, &pieces));
    for (Piece piece = {0}; piece_next(store, &piece); at++)
        if (piece.part.count) TRY(hash_piece(trial, &piece, &pieces[at]));
    *ret_pieces = pieces;
    *ret_count = count;
    pieces = NULL;
    return OK;
}
