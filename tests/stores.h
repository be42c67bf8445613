/* The values of a store whose memory the host can access, whatever form they are stored in. */
#ifndef WEFT_TESTS_STORES_H
#define WEFT_TESTS_STORES_H

#include "test.h"

#include "model/model.h"

/* A copy of a unit's values, which the caller frees. */
static inline float *unit_values(const Store *store, int unit) {
    float *copy = NULL;
    assert_ok(mem_new((size_t)store->count[unit], sizeof *copy, &copy));
    int64_t coded = store->codes ? store->codes[unit].count : 0;
    Values codes = store_values(store, unit, 0);
    if (coded) blocks_decode(codes.code, copy, codes.data, codes.scales, coded);
    for (int64_t i = coded; i < store->count[unit]; i++) {
        Values one = store_values(store, unit, i);
        copy[i] = one.rest               ? f32_from_halves(*(uint16_t *)one.data, *one.rest)
                  : one.dtype == DT_BF16 ? bf16_to_f32(*(uint16_t *)one.data)
                  : one.dtype == DT_F16  ? f16_to_f32(*(uint16_t *)one.data)
                                         : *(float *)one.data;
    }
    return copy;
}

static inline void unit_set_values(Store *store, int unit, const float *values) {
    int64_t coded = store->codes ? store->codes[unit].count : 0;
    Values codes = store_values(store, unit, 0);
    if (coded) blocks_encode(codes.code, codes.data, codes.scales, values, coded);
    for (int64_t i = coded; i < store->count[unit]; i++) {
        Values one = store_values(store, unit, i);
        if (one.rest)
            *(uint16_t *)one.data = f32_halves(values[i], one.rest);
        else if (one.dtype != DT_F32)
            *(uint16_t *)one.data = one.dtype == DT_BF16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
        else
            *(float *)one.data = values[i];
    }
}

#endif
