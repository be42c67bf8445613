/* A Tensor is a view that does not own its memory. It is always contiguous and row-major. Where a tensor
 * argument is optional, NULL data (TENSOR_NONE) means "absent". */
#ifndef WEFT_TENSOR_TENSOR_H
#define WEFT_TENSOR_TENSOR_H

#include <stdint.h>

#include "base/memory.h"
#include "tensor/dtype.h"

enum { TENSOR_DIMS = 5 };

typedef struct Tensor {
    void *data;
    DType dtype;
    int ndim;
    int64_t dim[TENSOR_DIMS];
} Tensor;

#define TENSOR_NONE ((Tensor){0})

static inline int64_t tensor_count(Tensor t) {
    int64_t count = 1;
    for (int i = 0; i < t.ndim; i++) count *= t.dim[i];
    return count;
}
static inline size_t tensor_bytes(Tensor t) {
    return (size_t)tensor_count(t) * dtype_size(t.dtype);
}
/* The tensor as a matrix: the last dim is the columns, all other dims together the rows. */
static inline int64_t tensor_cols(Tensor t) {
    return t.dim[t.ndim - 1];
}
static inline int64_t tensor_rows(Tensor t) {
    return tensor_cols(t) ? tensor_count(t) / tensor_cols(t) : 0;
}

static inline float *tensor_f32(Tensor t) {
    return (float *)t.data;
}
static inline int32_t *tensor_i32(Tensor t) {
    return (int32_t *)t.data;
}

/* One element of a floating-point tensor. tensor_put rounds to the tensor's type. */
static inline double tensor_get(Tensor t, int64_t i) {
    switch (t.dtype) {
    case DT_F32: return ((const float *)t.data)[i];
    case DT_BF16: return bf16_to_f32(((const uint16_t *)t.data)[i]);
    case DT_F16: return f16_to_f32(((const uint16_t *)t.data)[i]);
    case DT_E4M3: return e4m3_to_f32(((const uint8_t *)t.data)[i]);
    case DT_E5M2: return e5m2_to_f32(((const uint8_t *)t.data)[i]);
    default: return ((const double *)t.data)[i];
    }
}
static inline void tensor_put(Tensor t, int64_t i, double value) {
    switch (t.dtype) {
    case DT_F32: ((float *)t.data)[i] = (float)value; break;
    case DT_BF16: ((uint16_t *)t.data)[i] = f32_to_bf16((float)value); break;
    case DT_F16: ((uint16_t *)t.data)[i] = f32_to_f16((float)value); break;
    case DT_E4M3: ((uint8_t *)t.data)[i] = f32_to_e4m3((float)value); break;
    case DT_E5M2: ((uint8_t *)t.data)[i] = f32_to_e5m2((float)value); break;
    default: ((double *)t.data)[i] = value;
    }
}

static inline Tensor tensor_1d(void *data, DType dtype, int64_t a) {
    return (Tensor){.data = data, .dtype = dtype, .ndim = 1, .dim = {a}};
}
static inline Tensor tensor_2d(void *data, DType dtype, int64_t a, int64_t b) {
    return (Tensor){.data = data, .dtype = dtype, .ndim = 2, .dim = {a, b}};
}
static inline Tensor tensor_3d(void *data, DType dtype, int64_t a, int64_t b, int64_t c) {
    return (Tensor){.data = data, .dtype = dtype, .ndim = 3, .dim = {a, b, c}};
}
static inline Tensor tensor_4d(void *data, DType dtype, int64_t a, int64_t b, int64_t c, int64_t d) {
    return (Tensor){.data = data, .dtype = dtype, .ndim = 4, .dim = {a, b, c, d}};
}
static inline Tensor tensor_5d(void *data, DType dtype, int64_t a, int64_t b, int64_t c, int64_t d,
                               int64_t e) {
    return (Tensor){.data = data, .dtype = dtype, .ndim = 5, .dim = {a, b, c, d, e}};
}

/* Entries first .. first + count - 1 of the first dim. */
static inline Tensor tensor_slice(Tensor t, int64_t first, int64_t count) {
    int64_t inner = t.dim[0] ? tensor_count(t) / t.dim[0] : 0;
    if (t.data) t.data = (char *)t.data + (size_t)(first * inner) * dtype_size(t.dtype);
    t.dim[0] = count;
    return t;
}
/* The tensor reshaped to (rows, cols). */
static inline Tensor tensor_matrix(Tensor t) {
    return tensor_2d(t.data, t.dtype, tensor_rows(t), tensor_cols(t));
}
/* Allocates a tensor of the given shape from a bump allocator. */
static inline Tensor tensor_take(Bump *bump, Tensor shape) {
    shape.data = bump_take(bump, tensor_bytes(shape));
    return shape;
}

#endif
