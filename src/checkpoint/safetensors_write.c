/* Writes safetensors. Declarations collect in a JSON object with their offsets. The header depends only on
 * them, so every rank computes the same offset of the data. Data is written with pwrite rather than through
 * a mapping, because on shared file systems, writes from several hosts to disjoint ranges do not
 * interfere. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "checkpoint/safetensors.h"

enum { HEADER_ALIGN = 8, LENGTH_BYTES = 8 };

struct SafeWriter {
    char *path;
    json_t *header;
    int64_t declared; /* bytes of data */
    SafeSum *sum;     /* one per tensor */
    size_t sums, sums_capacity;
    /* Consecutive writes to one tensor, not yet in its sum. */
    struct {
        SafeSum *sum; /* NULL: none */
        int64_t end;
        uint32_t crc;
    } recent;
    int64_t begin; /* file offset of the data; 0 until the file is opened */
    int fd;
    bool dirty; /* has unsynced writes */
    struct {
        SafePut put; /* NULL: writes go to the file */
        void *context;
        int number;
    } diverted;
};

static const char *type_of(DType dtype) {
    switch (dtype) {
    case DT_F32: return "F32";
    case DT_BF16: return "BF16";
    case DT_F16: return "F16";
    case DT_F64: return "F64";
    case DT_I32: return "I32";
    case DT_I64: return "I64";
    case DT_I8: return "I8";
    default: return "U8";
    }
}

Status safe_writer_new(SafeWriter **ret_writer, const char *path) {
    CLEANUP(safe_writer_freep) SafeWriter *writer = NULL;
    TRY(mem_new(1, sizeof *writer, &writer));
    writer->fd = -1;
    TRY(str_dup(path, &writer->path));
    /* transformers rejects files without this metadata. */
    writer->header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    if (!writer->header) return FAILED("%s: out of memory for the header", path);
    return MOVE(ret_writer, writer);
}

Status safe_writer_declare(SafeWriter *writer, const char *name, DType dtype, int ndim, const int64_t *dim) {
    if (writer->begin)
        return FAILED("internal: %s: '%s' is declared after the file was opened", writer->path, name);
    if (json_object_get(writer->header, name))
        return FAILED("internal: %s: '%s' is declared twice", writer->path, name);
    int64_t bytes = (int64_t)dtype_size(dtype);
    CLEANUP(json_decrefp) json_t *shape = json_array();
    for (int i = 0; i < ndim; i++) {
        if (__builtin_mul_overflow(bytes, dim[i], &bytes))
            return FAILED("%s: '%s' is too large to write", writer->path, name);
        if (json_array_append_new(shape, json_integer(dim[i])))
            return FAILED("%s: out of memory for the header", writer->path);
    }
    int64_t end;
    if (__builtin_add_overflow(writer->declared, bytes, &end))
        return FAILED("%s: '%s' is too large to write", writer->path, name);
    json_t *entry = json_pack("{s:s, s:O, s:[I,I]}", "dtype", type_of(dtype), "shape", shape, "data_offsets",
                              (json_int_t)writer->declared, (json_int_t)end);
    if (!entry || json_object_set_new(writer->header, name, entry))
        return FAILED("%s: out of memory for the header", writer->path);
    TRY(mem_grow(&writer->sum, &writer->sums_capacity, writer->sums + 1, sizeof *writer->sum));
    writer->sum[writer->sums++] =
        (SafeSum){json_object_iter_key(json_object_iter_at(writer->header, name)), writer->declared, end, 0};
    writer->declared = end;
    return OK;
}

const char *safe_writer_path(const SafeWriter *writer) {
    return writer->path;
}

int64_t safe_writer_declared(const SafeWriter *writer) {
    return writer->declared;
}

/* The length, the header and its padding. */
static Status make_header(const SafeWriter *writer, char **ret_header, size_t *ret_size) {
    CLEANUP(mem_freep) char *text = json_serialize(writer->header, JSON_COMPACT);
    if (!text) return FAILED("%s: out of memory for the header", writer->path);
    size_t length = strlen(text), padded = (length + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN;
    char *header;
    TRY(mem_new(LENGTH_BYTES + padded, 1, &header));
    for (int i = 0; i < LENGTH_BYTES; i++) header[i] = (char)(padded >> (8 * i));
    memset(header + LENGTH_BYTES, ' ', padded);
    memcpy(header + LENGTH_BYTES, text, length);
    *ret_header = header;
    *ret_size = LENGTH_BYTES + padded;
    return OK;
}

static Status cannot(const SafeWriter *writer, const char *what) {
    return FAILED("%s: cannot %s: %s", writer->path, what, strerror(errno));
}

static Status put(SafeWriter *writer, int64_t at, const void *data, size_t size) {
    writer->dirty = true;
    for (const char *from = data; size > 0;) {
        ssize_t wrote = pwrite(writer->fd, from, size, (off_t)at);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return cannot(writer, "write");
        from += wrote;
        at += wrote;
        size -= (size_t)wrote;
    }
    return OK;
}

static Status open_file(SafeWriter *writer, int flags, char **ret_header, size_t *ret_size) {
    TRY(make_header(writer, ret_header, ret_size));
    writer->begin = (int64_t)*ret_size;
    writer->fd = open(writer->path, O_WRONLY | O_CLOEXEC | flags, 0666);
    return writer->fd >= 0 ? OK : cannot(writer, "write");
}

Status safe_writer_create(SafeWriter *writer) {
    CLEANUP(mem_freep) char *header = NULL;
    size_t size = 0;
    TRY(open_file(writer, O_CREAT | O_TRUNC, &header, &size));
    TRY(put(writer, 0, header, size));
    if (ftruncate(writer->fd, (off_t)(writer->begin + writer->declared)) != 0) return cannot(writer, "write");
    return OK;
}

Status safe_writer_open(SafeWriter *writer) {
    CLEANUP(mem_freep) char *header = NULL;
    size_t size = 0;
    return writer->fd >= 0 ? OK : open_file(writer, 0, &header, &size);
}

/* The first tensor that ends after `at`. */
static size_t tensor_at(const SafeWriter *writer, int64_t at) {
    size_t low = 0, high = writer->sums;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (writer->sum[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void sum_recent(SafeWriter *writer) {
    SafeSum *sum = writer->recent.sum;
    if (sum) sum->crc ^= crc32c_part(writer->recent.crc, (uint64_t)(sum->end - writer->recent.end));
    writer->recent.sum = NULL;
}

static void add_to_sums(SafeWriter *writer, int64_t at, const unsigned char *data, int64_t size) {
    for (size_t i = tensor_at(writer, at); size > 0; i++) {
        SafeSum *sum = &writer->sum[i];
        int64_t here = sum->end - at < size ? sum->end - at : size;
        if (writer->recent.sum != sum || writer->recent.end != at) {
            sum_recent(writer);
            writer->recent.sum = sum;
            writer->recent.crc = 0;
        }
        writer->recent.crc = crc32c(writer->recent.crc, data, (size_t)here);
        writer->recent.end = at + here;
        data += here;
        at += here;
        size -= here;
    }
}

SafeSum *safe_writer_sums(SafeWriter *writer, size_t *ret_count) {
    sum_recent(writer);
    *ret_count = writer->sums;
    return writer->sum;
}

static Status check_range(const SafeWriter *writer, int64_t at, size_t size) {
    bool open = writer->fd >= 0 || writer->diverted.put;
    if (open && at >= 0 && at <= writer->declared && size <= (uint64_t)(writer->declared - at)) return OK;
    return FAILED("internal: %s: %zu bytes at offset %lld are not in the data", writer->path, size,
                  (long long)at);
}

Status safe_writer_write(SafeWriter *writer, int64_t at, const void *data, size_t size) {
    TRY(check_range(writer, at, size));
    add_to_sums(writer, at, data, (int64_t)size);
    if (writer->diverted.put)
        return writer->diverted.put(writer->diverted.context, writer->diverted.number, at, data, size);
    return put(writer, writer->begin + at, data, size);
}

Status safe_writer_put(SafeWriter *writer, int64_t at, const void *data, size_t size) {
    TRY(check_range(writer, at, size));
    return put(writer, writer->begin + at, data, size);
}

void safe_writer_divert(SafeWriter *writer, SafePut to, void *context, int number) {
    writer->diverted.put = to;
    writer->diverted.context = context;
    writer->diverted.number = number;
}

Status safe_writer_close(SafeWriter *writer) {
    if (writer->fd < 0) return OK;
    int fd = writer->fd;
    writer->fd = -1;
    int failed = writer->dirty && fsync(fd) != 0 && errno != EINVAL ? errno : 0;
    if (close(fd) != 0 && !failed) failed = errno;
    if (!failed) return OK;
    errno = failed;
    return cannot(writer, "sync");
}

void safe_writer_free(SafeWriter *writer) {
    if (!writer) return;
    if (writer->fd >= 0) close(writer->fd);
    json_decref(writer->header);
    free(writer->sum);
    free(writer->path);
    free(writer);
}
