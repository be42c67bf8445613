/* Parses the file: header, keys with values, and the list of tensors. Every size is checked against the file.
 */
#include "checkpoint/gguf_read.h"

#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "checkpoint/gguf_meta.h"

enum { VERSION_LEAST = 2, VERSION_MOST = 3, MOST_TENSORS = 1 << 20, MOST_ENTRIES = 1 << 24 };

/* Types of values that weft does not write, numbered as in the file. */
enum { META_U8 = 0, META_I8 = 1, META_U16 = 2, META_I16 = 3, META_U64 = 10, META_I64 = 11, META_F64 = 12 };

typedef struct Cursor {
    const char *path;
    const unsigned char *data;
    size_t at, size;
    size_t entries; /* of arrays so far */
} Cursor;

static Status damaged(const char *path, const char *what) {
    return DAMAGED("%s: not a valid GGUF file: %s", path, what);
}

void gguf_file_done(GgufFile *file) {
    for (size_t i = 0; i < file->count; i++) free(file->tensor[i].name);
    free(file->tensor);
    json_decref(file->meta);
    file_map_done(&file->map);
    free(file->path);
    *file = (GgufFile){0};
}

const GgufTensor *gguf_find(const GgufFile *file, const char *name) {
    for (size_t i = 0; i < file->count; i++)
        if (!strcmp(file->tensor[i].name, name)) return &file->tensor[i];
    return NULL;
}

/* ---- values ---- */

static Status take(Cursor *in, void *to, size_t size) {
    if (size > in->size - in->at) return damaged(in->path, "it is truncated");
    memcpy(to, in->data + in->at, size);
    in->at += size;
    return OK;
}

static Status take_text(Cursor *in, const char **ret_text, size_t *ret_size) {
    uint64_t size = 0;
    TRY(take(in, &size, sizeof size));
    if (size > in->size - in->at) return damaged(in->path, "it is truncated");
    *ret_text = (const char *)in->data + in->at;
    *ret_size = (size_t)size;
    in->at += (size_t)size;
    return OK;
}

/* Little-endian integers of any width, with or without a sign. */
static Status take_integer(Cursor *in, size_t size, bool is_signed, json_t **ret_value) {
    uint64_t value = 0;
    TRY(take(in, &value, size));
    int unused = 64 - 8 * (int)size;
    int64_t number = is_signed ? (int64_t)(value << unused) >> unused : (int64_t)value;
    *ret_value = json_integer(number);
    return OK;
}

static Status take_real(Cursor *in, size_t size, json_t **ret_value) {
    float narrow = 0;
    double wide = 0;
    TRY(size == 4 ? take(in, &narrow, size) : take(in, &wide, size));
    *ret_value = json_finite(size == 4 ? (double)narrow : wide);
    return OK;
}

static Status take_string(Cursor *in, json_t **ret_value) {
    const char *text = NULL;
    size_t size = 0;
    TRY(take_text(in, &text, &size));
    *ret_value = json_stringn(text, size);
    return *ret_value ? OK : damaged(in->path, "a text is not valid UTF-8");
}

static Status take_value(Cursor *in, uint32_t type, bool element, json_t **ret_value);

static Status take_array(Cursor *in, json_t **ret_value) {
    CLEANUP(json_decrefp) json_t *list = json_array();
    uint32_t type = 0;
    uint64_t count = 0;
    TRY(take(in, &type, sizeof type));
    TRY(take(in, &count, sizeof count));
    if (count > MOST_ENTRIES - in->entries) return damaged(in->path, "an array is too long");
    in->entries += (size_t)count;
    for (uint64_t i = 0; i < count; i++) {
        json_t *value = NULL;
        TRY(take_value(in, type, true, &value));
        if (json_array_append_new(list, value)) return FAILED("out of memory while reading %s", in->path);
    }
    *ret_value = list;
    list = NULL;
    return OK;
}

static Status take_value(Cursor *in, uint32_t type, bool element, json_t **ret_value) {
    char truth = 0;
    switch (type) {
    case META_U8:
    case META_I8: return take_integer(in, 1, type == META_I8, ret_value);
    case META_U16:
    case META_I16: return take_integer(in, 2, type == META_I16, ret_value);
    case META_U32:
    case META_I32: return take_integer(in, 4, type == META_I32, ret_value);
    case META_U64:
    case META_I64: return take_integer(in, 8, true, ret_value);
    case META_F32: return take_real(in, 4, ret_value);
    case META_F64: return take_real(in, 8, ret_value);
    case META_BOOL:
        TRY(take(in, &truth, 1));
        *ret_value = json_boolean(truth);
        return OK;
    case META_STRING: return take_string(in, ret_value);
    case META_ARRAY:
        if (!element) return take_array(in, ret_value);
    }
    return damaged(in->path, "a value has an unknown type");
}

static Status read_keys(GgufFile *file, Cursor *in, uint64_t keys) {
    file->meta = json_object();
    for (uint64_t i = 0; i < keys; i++) {
        const char *text = NULL;
        size_t size = 0;
        uint32_t type = 0;
        json_t *value = NULL;
        CLEANUP(mem_freep) char *name = NULL;
        TRY(take_text(in, &text, &size));
        TRY(str_format(&name, "%.*s", size < NAME_TEXT ? (int)size : NAME_TEXT, text));
        TRY(take(in, &type, sizeof type));
        TRY(take_value(in, type, false, &value));
        if (json_object_set_new(file->meta, name, value))
            return damaged(file->path, "a key is not valid UTF-8");
    }
    return OK;
}

/* ---- tensors ---- */

static Status check_type(const GgufFile *file, const GgufTensor *tensor, uint32_t type) {
    static const char *const names[] = {
        [3] = "q4_1",     [6] = "q5_0",   [7] = "q5_1",    [9] = "q8_1",   [10] = "q2_K",    [11] = "q3_K",
        [12] = "q4_K",    [13] = "q5_K",  [14] = "q6_K",   [15] = "q8_K",  [16] = "iq2_xxs", [17] = "iq2_xs",
        [18] = "iq3_xxs", [19] = "iq1_s", [20] = "iq4_nl", [21] = "iq3_s", [22] = "iq2_s",   [23] = "iq4_xs"};
    char shown[NAME_TEXT];
    if (type == GGUF_F32 || type == GGUF_F16 || type == GGUF_BF16 || type == GGUF_Q8_0 || type == GGUF_Q4_0)
        return OK;
    const char *name =
        type < sizeof names / sizeof *names && names[type] ? names[type] : "of an unknown kind";
    return FAILED("%s: tensor '%s' is %s; weft reads fp32, fp16, bf16, q8_0 and q4_0; 'llama-quantize "
                  "--allow-requantize' writes the file as one of them",
                  file->path, name_text(shown, tensor->name), name);
}

static Status read_shape(const GgufFile *file, Cursor *in, GgufTensor *tensor) {
    uint32_t ndim = 0;
    uint64_t product = 1;
    TRY(take(in, &ndim, sizeof ndim));
    if (ndim < 1 || ndim > GGUF_DIMS) return damaged(file->path, "a tensor has no shape");
    tensor->ndim = (int)ndim;
    for (int i = (int)ndim - 1; i >= 0; i--) {
        uint64_t dim = 0;
        TRY(take(in, &dim, sizeof dim));
        if (dim == 0 || dim > INT64_MAX / 8 / product)
            return damaged(file->path, "a tensor has no valid shape");
        product *= dim;
        tensor->dim[i] = (int64_t)dim;
    }
    return OK;
}

/* Sets `data` to the offset of the tensor's data, which settle_data resolves. */
static Status read_tensor(GgufFile *file, Cursor *in, uint64_t *ret_offset) {
    const char *text;
    size_t size = 0;
    uint32_t type = 0;
    TRY(mem_grow(&file->tensor, &file->capacity, file->count + 1, sizeof *file->tensor));
    GgufTensor *tensor = &file->tensor[file->count];
    TRY(take_text(in, &text, &size));
    TRY(str_format(&tensor->name, "%.*s", size < HF_NAME ? (int)size : HF_NAME, text));
    file->count++;
    TRY(read_shape(file, in, tensor));
    TRY(take(in, &type, sizeof type));
    TRY(take(in, ret_offset, sizeof *ret_offset));
    TRY(check_type(file, tensor, type));
    tensor->type = (GgufType)type;
    if ((type == GGUF_Q8_0 || type == GGUF_Q4_0) && tensor->dim[tensor->ndim - 1] % GGUF_BLOCK)
        return damaged(file->path, "the rows of a tensor are not whole blocks");
    return OK;
}

static int64_t value_count(const GgufTensor *tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->dim[i];
    return count;
}

static Status place_tensors(GgufFile *file, const Cursor *in, const uint64_t *offset) {
    char shown[NAME_TEXT];
    int64_t alignment = GGUF_ALIGNMENT;
    TRY(json_get_int(file->meta, file->path, "general.alignment", 1, 1 << 20, &alignment));
    size_t begin = (in->at + (size_t)alignment - 1) / (size_t)alignment * (size_t)alignment;
    size_t room = begin < in->size ? in->size - begin : 0;
    for (size_t i = 0; i < file->count; i++) {
        GgufTensor *tensor = &file->tensor[i];
        size_t bytes = gguf_bytes(tensor->type, value_count(tensor));
        if (bytes > room || offset[i] > room - bytes)
            return DAMAGED("%s: the data of tensor '%s' is outside the file; is it complete?", file->path,
                           name_text(shown, tensor->name));
        tensor->data = in->data + begin + offset[i];
    }
    return OK;
}

static Status parse(GgufFile *file, Cursor *in) {
    CLEANUP(mem_freep) uint64_t *offset = NULL;
    char magic[4] = "";
    uint32_t version = 0;
    uint64_t tensors = 0, keys = 0;
    TRY(take(in, magic, sizeof magic));
    if (memcmp(magic, "GGUF", sizeof magic)) return damaged(file->path, "it does not begin with \"GGUF\"");
    TRY(take(in, &version, sizeof version));
    if (version < VERSION_LEAST || version > VERSION_MOST)
        return FAILED("%s: GGUF version %u; weft reads versions 2 and 3, little-endian", file->path, version);
    TRY(take(in, &tensors, sizeof tensors));
    TRY(take(in, &keys, sizeof keys));
    if (tensors > MOST_TENSORS) return damaged(file->path, "it has too many tensors");
    TRY(read_keys(file, in, keys));
    TRY(mem_new((size_t)tensors + 1, sizeof *offset, &offset));
    for (uint64_t i = 0; i < tensors; i++) TRY(read_tensor(file, in, &offset[i]));
    return place_tensors(file, in, offset);
}

Status gguf_file_open(GgufFile *ret_file, const char *path) {
    CLEANUP(gguf_file_done) GgufFile file = {0};
    TRY(str_dup(path, &file.path));
    TRY(file_map_init(&file.map, path));
    Cursor in = {.path = path, .data = file.map.data, .size = file.map.size};
    TRY(parse(&file, &in));
    return MOVE(ret_file, file);
}
