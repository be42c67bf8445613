#include "param/param.h"

#include <fnmatch.h>
#include <string.h>

#include "base/rng.h"

Status param_add(ParamList *list, ParamDesc desc) {
    if (desc.ndim > PARAM_DIMS) return FAILED("internal: %s has more than %d dims", desc.name, PARAM_DIMS);
    TRY(mem_grow(&list->desc, &list->capacity, list->count + 1, sizeof *list->desc));
    list->desc[list->count++] = desc;
    return OK;
}

void param_list_done(ParamList *list) {
    free(list->desc);
    *list = (ParamList){0};
}

int64_t param_count(const ParamDesc *desc) {
    int64_t count = 1;
    for (int i = 0; i < desc->ndim; i++) count *= desc->dim[i];
    return count;
}

bool param_matches(const ParamDesc *desc, const char *pattern) {
    char name[PARAM_NAME];
    snprintf(name, sizeof name, "%s", desc->name);
    for (char *dot = NULL; fnmatch(pattern, name, 0); *dot = 0)
        if (!(dot = strrchr(name, '.'))) return false;
    return true;
}

enum { VOCAB_MULTIPLE = 128 };

int64_t vocab_padded(int64_t vocab, int tp_size) {
    int64_t step = (int64_t)VOCAB_MULTIPLE * tp_size;
    return (vocab + step - 1) / step * step;
}

/* Leaves the slot this rank's part of the first dim. */
static Status divide_experts(ParamSlot *slot, UnitSpec spec) {
    const ParamDesc *desc = &slot->desc;
    if (!desc->expert || spec.expert_size <= 1) return OK;
    if (desc->dim[0] % spec.expert_size)
        return USAGE("%s: cannot divide a dimension of %lld among %d expert-parallel ranks", desc->name,
                     (long long)desc->dim[0], spec.expert_size);
    slot->dim[0] /= spec.expert_size;
    slot->count /= spec.expert_size;
    slot->skipped = param_count(desc) / spec.expert_size * spec.expert_rank;
    return OK;
}

static Status slot_init(ParamSlot *slot, const ParamDesc *given, UnitSpec spec) {
    *slot = (ParamSlot){.desc = *given, .count = 1};
    ParamDesc *desc = &slot->desc;
    if (desc->parts && spec.tp_size > desc->parts) {
        desc->split = -1;
        desc->partial = true;
    }
    for (int i = 0; i < desc->ndim; i++) {
        slot->dim[i] = desc->dim[i];
        if (i == desc->split) {
            int64_t extent = desc->vocab ? vocab_padded(desc->dim[i], spec.tp_size) : desc->dim[i];
            if (extent % spec.tp_size)
                return USAGE("%s: cannot split a dimension of %lld across %d tensor-parallel ranks",
                             desc->name, (long long)desc->dim[i], spec.tp_size);
            slot->dim[i] = extent / spec.tp_size;
            slot->start = slot->dim[i] * spec.tp_rank;
            slot->valid = desc->dim[i] - slot->start;
            if (slot->valid < 0) slot->valid = 0;
            if (slot->valid > slot->dim[i]) slot->valid = slot->dim[i];
        }
        slot->count *= slot->dim[i];
    }
    TRY(divide_experts(slot, spec));
    if (desc->packing) slot->count = 0;
    return OK;
}

static int64_t round_up(int64_t value, int64_t step) {
    return (value + step - 1) / step * step;
}

bool param_is_vocab_matrix(const ParamDesc *desc) {
    return desc->vocab && desc->ndim == 2;
}

bool param_is_hidden_matrix(const ParamDesc *desc) {
    return desc->ndim >= 2 && desc->decay && !desc->vocab && !strncmp(desc->name, "layer.", 6);
}

/* The smallest power of two whose product with `value` is a multiple of 64. */
static int64_t complement(int64_t value) {
    int64_t step = 64;
    while (step > 1 && value * (step / 2) % 64 == 0) step /= 2;
    return step;
}

/* Divides a vocabulary matrix into pieces. Stripes have a multiple of UNIT_ALIGN elements, and pieces have a
 * multiple of 64 rows, so that rows of logits are aligned. The last piece may end with padding. */
static void divide(Unit *unit, UnitSpec spec) {
    ParamSlot *slot = &unit->slot[0];
    unit->pieces = 1;
    if (unit->count != 1 || !param_is_vocab_matrix(&slot->desc) || spec.shards == 1) return;
    if (!spec.piece || slot->count <= spec.piece + spec.piece / 2) return;
    int64_t rows = slot->dim[0], cols = slot->dim[1], align = complement(cols);
    if (complement(spec.shards) > align) align = complement(spec.shards);
    int64_t stripe = spec.piece / (cols * spec.shards) / align * align;
    if (!stripe) stripe = align;
    int64_t pieces = (rows + stripe * spec.shards - 1) / (stripe * spec.shards);
    if (pieces == 1) return;
    int64_t each = pieces * spec.shards;
    slot->stripe = round_up((rows + each - 1) / each, align);
    slot->shards = spec.shards;
    slot->pieces = unit->pieces = (int)pieces;
    slot->dim[0] = slot->stripe * each;
    slot->count = slot->dim[0] * cols;
}

/* Assigns consecutive offsets to the slots of one range. */
static void place_range(Unit *unit, UnitRange *range) {
    range->first = unit->numel;
    size_t last = unit->count; /* the slot placed before */
    for (size_t i = 0; i < unit->count; i++) {
        ParamSlot *slot = &unit->slot[i];
        if (slot->desc.decay != range->decay || (slot->desc.split >= 0) != range->split) continue;
        bool joined = slot->desc.joined && last + 1 == i;
        slot->offset = joined ? unit->slot[last].offset + unit->slot[last].count : unit->numel;
        unit->numel = range->first + round_up(slot->offset + slot->count - range->first, UNIT_ALIGN);
        last = i;
    }
}

static void place(Unit *unit, int64_t align) {
    for (int k = 0; k < UNIT_RANGES; k++) {
        UnitRange *range = &unit->range[k];
        *range = (UnitRange){.decay = k < 2, .split = k % 2 == 0};
        place_range(unit, range);
        unit->numel = round_up(unit->numel, align);
        range->count = unit->numel - range->first;
    }
}

Status unit_init(Unit *ret_unit, const ParamList *list, UnitSpec spec) {
    Unit unit = {0};
    TRY(mem_new(list->count, sizeof *unit.slot, &unit.slot));
    for (size_t i = 0; i < list->count; i++) {
        if (list->desc[i].tied) continue;
        Status status = slot_init(&unit.slot[unit.count], &list->desc[i], spec);
        if (status) {
            unit_done(&unit);
            return status;
        }
        unit.count++;
    }
    unit.frozen = unit.count && unit.slot[0].desc.frozen;
    divide(&unit, spec);
    int64_t align = spec.tp_size > 1 && unit.pieces == 1 ? UNIT_BLOCK : UNIT_ALIGN;
    place(&unit, align);
    unit.numel = round_up(unit.numel, align * spec.shards);
    *ret_unit = unit;
    return OK;
}

Status unit_piece(Unit *ret_piece, const Unit *unit, int piece) {
    Unit part = {.count = 1, .pieces = 1, .frozen = unit->frozen};
    TRY(mem_new(1, sizeof *part.slot, &part.slot));
    ParamSlot *slot = part.slot;
    *slot = unit->slot[0];
    int64_t rows = slot->stripe * slot->shards, first = rows * piece;
    slot->dim[0] = rows;
    slot->count = rows * slot->dim[1];
    slot->start += first;
    slot->valid = slot->valid < first ? 0 : slot->valid - first < rows ? slot->valid - first : rows;
    slot->stripe = slot->shards = slot->pieces = 0;
    place(&part, UNIT_ALIGN);
    *ret_piece = part;
    return OK;
}

static bool overlap(int64_t a, int64_t a_count, int64_t b, int64_t b_count, int64_t *ret_first,
                    int64_t *ret_count) {
    int64_t first = a > b ? a : b;
    int64_t end = a + a_count < b + b_count ? a + a_count : b + b_count;
    if (end <= first) return false;
    *ret_first = first;
    *ret_count = end - first;
    return true;
}

bool slot_overlap(const ParamSlot *slot, int64_t first, int64_t count, int64_t *ret_from,
                  int64_t *ret_count) {
    if (!overlap(first, count, slot->offset, slot->count, ret_from, ret_count)) return false;
    *ret_from -= slot->offset;
    return true;
}

bool range_overlap(const UnitRange *range, int64_t first, int64_t count, int64_t *ret_first,
                   int64_t *ret_count) {
    return overlap(first, count, range->first, range->count, ret_first, ret_count);
}

void unit_done(Unit *unit) {
    free(unit->slot);
    *unit = (Unit){0};
}

Tensor unit_view(const ParamSlot *slot, void *flat, DType dtype) {
    Tensor view = {.dtype = dtype, .ndim = slot->desc.ndim};
    if (flat) view.data = (char *)flat + (size_t)slot->offset * dtype_size(dtype);
    for (int i = 0; i < view.ndim; i++) view.dim[i] = slot->dim[i];
    return view;
}

/* Redraws from further streams until the value is within two standard deviations. */
static float truncate_draw(RngKey key, uint64_t index, float value) {
    while (!(value >= -2 && value <= 2)) {
        key.step++;
        value = rng_normal(key, index);
    }
    return value;
}

/* A rank stores one contiguous run out of each group of desc->dim[split] x inner elements. */
typedef struct Split {
    int64_t inner; /* elements per index of the split dim */
    int64_t run;   /* local elements per group, with padding */
    int64_t real;  /* local elements per group, without padding */
    int64_t group; /* global elements per group */
} Split;

static Split split_of(const ParamSlot *slot) {
    const ParamDesc *desc = &slot->desc;
    if (desc->split < 0) return (Split){1, slot->count, slot->count, slot->count};
    int64_t inner = 1;
    for (int i = desc->split + 1; i < desc->ndim; i++) inner *= desc->dim[i];
    return (Split){inner, slot->dim[desc->split] * inner, slot->valid * inner,
                   desc->dim[desc->split] * inner};
}

/* slot_run with stripes. */
static ParamRun striped_run(const ParamSlot *slot, int64_t at, int64_t limit) {
    int64_t cols = slot->dim[1], row = at / cols, col = at % cols, shard_rows = slot->stripe * slot->pieces;
    int64_t shard = row / shard_rows, piece = row % shard_rows / slot->stripe, within = row % slot->stripe;
    int64_t place = (piece * slot->shards + shard) * slot->stripe + within, rows = slot->stripe - within;
    bool real = place < slot->valid;
    if (real && rows > slot->valid - place) rows = slot->valid - place;
    int64_t count = rows * cols - col;
    return (ParamRun){.local = at,
                      .global = real ? (slot->start + place) * cols + col : -1,
                      .count = count < limit ? count : limit};
}

ParamRun slot_run(const ParamSlot *slot, int64_t at, int64_t limit) {
    if (slot->stripe) return striped_run(slot, at, limit);
    Split split = split_of(slot);
    int64_t group = at / split.run, offset = at % split.run;
    bool real = offset < split.real;
    int64_t count = (real ? split.real : split.run) - offset;
    if (count > limit) count = limit;
    int64_t global = group * split.group + slot->start * split.inner + offset + slot->skipped;
    return (ParamRun){.local = at, .global = real ? global : -1, .count = count};
}

int64_t slot_before(const ParamSlot *slot, int64_t global) {
    Split split = split_of(slot);
    int64_t at = global - slot->skipped;
    if (at < 0) return 0;
    int64_t group = at / split.group, rest = at % split.group - slot->start * split.inner;
    int64_t before = group * split.run + (rest < 0 ? 0 : rest < split.run ? rest : split.run);
    return before < slot->count ? before : slot->count;
}

/* Normals are drawn in blocks of four; a run may start or end inside a block. */
static void init_normal(const ParamDesc *desc, RngKey key, ParamRun run, float *values) {
    int64_t first = run.global / 4, end = (run.global + run.count + 3) / 4;
#pragma omp parallel for schedule(static) if (run.count > 65536)
    for (int64_t block = first; block < end; block++) {
        float draw[4];
        rng_normal_block(key, (uint64_t)block, draw);
        for (int k = 0; k < 4; k++) {
            int64_t index = 4 * block + k, at = index - run.global;
            if (at < 0 || at >= run.count) continue;
            if (desc->init == INIT_TRUNCATED) draw[k] = truncate_draw(key, (uint64_t)index, draw[k]);
            values[at] = desc->std * draw[k];
        }
    }
}

static void init_run(const ParamDesc *desc, RngKey key, ParamRun run, float *values) {
    if (desc->init != INIT_ZEROS && desc->init != INIT_ONES) {
        init_normal(desc, key, run, values);
        return;
    }
    float value = desc->init == INIT_ONES ? 1.0f : 0.0f;
    for (int64_t i = 0; i < run.count; i++) values[i] = value;
}

void param_init(const ParamSlot *slot, uint64_t seed, int64_t from, int64_t count, float *values) {
    RngKey key = rng_key(seed, slot->desc.name, 0);
    for (int64_t at = from; at < from + count;) {
        ParamRun run = slot_run(slot, at, from + count - at);
        if (run.global < 0)
            memset(values + (at - from), 0, (size_t)run.count * sizeof *values);
        else
            init_run(&slot->desc, key, run, values + (at - from));
        at += run.count;
    }
}
