/* The optimizer step on a rank's shards. */
#include "base/memory.h"
#include "parallel/shard_internal.h"

/* ---- spans ---- */

/* The slot that begins at an offset; NULL if none does. */
static const ParamSlot *slot_at(const Unit *layout, int64_t offset) {
    for (size_t i = 0; i < layout->count; i++)
        if (layout->slot[i].count && layout->slot[i].offset == offset) return &layout->slot[i];
    return NULL;
}

/* The first offset after `offset` at which a slot begins, or the end of the range. */
static int64_t next_offset(const Unit *layout, const UnitRange *range, int64_t offset) {
    int64_t next = range->first + range->count;
    for (size_t i = 0; i < layout->count; i++) {
        const ParamSlot *slot = &layout->slot[i];
        if (slot->count && slot->offset > offset && slot->offset < next) next = slot->offset;
    }
    return next;
}

Status shard_spans(ShardUnit *unit, const OptimSpec *optim) {
    const Unit *layout = &unit->layout;
    TRY(mem_new(layout->count, sizeof *unit->span, &unit->span));
    for (int k = 0; k < UNIT_RANGES; k++) {
        const UnitRange *range = &layout->range[k];
        for (int64_t at = range->first; at < range->first + range->count;) {
            const ParamSlot *slot = slot_at(layout, at);
            int64_t next = next_offset(layout, range, at);
            if (!slot) return FAILED("internal: no parameter at element %lld of a unit", (long long)at);
            ParamRule rule = optim_rule(optim, &slot->desc);
            ShardSpan *last = unit->spans ? &unit->span[unit->spans - 1] : NULL; /* ends here */
            if (last && optim_rule_same(&last->rule, &rule))
                last->count += next - at;
            else
                unit->span[unit->spans++] = (ShardSpan){.first = at, .count = next - at, .rule = rule};
            at = next;
        }
    }
    for (int k = 0; k < OPTIM_STATES; k++) {
        int i = 0;
        while (i < unit->spans && !optim_has_state(optim, &unit->span[i].rule, k)) i++;
        unit->state_first[k] = i < unit->spans ? unit->span[i].first : layout->numel;
    }
    return OK;
}

/* ---- update ---- */

/* The part of a span that this rank updates; false if there is none. */
static bool span_part(const Shards *shards, int at, const ShardSpan *span, OptimPart *ret_part) {
    const ShardUnit *unit = &shards->unit[at];
    UnitRange range = {.first = span->first, .count = span->count};
    int64_t first, count;
    if (!range_overlap(&range, unit->first, unit->count, &first, &count)) return false;
    int64_t place = first - unit->first;
    Values values = values_at(shard_values(shards, at), place);
    OptimPart part = {.rule = &span->rule,
                      .param = values.rest ? tensor_1d(values.rest, DT_F32_LOWER, count)
                                           : tensor_1d(values.data, DT_F32, count),
                      .grad = tensor_slice(shard_gradient(shards, at), place, count)};
    if (shards_have_masters(shards))
        part.copy = tensor_1d(shard_param_at(shards, unit, first), shards->spec.dtype, count);
    for (int k = 0; optim_has_state(&shards->spec.optim, &span->rule, k); k++) {
        int64_t begin;
        Tensor state = shard_state(shards, at, k, &begin);
        part.state[k] = tensor_slice(state, first - begin, count);
    }
    *ret_part = part;
    return true;
}

/* Runs `func` on the spans of a unit that are updated as whole matrices. */
static Status each_matrix_span(Shards *shards, int at, const OptimStep *step,
                               Status (*func)(Exec *exec, const OptimSpec *spec, const OptimStep *step,
                                              const OptimPart *part)) {
    ShardUnit *unit = &shards->unit[at];
    OptimPart part;
    for (int k = 0; k < unit->spans; k++)
        if (unit->span[k].rule.whole && span_part(shards, at, &unit->span[k], &part))
            TRY(func(shards->exec, &shards->spec.optim, step, &part));
    return OK;
}

static Status step_parts(Shards *shards, const OptimStep *step, const OptimPart *part, int parts) {
    const OptimSpec *spec = &shards->spec.optim;
    return parts ? optim_kind(spec)->step(shards->exec, spec, step, part, parts) : OK;
}

/* Updates the other spans of `count` units in one call. */
static Status step_units(Shards *shards, const int *units, int count, const OptimStep *step) {
    CLEANUP(mem_freep) OptimPart *part = NULL;
    size_t spans = 0;
    int parts = 0;
    for (int i = 0; i < count; i++) spans += (size_t)shards->unit[units[i]].spans;
    TRY(mem_new(spans, sizeof *part, &part));
    for (int i = 0; i < count; i++) {
        const ShardUnit *unit = &shards->unit[units[i]];
        for (int k = 0; unit_trains(unit) && k < unit->spans; k++)
            if (!unit->span[k].rule.whole && span_part(shards, units[i], &unit->span[k], &part[parts]))
                parts++;
    }
    return step_parts(shards, step, part, parts);
}

static bool has_matrices(const ShardUnit *unit) {
    for (int k = 0; k < unit->spans; k++)
        if (unit->span[k].rule.whole) return true;
    return false;
}

/* Updates units in the order in which blocks use them, on a GPU in calls that are long enough to be
 * efficient. Short calls let forward start sooner and find parameters in the cache, but each takes the host a
 * few microseconds. On a CPU, idle threads do it. */
static Status step_apart(Shards *shards, const int *units, int count, const OptimStep *step) {
    Stream *stream = shards->exec->stream;
    int64_t enough = device_is_host(shards->device) ? 1 : shards->idle ? 1 << 23 : 1 << 25; /* elements */
    for (int first = 0, next = 0; first < count; first = next) {
        int64_t elements = 0;
        while (next < count && elements < enough) elements += shards->unit[units[next++]].count;
        stream->background = shards_background(shards);
        Status status = step_units(shards, units + first, next - first, step);
        stream->background = false;
        TRY(status);
        for (int i = first; i < next; i++) TRY(stream_event_record(stream, &shards->unit[units[i]].updated));
    }
    return OK;
}

/* The units that this rank trains, in the order in which blocks use them; returns their number. */
static int units_by_use(const Shards *shards, int *units) {
    int count = 0;
    for (int i = 0; i < shards->count; i++) {
        if (!unit_trains(&shards->unit[i])) continue;
        int at = count++;
        for (; at > 0 && shards->unit[units[at - 1]].block > shards->unit[i].block; at--)
            units[at] = units[at - 1];
        units[at] = i;
    }
    return count;
}

bool shards_update_by_unit(const Shards *shards) {
    return shards->spec.by_unit && !shards->matrices;
}

/* ---- a unit that is updated later ---- */

void shards_postpone(Shards *shards, int unit) {
    if (shards->postponed.waits) return; /* the same unit again */
    bool joins = optim_kind(&shards->spec.optim)->joins;
    shards->postponed.on =
        unit >= 0 && joins && shards_update_by_unit(shards) && shards->unit[unit].spans == 1;
    shards->postponed.unit = unit;
}

bool shards_update_waits(const Shards *shards) {
    return shards->postponed.waits;
}

static Status update_postponed(Shards *shards) {
    if (!shards->postponed.waits) return OK;
    shards->postponed.waits = false;
    return step_apart(shards, &shards->postponed.unit, 1, &shards->postponed.step);
}

/* Removes the postponed unit from a list of units; returns their number. */
static int postpone(Shards *shards, int *units, int count, const OptimStep *step) {
    int kept = 0;
    if (!shards->postponed.on) return count;
    for (int i = 0; i < count; i++)
        if (units[i] != shards->postponed.unit) units[kept++] = units[i];
    shards->postponed.waits = kept < count;
    shards->postponed.step = *step;
    return kept;
}

/* Divides the unit into the given rows and what is between them, `parts` and `others`, each with room for
 * count + 1 parts. Returns their numbers. */
static void divide_rows(const Shards *shards, const int32_t *rows, int64_t count, OptimPart *parts,
                        int *ret_parts, OptimPart *others, int *ret_others) {
    int at = shards->postponed.unit;
    const ShardSpan *span = &shards->unit[at].span[0];
    const ParamSlot *slot = &shards->unit[at].layout.slot[0];
    int64_t width = slot->dim[1], done = span->first, end = span->first + span->count;
    *ret_parts = *ret_others = 0;
    for (int64_t i = 0, next; i <= count; i = next) {
        for (next = i + 1; next < count && rows[next] == rows[next - 1] + 1;) next++;
        int64_t first = i < count ? slot->offset + rows[i] * width : end;
        ShardSpan between = {.first = done, .count = first - done};
        ShardSpan here = {.first = first, .count = i < count ? (next - i) * width : 0};
        if (between.count && span_part(shards, at, &between, &others[*ret_others]))
            others[(*ret_others)++].rule = &span->rule;
        if (here.count && span_part(shards, at, &here, &parts[*ret_parts]))
            parts[(*ret_parts)++].rule = &span->rule;
        done = here.first + here.count;
    }
}

Status shards_update_rows(Shards *shards, const int32_t *rows, int64_t count) {
    CLEANUP(mem_freep) OptimPart *parts = NULL;
    Stream *stream = shards->exec->stream;
    const OptimStep *step = &shards->postponed.step;
    int here, others;
    TRY(mem_new(2 * (size_t)(count + 1), sizeof *parts, &parts));
    divide_rows(shards, rows, count, parts, &here, parts + count + 1, &others);
    shards->postponed.waits = false;
    TRY(step_parts(shards, step, parts, here));
    stream->background = shards_background(shards);
    Status status = step_parts(shards, step, parts + count + 1, others);
    stream->background = false;
    TRY(status);
    return stream_event_record(stream, &shards->unit[shards->postponed.unit].updated);
}

void *shard_rows(const Shards *shards, int unit) {
    return shards->unit[unit].param.data;
}

Status shard_await_update(Shards *shards, int at, Stream *stream) {
    if (at == shards->postponed.unit) TRY(update_postponed(shards));
    return stream_event_wait(stream, shards->unit[at].updated);
}

Status shards_settle(Shards *shards) {
    TRY(update_postponed(shards));
    return stream_sync(shards->exec->stream);
}

/* Units that are gathered on all ranks are updated one by one, so that a gather overlaps the next update.
 * Units with matrices are published last: their update is complete only after all matrices are transformed.
 */
Status shards_update(Shards *shards, const OptimStep *step) {
    const Optimizer *kind = optim_kind(&shards->spec.optim);
    bool gathers = shards_gather_params(shards);
    CLEANUP(mem_freep) int *units = NULL;
    TRY(mem_new((size_t)shards->count, sizeof *units, &units));
    int trained = units_by_use(shards, units);
    TRY(update_postponed(shards));
    if (shards_update_by_unit(shards))
        return step_apart(shards, units, postpone(shards, units, trained, step), step);
    if (!gathers) TRY(step_units(shards, units, trained, step));
    for (int i = 0; i < shards->count; i++) {
        ShardUnit *unit = &shards->unit[i];
        if (!unit_trains(unit)) continue;
        if (gathers) TRY(step_units(shards, &i, 1, step));
        if (has_matrices(unit))
            TRY(each_matrix_span(shards, i, step, kind->begin));
        else
            TRY(shard_publish_unit(shards, unit));
    }
    if (shards->matrices) TRY(matrices_transform(shards));
    for (int i = 0; i < shards->count; i++) {
        ShardUnit *unit = &shards->unit[i];
        if (!unit_trains(unit) || !has_matrices(unit)) continue;
        TRY(each_matrix_span(shards, i, step, kind->finish));
        TRY(shard_publish_unit(shards, unit));
    }
    return shards_publish_finish(shards);
}
