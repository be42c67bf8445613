/* The values of a store whose memory the host can access, whatever form they are stored in. */
#ifndef WEFT_TESTS_STORES_H
#define WEFT_TESTS_STORES_H

#include "test.h"

#include "model/model.h"

/* A copy of a unit's values, which the caller frees. */
static inline float *unit_values(const Store *store, int unit) {
    float *copy = NULL;
    assert_ok(mem_new((size_t)store->count[unit], sizeof *copy, &copy));
    for (int64_t i = 0; i < store->count[unit]; i++) {
        Values one = store_values(store, unit, i);
        copy[i] = one.rest ? f32_from_halves(*(uint16_t *)one.data, *one.rest) : *(float *)one.data;
    }
    return copy;
}

static inline void unit_set_values(Store *store, int unit, const float *values) {
    for (int64_t i = 0; i < store->count[unit]; i++) {
        Values one = store_values(store, unit, i);
        if (one.rest)
            *(uint16_t *)one.data = f32_halves(values[i], one.rest);
        else
            *(float *)one.data = values[i];
    }
}

#endif
