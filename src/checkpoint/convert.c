/* Values pass through small aligned chunks, since data in a file need not be aligned to its type. */
#include "checkpoint/safetensors.h"

#include <string.h>

enum { CHUNK = 4096 /* elements */ };

static int64_t min_count(int64_t a, int64_t b) {
    return a < b ? a : b;
}

Status values_read(float *dst, const SafeTensor *tensor, int64_t first, int64_t count) {
    if (tensor->read) return tensor->read(tensor, first, count, dst);
    size_t size = dtype_size(tensor->dtype);
    const unsigned char *src = tensor->data + (size_t)first * size;
    if (tensor->dtype == DT_F32) {
        memcpy(dst, src, (size_t)count * size);
        return OK;
    }
    double chunk[CHUNK];
    for (int64_t at = 0; at < count; at += CHUNK) {
        size_t n = (size_t)min_count(CHUNK, count - at);
        memcpy(chunk, src + (size_t)at * size, n * size);
        TRY(dtype_convert(dst + at, DT_F32, chunk, tensor->dtype, n));
    }
    return OK;
}

Status values_write(SafeWriter *writer, int64_t at, DType dtype, const float *src, int64_t count) {
    size_t size = dtype_size(dtype);
    if (dtype == DT_F32) return safe_writer_write(writer, at, src, (size_t)count * size);
    double chunk[CHUNK];
    for (int64_t i = 0; i < count; i += CHUNK) {
        size_t n = (size_t)min_count(CHUNK, count - i);
        TRY(dtype_convert(chunk, dtype, src + i, DT_F32, n));
        TRY(safe_writer_write(writer, at + i * (int64_t)size, chunk, n * size));
    }
    return OK;
}

Status values_equal(const SafeTensor *a, const SafeTensor *b, bool *ret_equal) {
    int64_t count = (int64_t)(a->bytes / dtype_size(a->dtype));
    if (count != (int64_t)(b->bytes / dtype_size(b->dtype))) {
        *ret_equal = false;
        return OK;
    }
    float x[CHUNK], y[CHUNK];
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t n = min_count(CHUNK, count - at);
        TRY(values_read(x, a, at, n));
        TRY(values_read(y, b, at, n));
        if (!memcmp(x, y, (size_t)n * sizeof *x)) continue;
        *ret_equal = false;
        return OK;
    }
    *ret_equal = true;
    return OK;
}
