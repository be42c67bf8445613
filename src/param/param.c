#include "param/param.h"

#include "base/rng.h"

Status param_add(ParamList *list, ParamDesc desc) {
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

static Status slot_init(ParamSlot *slot, const ParamDesc *desc, int64_t offset, int tp_rank, int tp_size) {
    *slot = (ParamSlot){.desc = *desc, .offset = offset, .count = 1};
    for (int i = 0; i < desc->ndim; i++) {
        slot->dim[i] = desc->dim[i];
        if (i == desc->split) {
            if (desc->dim[i] % tp_size)
                return USAGE("%s: its dim of %lld does not divide over %d tensor-parallel ranks", desc->name,
                             (long long)desc->dim[i], tp_size);
            slot->dim[i] /= tp_size;
            slot->start = slot->dim[i] * tp_rank;
        }
        slot->count *= slot->dim[i];
    }
    return OK;
}

Status unit_init(Unit *ret_unit, const ParamList *list, int tp_rank, int tp_size) {
    Unit unit = {0};
    TRY(mem_new(list->count, sizeof *unit.slot, &unit.slot));
    for (size_t i = 0; i < list->count; i++) {
        if (list->desc[i].tied) continue;
        ParamSlot *slot = &unit.slot[unit.count];
        Status status = slot_init(slot, &list->desc[i], unit.numel, tp_rank, tp_size);
        if (status) {
            unit_done(&unit);
            return status;
        }
        unit.count++;
        unit.numel += (slot->count + UNIT_ALIGN - 1) / UNIT_ALIGN * UNIT_ALIGN;
    }
    *ret_unit = unit;
    return OK;
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

/* A truncated draw is repeated, in streams of its own, until it falls within two deviations. */
static float draw(RngKey key, uint64_t index, bool truncated) {
    float value = rng_normal(key, index);
    while (truncated && !(value >= -2 && value <= 2)) {
        key.step++;
        value = rng_normal(key, index);
    }
    return value;
}

void param_init(const ParamSlot *slot, uint64_t seed, float *values) {
    const ParamDesc *desc = &slot->desc;
    if (desc->init == INIT_ONES || desc->init == INIT_ZEROS) {
        for (int64_t i = 0; i < slot->count; i++) values[i] = desc->init == INIT_ONES ? 1.0f : 0.0f;
        return;
    }
    /* Along the cut dim this rank holds a run out of each group of desc->dim[cut] x inner. */
    int cut = desc->split < 0 ? 0 : desc->split;
    int64_t inner = 1;
    for (int i = cut + 1; i < desc->ndim; i++) inner *= desc->dim[i];
    int64_t run = slot->dim[cut] * inner;
    RngKey key = rng_key(seed, desc->name, 0);
#pragma omp parallel for schedule(static) if (slot->count > 65536)
    for (int64_t i = 0; i < slot->count; i++) {
        int64_t global = (i / run * desc->dim[cut] + slot->start) * inner + i % run;
        values[i] = desc->std * draw(key, (uint64_t)global, desc->init == INIT_TRUNCATED);
    }
}
