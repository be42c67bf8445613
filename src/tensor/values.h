/* fp32 values in the memory of a device, as host code reads and writes them. */
#ifndef WEFT_TENSOR_VALUES_H
#define WEFT_TENSOR_VALUES_H

#include "device/device.h"
#include "tensor/blocks.h"
#include "tensor/dtype.h"

/* Without `rest`, `data` has `dtype`: fp32, or a 16-bit type, which rounds what is stored. With it, `data`
 * has the upper halves (f32_halves), in bf16. With a code, it has that of tensor/blocks.h. */
typedef struct Values {
    void *data;
    uint16_t *rest;
    DType dtype;
    BlockCode code;
    float *scales; /* with a code */
} Values;

/* The values from element `at` on; of blocks, the first of one. */
static inline Values values_at(Values values, int64_t at) {
    if (values.code) {
        values.data = (char *)values.data + code_bytes(values.code, at);
        values.scales += at / CODE_BLOCK;
        return values;
    }
    values.data = (char *)values.data + (size_t)at * dtype_size(values.rest ? DT_BF16 : values.dtype);
    if (values.rest) values.rest += at;
    return values;
}

/* The values in host memory: *ret_values is `from` itself where that is possible, else a copy in *ret_copy,
 * which the caller frees. */
MUST_USE Status values_get(Stream *stream, Values from, int64_t count, float **ret_copy,
                           const float **ret_values);
/* The same for values that are in host memory already. */
MUST_USE Status values_here(Values from, int64_t count, float **ret_copy, const float **ret_values);
/* Host memory for new values: `to` itself where that is possible, else *ret_staging, which the caller frees
 * and values_set stores. `staging` may be NULL. */
MUST_USE Status values_space(Stream *stream, Values to, int64_t count, float **ret_staging,
                             float **ret_values);
MUST_USE Status values_set(Stream *stream, Values to, int64_t count, const float *staging);

#endif
