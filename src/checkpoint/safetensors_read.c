/* Reads safetensors. The header is parsed into a table of tensors, each validated separately (type, shape,
 * offsets, size). Then the table is sorted by offset: a tensor that begins before the previous one ends
 * overlaps it, and one that begins later leaves a gap. A second table, sorted by name, serves safe_find. */
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/safetensors.h"

enum { LENGTH_BYTES = 8, HEADER_LIMIT = 100 * 1000 * 1000 };

struct SafeFile {
    char *path;
    FileMap map; /* empty if the caller owns the memory */
    json_t *header;
    SafeTensor *tensor;
    size_t count;
    const SafeTensor **by_name;
    bool adopted; /* the tensors' names are the file's own */
};

static const struct {
    const char *name;
    size_t size;
    DType dtype;
} types[] = {
    {"F32", 4, DT_F32}, {"BF16", 2, DT_BF16}, {"F16", 2, DT_F16},   {"F64", 8, DT_F64}, {"I32", 4, DT_I32},
    {"I64", 8, DT_I64}, {"U8", 1, DT_U8},     {"I16", 2, DT_COUNT}, {"I8", 1, DT_I8},   {"BOOL", 1, DT_COUNT},
};

enum { TYPE_COUNT = sizeof types / sizeof types[0] };

const char *safe_shape_text(char text[SHAPE_TEXT], int ndim, const int64_t *dim) {
    size_t used = (size_t)snprintf(text, SHAPE_TEXT, "(");
    for (int i = 0; i < ndim && used < SHAPE_TEXT; i++)
        used += (size_t)snprintf(text + used, SHAPE_TEXT - used, "%s%lld", i ? ", " : "", (long long)dim[i]);
    if (used < SHAPE_TEXT) snprintf(text + used, SHAPE_TEXT - used, ")");
    return text;
}

static Status parse_type(SafeTensor *tensor, const json_t *entry, const char *from, size_t *ret_size) {
    char shown[NAME_TEXT], type[NAME_TEXT];
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    if (!name)
        return DAMAGED("%s: tensor '%s' has no dtype; expected one such as \"F32\"", from,
                       name_text(shown, tensor->name));
    for (size_t i = 0; i < TYPE_COUNT; i++) {
        if (strcmp(types[i].name, name)) continue;
        tensor->type = types[i].name;
        tensor->dtype = types[i].dtype;
        *ret_size = types[i].size;
        return OK;
    }
    return DAMAGED(
        "%s: tensor '%s' has dtype %s, which weft does not read (it reads F64, F32, F16, BF16, I64, "
        "I32, I16, I8, U8 and BOOL)",
        from, name_text(shown, tensor->name), name_text(type, name));
}

static Status parse_shape(SafeTensor *tensor, const json_t *entry, const char *from, size_t *bytes) {
    char shown[NAME_TEXT];
    name_text(shown, tensor->name);
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) return DAMAGED("%s: tensor '%s' has no shape; expected a list", from, shown);
    size_t ndim = json_array_size(shape);
    if (ndim > SAFE_DIMS)
        return DAMAGED("%s: tensor '%s' has %zu dims, but at most %d are supported", from, shown, ndim,
                       SAFE_DIMS);
    tensor->ndim = (int)ndim;
    for (size_t i = 0; i < ndim; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return DAMAGED("%s: tensor '%s': dim %zu of its shape must be a non-negative integer", from,
                           shown, i);
        tensor->dim[i] = json_integer_value(dim);
    }
    /* The product of the nonzero dims must not overflow, so that later arithmetic cannot, even if a dim is
     * 0. */
    size_t largest = *bytes, product = *bytes;
    for (size_t i = 0; i < ndim; i++) {
        size_t dim = (size_t)tensor->dim[i];
        if (!mul_size(largest, dim ? dim : 1, &largest) || largest > INT64_MAX) {
            char text[SHAPE_TEXT];
            return DAMAGED("%s: tensor '%s': shape %s is too large", from, shown,
                           safe_shape_text(text, tensor->ndim, tensor->dim));
        }
        product *= dim;
    }
    *bytes = product;
    return OK;
}

static Status parse_tensor(SafeTensor *ret_tensor, const char *name, const json_t *entry, const char *from,
                           const unsigned char *data, size_t size) {
    char shown[NAME_TEXT], text[SHAPE_TEXT];
    name_text(shown, name);
    SafeTensor tensor = {.name = name};
    if (!json_is_object(entry))
        return DAMAGED("%s: tensor '%s' must be an object with dtype, shape and data_offsets", from, shown);
    size_t bytes = 0;
    TRY(parse_type(&tensor, entry, from, &bytes));
    TRY(parse_shape(&tensor, entry, from, &bytes));

    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return DAMAGED("%s: tensor '%s': data_offsets must be two integers, [begin, end]", from, shown);
    int64_t first = json_integer_value(begin), past = json_integer_value(end);
    if (first < 0 || past < first)
        return DAMAGED("%s: tensor '%s': data_offsets [%lld, %lld] are not a valid range", from, shown,
                       (long long)first, (long long)past);
    if ((uint64_t)past > size)
        return DAMAGED("%s: tensor '%s': data_offsets [%lld, %lld] exceed the file's %zu bytes of data", from,
                       shown, (long long)first, (long long)past, size);
    if ((uint64_t)(past - first) != bytes)
        return DAMAGED(
            "%s: tensor '%s' of %s %s needs %zu bytes, but its data_offsets [%lld, %lld] span %lld", from,
            shown, tensor.type, safe_shape_text(text, tensor.ndim, tensor.dim), bytes, (long long)first,
            (long long)past, (long long)(past - first));
    tensor.data = data + first;
    tensor.bytes = bytes;
    *ret_tensor = tensor;
    return OK;
}

static Status check_metadata(const json_t *metadata, const char *from) {
    if (!json_is_object(metadata))
        return DAMAGED("%s: '__metadata__' must be an object that maps strings to strings", from);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value) {
        char shown[NAME_TEXT];
        if (!json_is_string(value))
            return DAMAGED("%s: '__metadata__' entry '%s' must be a string", from, name_text(shown, key));
    }
    return OK;
}

static int by_offset(const void *a, const void *b) {
    const SafeTensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int by_name(const void *a, const void *b) {
    const SafeTensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Checks that every byte of the data belongs to exactly one tensor. */
static Status check_coverage(const SafeFile *file, const unsigned char *data, size_t size) {
    char shown[NAME_TEXT], other[NAME_TEXT];
    const unsigned char *end = data;
    for (size_t i = 0; i < file->count; i++) {
        const SafeTensor *tensor = &file->tensor[i];
        if (tensor->data < end)
            return DAMAGED("%s: tensors '%s' and '%s' overlap", file->path,
                           name_text(other, file->tensor[i - 1].name), name_text(shown, tensor->name));
        if (tensor->data > end)
            return DAMAGED("%s: gap of %td byte%s before tensor '%s'", file->path, tensor->data - end,
                           PLURAL(tensor->data - end), name_text(shown, tensor->name));
        end = tensor->data + tensor->bytes;
    }
    if ((size_t)(end - data) != size)
        return DAMAGED("%s: %zu unused byte%s at the end", file->path, size - (size_t)(end - data),
                       PLURAL(size - (size_t)(end - data)));
    return OK;
}

static Status index_names(SafeFile *file) {
    TRY(mem_new(file->count + 1, sizeof(SafeTensor *), &file->by_name));
    for (size_t i = 0; i < file->count; i++) file->by_name[i] = &file->tensor[i];
    qsort(file->by_name, file->count, sizeof(SafeTensor *), by_name);
    return OK;
}

static Status parse_header(SafeFile *file, const unsigned char *data, size_t size) {
    TRY(mem_new(json_object_size(file->header), sizeof *file->tensor, &file->tensor));
    const char *key;
    json_t *value;
    json_object_foreach(file->header, key, value) {
        if (!strcmp(key, "__metadata__")) {
            TRY(check_metadata(value, file->path));
            continue;
        }
        TRY(parse_tensor(&file->tensor[file->count], key, value, file->path, data, size));
        file->count++;
    }
    qsort(file->tensor, file->count, sizeof *file->tensor, by_offset);
    TRY(check_coverage(file, data, size));
    return index_names(file);
}

static Status parse_file(SafeFile *file, const unsigned char *data, size_t size) {
    if (size < LENGTH_BYTES)
        return DAMAGED("%s is only %zu bytes long, too short for a safetensors file", file->path, size);
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | data[i];
    if (length > HEADER_LIMIT)
        return DAMAGED(
            "%s: the header length is %llu bytes, but at most %d are supported; is this a safetensors file?",
            file->path, (unsigned long long)length, HEADER_LIMIT);
    if (length > size - LENGTH_BYTES)
        return DAMAGED("%s: the header length is %llu bytes, but only %zu follow; the file is truncated",
                       file->path, (unsigned long long)length, size - LENGTH_BYTES);
    TRY(status_wrap(json_parse((const char *)data + LENGTH_BYTES, length, "header", &file->header), "%s",
                    file->path));
    if (!json_is_object(file->header)) return DAMAGED("%s: the header must be a JSON object", file->path);
    return parse_header(file, data + LENGTH_BYTES + length, size - LENGTH_BYTES - length);
}

static Status file_new(SafeFile **ret_file, const char *path) {
    CLEANUP(safe_freep) SafeFile *file = NULL;
    TRY(mem_new(1, sizeof *file, &file));
    TRY(str_dup(path, &file->path));
    return MOVE(ret_file, file);
}

Status safe_open(SafeFile **ret_file, const char *path) {
    CLEANUP(safe_freep) SafeFile *file = NULL;
    TRY(file_new(&file, path));
    TRY(file_map_init(&file->map, path));
    TRY(parse_file(file, file->map.data, file->map.size));
    return MOVE(ret_file, file);
}

Status safe_parse(SafeFile **ret_file, const void *data, size_t size, const char *from) {
    CLEANUP(safe_freep) SafeFile *file = NULL;
    TRY(file_new(&file, from));
    TRY(parse_file(file, data, size));
    return MOVE(ret_file, file);
}

Status safe_adopt(SafeFile **ret_file, const char *path, FileMap *map, SafeTensor **tensor, size_t count) {
    CLEANUP(safe_freep) SafeFile *file = NULL;
    TRY(file_new(&file, path));
    file->map = *map;
    file->tensor = *tensor;
    file->count = count;
    file->adopted = true;
    *map = (FileMap){0};
    *tensor = NULL;
    TRY(index_names(file));
    return MOVE(ret_file, file);
}

void safe_free(SafeFile *file) {
    if (!file) return;
    free(file->path);
    file_map_done(&file->map);
    json_decref(file->header);
    for (size_t i = 0; file->adopted && i < file->count; i++) free((char *)(uintptr_t)file->tensor[i].name);
    free(file->tensor);
    free(file->by_name);
    free(file);
}

const char *safe_path(const SafeFile *file) {
    return file->path;
}

size_t safe_count(const SafeFile *file) {
    return file->count;
}

const SafeTensor *safe_at(const SafeFile *file, size_t index) {
    return &file->tensor[index];
}

const SafeTensor *safe_find(const SafeFile *file, const char *name) {
    SafeTensor wanted = {.name = name};
    const SafeTensor *key = &wanted;
    const SafeTensor **found = bsearch(&key, file->by_name, file->count, sizeof(SafeTensor *), by_name);
    return found ? *found : NULL;
}

const json_t *safe_metadata(const SafeFile *file) {
    return json_object_get(file->header, "__metadata__");
}
