/* Values pass through small aligned pieces, since a file's data need not be aligned to its type. */
#include "checkpoint/convert.h"

#include <string.h>

enum { PIECE = 4096 /* elements */ };

static int64_t min_count(int64_t a, int64_t b) {
    return a < b ? a : b;
}

Status values_read(float *dst, const SafeTensor *tensor, int64_t first, int64_t count) {
    size_t size = dtype_size(tensor->dtype);
    const unsigned char *src = tensor->data + (size_t)first * size;
    if (tensor->dtype == DT_F32) {
        memcpy(dst, src, (size_t)count * size);
        return OK;
    }
    double piece[PIECE];
    for (int64_t at = 0; at < count; at += PIECE) {
        size_t n = (size_t)min_count(PIECE, count - at);
        memcpy(piece, src + (size_t)at * size, n * size);
        TRY(dtype_convert(dst + at, DT_F32, piece, tensor->dtype, n));
    }
    return OK;
}

Status values_place(SafeWriter *writer, int64_t at, DType dtype, const float *src, int64_t count) {
    size_t size = dtype_size(dtype);
    if (dtype == DT_F32) return safe_writer_place(writer, at, src, (size_t)count * size);
    double piece[PIECE];
    for (int64_t i = 0; i < count; i += PIECE) {
        size_t n = (size_t)min_count(PIECE, count - i);
        TRY(dtype_convert(piece, dtype, src + i, DT_F32, n));
        TRY(safe_writer_place(writer, at + i * (int64_t)size, piece, n * size));
    }
    return OK;
}

Status values_equal(const SafeTensor *a, const SafeTensor *b, bool *ret_equal) {
    int64_t count = (int64_t)(a->bytes / dtype_size(a->dtype));
    if (count != (int64_t)(b->bytes / dtype_size(b->dtype))) {
        *ret_equal = false;
        return OK;
    }
    float x[PIECE], y[PIECE];
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t n = min_count(PIECE, count - at);
        TRY(values_read(x, a, at, n));
        TRY(values_read(y, b, at, n));
        if (!memcmp(x, y, (size_t)n * sizeof *x)) continue;
        *ret_equal = false;
        return OK;
    }
    *ret_equal = true;
    return OK;
}
