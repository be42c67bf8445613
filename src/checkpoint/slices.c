/* Resharding between files and slices of parameters; see slices.h. */
#include "checkpoint/slices.h"

#include <string.h>

#include "base/memory.h"
#include "checkpoint/safetensors.h"

/* Tile sizes for transposition: BAND rows of the file at a time, so that both sides are accessed in full
 * cache lines. */
enum {
    BAND = 16,
    WIDTH = 256,
    WRITE_BAND = 64,
    BROADCAST_BYTES = 4 << 20 /* bytes of a tensor that are broadcast at once */
};

static int64_t min_count(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Index of the tensor's first element within the parameter. */
static int64_t first_of(const HfTensor *tensor) {
    return tensor->part > 0 ? tensor->part * hf_tensor_count(tensor) : 0;
}

/* Parameters of several tensors have no padding, which reading must set to 0. */
bool slice_narrow(const ParamSlot *slot, const HfTensor *tensor, int64_t *from, int64_t *count) {
    int64_t begin = *from, end = begin + *count;
    if (tensor->part >= 0) {
        int64_t low = slot_before(slot, first_of(tensor)),
                high = slot_before(slot, first_of(tensor) + hf_tensor_count(tensor));
        if (low > begin) begin = low;
        end = min_count(end, high);
    }
    *from = begin;
    *count = end - begin;
    return end > begin;
}

/* ---- reading ---- */

/* Elements lo .. hi - 1 of a tensor's file elements; `data` of the tensor begins with element lo. */
typedef struct Window {
    int64_t lo, hi;
} Window;

static Status read_run(float *dst, ParamRun run, const HfTensor *wanted, const SafeTensor *tensor,
                       Window window) {
    int64_t first = first_of(wanted), begin = first + window.lo;
    int64_t from = run.global > begin ? run.global : begin;
    int64_t to = min_count(run.global + run.count, first + window.hi);
    return from < to ? values_read(dst + (from - run.global), tensor, from - begin, to - from) : OK;
}

/* dst[i][k] = element (r + k, c + i) of a matrix with `cols` columns; rows of dst are `stride` apart. */
static Status read_rectangle(float *dst, int64_t stride, const SafeTensor *tensor, int64_t cols, int64_t c,
                             int64_t width, int64_t r, int64_t height) {
    float band[BAND * WIDTH];
    for (int64_t i = 0; i < width; i += WIDTH)
        for (int64_t k = 0; k < height; k += BAND) {
            int64_t w = min_count(WIDTH, width - i), h = min_count(BAND, height - k);
            for (int64_t b = 0; b < h; b++)
                TRY(values_read(band + b * WIDTH, tensor, (r + k + b) * cols + c + i, w));
            for (int64_t x = 0; x < w; x++)
                for (int64_t b = 0; b < h; b++) dst[(i + x) * stride + k + b] = band[b * WIDTH + x];
        }
    return OK;
}

/* The file stores (in, out); the slot holds rows of (out, in). Reads as many complete rows at once as are
 * contiguous in the parameter, or part of one row. The window has complete rows of the file. */
static Status read_turned(float *dst, const ParamSlot *slot, int64_t from, int64_t count,
                          const HfTensor *wanted, const SafeTensor *tensor, Window window) {
    int last = slot->desc.ndim - 1;
    int64_t in = wanted->dim[0], out = wanted->dim[1], row = slot->dim[last];
    int64_t low = window.lo / out, high = window.hi / out;
    for (int64_t at = from, end = from + count; at < end;) {
        ParamRun run = slot_run(slot, at, end - at);
        int64_t height = min_count(row - at % row, end - at), width = 1;
        if (height == row) width = (slot->desc.split == last ? end - at : run.count) / row;
        int64_t r = run.global % in, begin = r > low ? r : low, stop = min_count(r + height, high);
        if (begin < stop)
            TRY(read_rectangle(dst + (at - from) + (begin - r), row, tensor, out, run.global / in, width,
                               begin - low, stop - begin));
        at += width * height;
    }
    return OK;
}

static Status read_window(float *dst, const ParamSlot *slot, int64_t from, int64_t count,
                          const HfTensor *wanted, const SafeTensor *tensor, Window window) {
    int64_t given = from;
    if (wanted->transposed) return read_turned(dst, slot, from, count, wanted, tensor, window);
    if (!slice_narrow(slot, wanted, &from, &count)) return OK;
    dst += from - given;
    for (int64_t at = from, end = from + count; at < end;) {
        ParamRun run = slot_run(slot, at, end - at);
        if (run.global < 0)
            memset(dst + (at - from), 0, (size_t)run.count * sizeof *dst);
        else
            TRY(read_run(dst + (at - from), run, wanted, tensor, window));
        at += run.count;
    }
    return OK;
}

Status slice_read(float *dst, const ParamSlot *slot, int64_t from, int64_t count, const HfTensor *wanted,
                  const SafeTensor *const *tensor, int parts) {
    for (int i = 0; i < parts; i++)
        TRY(read_window(dst, slot, from, count, &wanted[i], tensor[i],
                        (Window){0, hf_tensor_count(&wanted[i])}));
    return OK;
}

/* On rank 0, the tensor's data from byte `from` on; elsewhere the buffer. */
static void *window_data(const Group *group, const SafeTensor *tensor, size_t from, Buffer buffer) {
    return group->rank ? buffer.data : (void *)((uintptr_t)tensor->data + from);
}

static Status receive_tensor(float *dst, const ParamSlot *slot, int64_t from, int64_t count,
                             const HfTensor *wanted, const SafeTensor *tensor, const RootDisk *disk) {
    CLEANUP(dev_free) Buffer buffer = {0};
    Group *group = disk->group;
    if (tensor->read)
        return FAILED("tensor '%s': weights that only one rank has must be in safetensors files",
                      tensor->name);
    int64_t size = (int64_t)dtype_size(tensor->dtype), total = hf_tensor_count(wanted);
    int64_t row = wanted->transposed ? wanted->dim[1] : 1, most = BROADCAST_BYTES / (row * size) * row;
    if (most < row) most = row;
    if (most > total) most = total;
    TRY(dev_alloc(disk->stream->device, MEM_COMM, (size_t)(group->rank ? most * size : 0), &buffer));
    for (int64_t lo = 0; lo < total; lo += most) {
        Window window = {lo, min_count(lo + most, total)};
        SafeTensor part = *tensor;
        part.bytes = (size_t)((window.hi - lo) * size);
        void *data = window_data(group, tensor, (size_t)(lo * size), buffer);
        TRY(broadcast(group, disk->stream, tensor_1d(data, DT_U8, (int64_t)part.bytes), 0, NULL));
        part.data = data;
        if (count) TRY(read_window(dst, slot, from, count, wanted, &part, window));
    }
    return OK;
}

Status slice_receive(float *dst, const ParamSlot *slot, int64_t from, int64_t count, const HfTensor *wanted,
                     const SafeTensor *const *tensor, int parts, const RootDisk *disk) {
    for (int i = 0; i < parts; i++) TRY(receive_tensor(dst, slot, from, count, &wanted[i], tensor[i], disk));
    return OK;
}

/* ---- writing ---- */

/* Where slice_write writes to. */
typedef struct Target {
    const HfTensor *tensor;
    SafeWriter *file;
    int64_t at;
    DType dtype;
} Target;

/* Rows of the slot are columns of the file: writes `width` rows of src, `stride` apart, as columns c ... of
 * its rows r ... r + height - 1. */
static Status write_rectangle(const float *src, int64_t stride, const Target *to, int64_t c, int64_t width,
                              int64_t r, int64_t height) {
    int64_t out = to->tensor->dim[1], size = (int64_t)dtype_size(to->dtype);
    CLEANUP(mem_freep) float *band = NULL;
    TRY(mem_new((size_t)width, WRITE_BAND * sizeof *band, &band));
    for (int64_t k = 0; k < height; k += WRITE_BAND) {
        int64_t h = min_count(WRITE_BAND, height - k), at = to->at + ((r + k) * out + c) * size;
        for (int64_t i = 0; i < width; i++)
            for (int64_t b = 0; b < h; b++) band[b * width + i] = src[i * stride + k + b];
        if (width == out) {
            TRY(values_write(to->file, at, to->dtype, band, h * out));
            continue;
        }
        for (int64_t b = 0; b < h; b++)
            TRY(values_write(to->file, at + b * out * size, to->dtype, band + b * width, width));
    }
    return OK;
}

/* As in read_turned. */
static Status write_slice_turned(const float *src, const ParamSlot *slot, int64_t from, int64_t count,
                                 const Target *to) {
    int last = slot->desc.ndim - 1;
    int64_t in = to->tensor->dim[0], row = slot->dim[last];
    for (int64_t at = from, end = from + count; at < end;) {
        ParamRun run = slot_run(slot, at, end - at);
        int64_t height = min_count(row - at % row, end - at), width = 1;
        if (height == row) width = (slot->desc.split == last ? end - at : run.count) / row;
        TRY(write_rectangle(src + (at - from), row, to, run.global / in, width, run.global % in, height));
        at += width * height;
    }
    return OK;
}

Status slice_write(const float *src, const ParamSlot *slot, int64_t from, int64_t count,
                   const HfTensor *tensor, SafeWriter *file, int64_t at, DType dtype) {
    Target to = {tensor, file, at, dtype};
    if (tensor->transposed) return write_slice_turned(src, slot, from, count, &to);
    int64_t first = first_of(tensor), end = first + hf_tensor_count(tensor);
    for (int64_t i = from; i < from + count;) {
        ParamRun run = slot_run(slot, i, from + count - i);
        int64_t begin = run.global > first ? run.global : first;
        int64_t stop = min_count(run.global + run.count, end);
        if (run.global >= 0 && begin < stop)
            TRY(values_write(file, at + (begin - first) * (int64_t)dtype_size(dtype), dtype,
                             src + (i - from) + (begin - run.global), stop - begin));
        i += run.count;
    }
    return OK;
}
