/* Each rank numbers the model's parameters alike and scans what it holds; the ranks agree on the first. */
#include "train/trainer.h"

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

enum { MOST = 1 << 24 /* parameters */ };

/* *ret_found is 0 or larger the earlier the parameter comes: in forward order, or with `backward` in backward
 * order. Its last bit is set for NaN. */
static Status find_in(const Store *store, Stream *stream, bool backward, int64_t *ret_found) {
    int64_t found = 0;
    for (ModelParam param = {0}; model_param_next(store->model, &param);) {
        StorePart part;
        bool nan = false, inf = false;
        if (!store_part(store, param.ref, &part)) continue;
        TRY(scan(stream, part.values, part.count, &nan, &inf));
        int64_t key = 2 * (backward ? param.number + 1 : MOST - param.number) + nan;
        if ((nan || inf) && key > found) found = key;
    }
    *ret_found = found;
    return OK;
}

Status nonfinite_find(Runner *runner, char text[NONFINITE_TEXT], bool *ret_in_weights) {
    int64_t found[2] = {0};
    TRY(runner_settle(runner));
    TRY(find_in(runner->params, runner->stream, false, &found[0]));
    if (runner->grads) TRY(find_in(runner->grads, runner->stream, true, &found[1]));
    TRY(host_reduce(runner->mesh->world, found, 2, DT_I64, REDUCE_MAX));
    text[0] = 0;
    *ret_in_weights = found[0] != 0;
    if (!found[0] && !found[1]) return OK;
    int64_t key = found[0] ? found[0] : found[1];
    snprintf(text, NONFINITE_TEXT, "%s %s contains %s", found[0] ? "weight" : "the gradient of",
             model_param_name(runner->model, (int)(found[0] ? MOST - key / 2 : key / 2 - 1)),
             key % 2 ? "NaN" : "Inf");
    return OK;
}
