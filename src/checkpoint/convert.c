/* Values pass through small aligned pieces, since a file's data need not be aligned to its type. Turning
 * handles a band of rows at a time, so that both sides are touched in whole cache lines. */
#include "checkpoint/convert.h"

#include <string.h>

#include "base/memory.h"

enum { PIECE = 4096 /* elements */, BAND = 16 /* rows */ };

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

/* `count` values from element `first` on. */
static Status read_run(float *dst, const SafeTensor *tensor, size_t first, size_t count) {
    size_t size = dtype_size(tensor->dtype);
    const unsigned char *src = tensor->data + first * size;
    if (tensor->dtype == DT_F32) {
        memcpy(dst, src, count * size);
        return OK;
    }
    double piece[PIECE];
    for (size_t at = 0; at < count; at += PIECE) {
        size_t n = min_size(PIECE, count - at);
        memcpy(piece, src + at * size, n * size);
        TRY(dtype_convert(dst + at, DT_F32, piece, tensor->dtype, n));
    }
    return OK;
}

Status values_read(float *dst, const SafeTensor *tensor, int64_t rows, int64_t cols, bool turned) {
    if (!turned) return read_run(dst, tensor, 0, (size_t)rows * (size_t)cols);
    CLEANUP(mem_freep) float *band = NULL;
    TRY(mem_new((size_t)rows * BAND, sizeof *band, &band));
    for (int64_t c = 0; c < cols; c += BAND) {
        int64_t width = cols - c < BAND ? cols - c : BAND;
        TRY(read_run(band, tensor, (size_t)(c * rows), (size_t)(width * rows)));
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < width; i++) dst[r * cols + c + i] = band[i * rows + r];
    }
    return OK;
}

static Status write_run(SafeWriter *writer, DType dtype, const float *src, size_t count) {
    if (dtype == DT_F32) return safe_writer_write(writer, src, count * sizeof *src);
    double piece[PIECE];
    for (size_t at = 0; at < count; at += PIECE) {
        size_t n = min_size(PIECE, count - at);
        TRY(dtype_convert(piece, dtype, src + at, DT_F32, n));
        TRY(safe_writer_write(writer, piece, n * dtype_size(dtype)));
    }
    return OK;
}

Status values_write(SafeWriter *writer, DType dtype, const float *src, int64_t rows, int64_t cols,
                    bool turned) {
    if (!turned) return write_run(writer, dtype, src, (size_t)rows * (size_t)cols);
    CLEANUP(mem_freep) float *band = NULL;
    TRY(mem_new((size_t)rows * BAND, sizeof *band, &band));
    for (int64_t c = 0; c < cols; c += BAND) {
        int64_t width = cols - c < BAND ? cols - c : BAND;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < width; i++) band[i * rows + r] = src[r * cols + c + i];
        TRY(write_run(writer, dtype, band, (size_t)(width * rows)));
    }
    return OK;
}

Status values_equal(const SafeTensor *a, const SafeTensor *b, bool *ret_equal) {
    size_t size_a = dtype_size(a->dtype), size_b = dtype_size(b->dtype);
    size_t count = a->bytes / size_a;
    if (count != b->bytes / size_b) {
        *ret_equal = false;
        return OK;
    }
    float x[PIECE], y[PIECE];
    for (size_t at = 0; at < count; at += PIECE) {
        size_t n = min_size(PIECE, count - at);
        TRY(read_run(x, a, at, n));
        TRY(read_run(y, b, at, n));
        if (!memcmp(x, y, n * sizeof *x)) continue;
        *ret_equal = false;
        return OK;
    }
    *ret_equal = true;
    return OK;
}
