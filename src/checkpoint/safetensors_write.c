/* Writing safetensors. Declarations gather in a JSON object with their offsets; the first data (or the
 * commit, for an empty file) puts the header before it. The writer counts bytes, so that a file whose
 * data does not fill its declarations is never committed. */
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/safetensors.h"

enum { HEADER_ALIGN = 8 };

struct SafeWriter {
    char *path;
    FileWriter *out;
    json_t *header;
    int64_t declared, written;
    bool started;
};

static const char *type_of(DType dtype) {
    switch (dtype) {
    case DT_F32: return "F32";
    case DT_BF16: return "BF16";
    case DT_F16: return "F16";
    case DT_F64: return "F64";
    case DT_I32: return "I32";
    case DT_I64: return "I64";
    default: return "U8";
    }
}

Status safe_writer_new(SafeWriter **ret_writer, const char *path) {
    CLEANUP(safe_writer_freep) SafeWriter *writer = NULL;
    TRY(mem_new(1, sizeof *writer, &writer));
    TRY(str_dup(path, &writer->path));
    /* transformers refuses files that do not say what they were made by. */
    writer->header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    if (!writer->header) return FAILED("%s: out of memory for its header", path);
    TRY(file_writer_new(&writer->out, path));
    *ret_writer = writer;
    writer = NULL;
    return OK;
}

Status safe_writer_declare(SafeWriter *writer, const char *name, DType dtype, int ndim, const int64_t *dim) {
    if (writer->started) return FAILED("internal: %s: '%s' is declared after data", writer->path, name);
    if (json_object_get(writer->header, name))
        return FAILED("internal: %s: '%s' is declared twice", writer->path, name);
    int64_t bytes = (int64_t)dtype_size(dtype);
    CLEANUP(json_decrefp) json_t *shape = json_array();
    for (int i = 0; i < ndim; i++) {
        if (__builtin_mul_overflow(bytes, dim[i], &bytes))
            return FAILED("%s: '%s' is too large to write", writer->path, name);
        if (json_array_append_new(shape, json_integer(dim[i])))
            return FAILED("%s: out of memory for its header", writer->path);
    }
    int64_t end;
    if (__builtin_add_overflow(writer->declared, bytes, &end))
        return FAILED("%s: '%s' is too large to write", writer->path, name);
    json_t *entry = json_pack("{s:s, s:O, s:[I,I]}", "dtype", type_of(dtype), "shape", shape, "data_offsets",
                              (json_int_t)writer->declared, (json_int_t)end);
    if (!entry || json_object_set_new(writer->header, name, entry))
        return FAILED("%s: out of memory for its header", writer->path);
    writer->declared = end;
    return OK;
}

static Status write_header(SafeWriter *writer) {
    CLEANUP(mem_freep) char *text = json_dumps(writer->header, JSON_COMPACT);
    if (!text) return FAILED("%s: out of memory for its header", writer->path);
    size_t length = strlen(text), padded = (length + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN;
    unsigned char size[8];
    for (int i = 0; i < 8; i++) size[i] = (unsigned char)(padded >> (8 * i));
    TRY(file_write(writer->out, size, sizeof size));
    TRY(file_write(writer->out, text, length));
    TRY(file_write(writer->out, "        ", padded - length));
    writer->started = true;
    return OK;
}

Status safe_writer_write(SafeWriter *writer, const void *data, size_t size) {
    if (!writer->started) TRY(write_header(writer));
    if (size > (uint64_t)(writer->declared - writer->written))
        return FAILED("internal: %s: more data than was declared", writer->path);
    writer->written += (int64_t)size;
    return file_write(writer->out, data, size);
}

Status safe_writer_commit(SafeWriter *writer) {
    if (!writer->started) TRY(write_header(writer));
    if (writer->written != writer->declared)
        return FAILED("internal: %s: %lld of %lld bytes of data were written", writer->path,
                      (long long)writer->written, (long long)writer->declared);
    return file_commit(writer->out);
}

void safe_writer_free(SafeWriter *writer) {
    if (!writer) return;
    file_writer_free(writer->out);
    json_decref(writer->header);
    free(writer->path);
    free(writer);
}
