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
    OptimPart part = {.rule = &span->rule,
                      .param = tensor_slice(shard_master(shards, at), place, count),
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

typedef Status (*StepFunc)(Exec *exec, const OptimSpec *spec, const OptimStep *step, const OptimPart *part);

/* Runs `func` on the spans that are updated as whole matrices, or on the others. */
static Status each_span(Shards *shards, int at, const OptimStep *step, bool whole, StepFunc func) {
    ShardUnit *unit = &shards->unit[at];
    OptimPart part;
    for (int k = 0; k < unit->spans; k++)
        if (unit->span[k].rule.whole == whole && span_part(shards, at, &unit->span[k], &part))
            TRY(func(shards->exec, &shards->spec.optim, step, &part));
    return OK;
}

static bool has_matrices(const ShardUnit *unit) {
    for (int k = 0; k < unit->spans; k++)
        if (unit->span[k].rule.whole) return true;
    return false;
}

/* Units with matrices are published last: their update is complete only after all matrices are transformed.
 */
Status shards_update(Shards *shards, const OptimStep *step) {
    const Optimizer *kind = optim_kind(&shards->spec.optim);
    for (int i = 0; i < shards->count; i++) {
        ShardUnit *unit = &shards->unit[i];
        if (!unit->held) continue;
        TRY(each_span(shards, i, step, false, kind->step));
        if (has_matrices(unit))
            TRY(each_span(shards, i, step, true, kind->begin));
        else
            TRY(shard_publish_unit(shards, unit));
    }
    if (shards->matrices) TRY(matrices_transform(shards));
    for (int i = 0; i < shards->count; i++) {
        ShardUnit *unit = &shards->unit[i];
        if (!unit->held || !has_matrices(unit)) continue;
        TRY(each_span(shards, i, step, true, kind->finish));
        TRY(shard_publish_unit(shards, unit));
    }
    return shards_publish_finish(shards);
}
