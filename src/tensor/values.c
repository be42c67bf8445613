#include "tensor/values.h"

#include "base/memory.h"
#include "tensor/dtype.h"

static size_t bytes_of(int64_t count, DType dtype) {
    return (size_t)count * dtype_size(dtype);
}

static bool in_place(const Stream *stream, Values values) {
    return device_is_host(stream->device) && !values.rest && !values.code && values.dtype == DT_F32;
}

Status values_here(Values from, int64_t count, float **ret_copy, const float **ret_values) {
    const uint16_t *upper = from.data;
    *ret_values = from.data;
    if (!from.rest && !from.code && from.dtype == DT_F32) return OK;
    TRY(mem_new((size_t)count, sizeof **ret_copy, ret_copy));
    float *to = *ret_copy;
    *ret_values = to;
    if (from.code) {
        blocks_decode(from.code, to, from.data, from.scales, count);
        return OK;
    }
    if (!from.rest) return dtype_convert(to, DT_F32, from.data, from.dtype, (size_t)count);
    for (int64_t i = 0; i < count; i++) to[i] = f32_from_halves(upper[i], from.rest[i]);
    return OK;
}

/* Halves are copied to the host one after the other. */
static Status read_halves(Stream *stream, Values from, int64_t count, float **ret_copy,
                          const float **ret_values) {
    CLEANUP(mem_freep) uint16_t *halves = NULL;
    size_t bytes = bytes_of(count, DT_F32_LOWER);
    TRY(mem_new(2 * (size_t)count, sizeof *halves, &halves));
    TRY(stream_copy(stream, halves, from.data, bytes, COPY_TO_HOST));
    TRY(stream_copy(stream, halves + count, from.rest, bytes, COPY_TO_HOST));
    TRY(stream_sync(stream));
    return values_here((Values){.data = halves, .rest = halves + count}, count, ret_copy, ret_values);
}

static Status read_rounded(Stream *stream, Values from, int64_t count, float **ret_copy,
                           const float **ret_values) {
    CLEANUP(mem_freep) uint16_t *rounded = NULL;
    TRY(mem_new((size_t)count, sizeof *rounded, &rounded));
    TRY(stream_copy(stream, rounded, from.data, bytes_of(count, from.dtype), COPY_TO_HOST));
    TRY(stream_sync(stream));
    return values_here((Values){.data = rounded, .dtype = from.dtype}, count, ret_copy, ret_values);
}

static Status read_blocks(Stream *stream, Values from, int64_t count, float **ret_copy,
                          const float **ret_values) {
    CLEANUP(mem_freep) uint8_t *codes = NULL;
    CLEANUP(mem_freep) float *scales = NULL;
    size_t bytes = (size_t)code_bytes(from.code, count), blocks = (size_t)code_blocks(count);
    TRY(mem_new(bytes, sizeof *codes, &codes));
    TRY(mem_new(blocks, sizeof *scales, &scales));
    TRY(stream_copy(stream, codes, from.data, bytes, COPY_TO_HOST));
    TRY(stream_copy(stream, scales, from.scales, blocks * sizeof *scales, COPY_TO_HOST));
    TRY(stream_sync(stream));
    return values_here((Values){.data = codes, .code = from.code, .scales = scales}, count, ret_copy,
                       ret_values);
}

Status values_get(Stream *stream, Values from, int64_t count, float **ret_copy, const float **ret_values) {
    if (device_is_host(stream->device)) return values_here(from, count, ret_copy, ret_values);
    if (from.rest) return read_halves(stream, from, count, ret_copy, ret_values);
    if (from.code) return read_blocks(stream, from, count, ret_copy, ret_values);
    if (from.dtype != DT_F32) return read_rounded(stream, from, count, ret_copy, ret_values);
    TRY(mem_new((size_t)count, sizeof **ret_copy, ret_copy));
    *ret_values = *ret_copy;
    TRY(stream_copy(stream, *ret_copy, from.data, bytes_of(count, DT_F32), COPY_TO_HOST));
    return stream_sync(stream);
}

Status values_space(Stream *stream, Values to, int64_t count, float **ret_staging, float **ret_values) {
    if (in_place(stream, to)) {
        *ret_values = to.data;
        return OK;
    }
    TRY(mem_new((size_t)count, sizeof **ret_staging, ret_staging));
    *ret_values = *ret_staging;
    return OK;
}

static Status write_halves(Stream *stream, Values to, int64_t count, const float *from) {
    bool host = device_is_host(stream->device);
    CLEANUP(mem_freep) uint16_t *halves = NULL;
    if (!host) TRY(mem_new(2 * (size_t)count, sizeof *halves, &halves));
    uint16_t *upper = host ? to.data : halves, *rest = host ? to.rest : halves + count;
    for (int64_t i = 0; i < count; i++) upper[i] = f32_halves(from[i], &rest[i]);
    if (host) return OK;
    TRY(stream_copy(stream, to.data, upper, bytes_of(count, DT_F32_LOWER), COPY_TO_DEVICE));
    TRY(stream_copy(stream, to.rest, rest, bytes_of(count, DT_F32_LOWER), COPY_TO_DEVICE));
    return stream_sync(stream);
}

static Status write_rounded(Stream *stream, Values to, int64_t count, const float *from) {
    CLEANUP(mem_freep) uint16_t *rounded = NULL;
    if (device_is_host(stream->device)) return dtype_convert(to.data, to.dtype, from, DT_F32, (size_t)count);
    TRY(mem_new((size_t)count, sizeof *rounded, &rounded));
    TRY(dtype_convert(rounded, to.dtype, from, DT_F32, (size_t)count));
    TRY(stream_copy(stream, to.data, rounded, bytes_of(count, to.dtype), COPY_TO_DEVICE));
    return stream_sync(stream);
}

static Status write_blocks(Stream *stream, Values to, int64_t count, const float *from) {
    CLEANUP(mem_freep) uint8_t *codes = NULL;
    CLEANUP(mem_freep) float *scales = NULL;
    size_t bytes = (size_t)code_bytes(to.code, count), blocks = (size_t)code_blocks(count);
    if (device_is_host(stream->device)) {
        blocks_encode(to.code, to.data, to.scales, from, count);
        return OK;
    }
    TRY(mem_new(bytes, sizeof *codes, &codes));
    TRY(mem_new(blocks, sizeof *scales, &scales));
    blocks_encode(to.code, codes, scales, from, count);
    TRY(stream_copy(stream, to.data, codes, bytes, COPY_TO_DEVICE));
    TRY(stream_copy(stream, to.scales, scales, blocks * sizeof *scales, COPY_TO_DEVICE));
    return stream_sync(stream);
}

Status values_set(Stream *stream, Values to, int64_t count, const float *staging) {
    if (!staging) return OK;
    if (to.rest) return write_halves(stream, to, count, staging);
    if (to.code) return write_blocks(stream, to, count, staging);
    if (to.dtype != DT_F32) return write_rounded(stream, to, count, staging);
    TRY(stream_copy(stream, to.data, staging, bytes_of(count, DT_F32), COPY_TO_DEVICE));
    return stream_sync(stream);
}
