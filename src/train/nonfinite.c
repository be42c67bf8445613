/* Each rank numbers the model's parameters alike and scans what it holds; the ranks agree on the first. */
#include "train/nonfinite.h"

#include <math.h>

#include "base/memory.h"

enum { CHUNK = 1 << 16 };

static Status scan(Stream *stream, Values values, int64_t count, bool *nan, bool *inf) {
    for (int64_t at = 0; at < count && !*nan; at += CHUNK) {
        int64_t n = count - at < CHUNK ? count - at : CHUNK;
        CLEANUP(mem_freep) float *copy = NULL;
        const float *chunk;
        TRY(values_get(stream, values_at(values, at), n, &copy, &chunk));
        for (int64_t i = 0; i < n; i++) {
            *nan |= isnan(chunk[i]);
            *inf |= isinf(chunk[i]);
        }
    }
    return OK;
}

/* The parameter's elements on this rank. */
static Status scan_param(const Store *store, ParamRef ref, Stream *stream, bool *nan, bool *inf) {
    int64_t from, count, first = store->first[ref.unit];
    const ParamSlot *slot = &store->unit[ref.unit].slot[ref.slot];
    if (!slot_overlap(slot, first, store->count[ref.unit], &from, &count)) return OK;
    return scan(stream, store_values(store, ref.unit, slot->offset + from - first), count, nan, inf);
}

/* *ret_found is 0 or larger the earlier the parameter comes: in forward order, or with `backward` in backward
 * order. Its last bit is set for NaN. */
static Status find_in(const Store *store, Stream *stream, bool backward, int64_t *ret_found) {
    const Model *model = store->model;
    int64_t number = 0, found = 0, all = 0;
    for (int i = 0; i < model->count; i++) all += (int64_t)model->block[i].params.count;
    for (int i = 0; i < model->count; i++)
        for (size_t j = 0; j < model->block[i].params.count; j++, number++) {
            const Block *block = &model->block[i];
            bool nan = false, inf = false;
            if (block->params.desc[j].tied || !store->count[block->ref[j].unit]) continue;
            TRY(scan_param(store, block->ref[j], stream, &nan, &inf));
            int64_t key = 2 * (backward ? number + 1 : all - number) + nan;
            if ((nan || inf) && key > found) found = key;
        }
    *ret_found = found;
    return OK;
}

static const char *name_of(const Model *model, int64_t number) {
    int i = 0;
    while (number >= (int64_t)model->block[i].params.count) number -= (int64_t)model->block[i++].params.count;
    return model->block[i].params.desc[number].name;
}

Status nonfinite_find(Runner *runner, char text[NONFINITE_TEXT], bool *ret_in_weights) {
    const Model *model = runner->model;
    int64_t found[2] = {0}, all = 0;
    for (int i = 0; i < model->count; i++) all += (int64_t)model->block[i].params.count;
    TRY(runner_settle(runner));
    TRY(find_in(runner->params, runner->stream, false, &found[0]));
    if (runner->grads) TRY(find_in(runner->grads, runner->stream, true, &found[1]));
    TRY(host_reduce(runner->mesh->world, found, 2, DT_I64, REDUCE_MAX));
    text[0] = 0;
    *ret_in_weights = found[0] != 0;
    if (!found[0] && !found[1]) return OK;
    int64_t key = found[0] ? found[0] : found[1];
    snprintf(text, NONFINITE_TEXT, "%s %s contains %s", found[0] ? "weight" : "the gradient of",
             name_of(model, found[0] ? all - key / 2 : key / 2 - 1), key % 2 ? "NaN" : "Inf");
    return OK;
}
