/* Opens a checkpoint's weight files. If there is an index, it and the files must agree: every tensor it
 * lists is in the file it names, and every tensor of those files is listed for exactly that file. File
 * names in an index must not be paths. */
#include "checkpoint/hf_files.h"

#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/adapter.h"
#include "checkpoint/gguf_read.h"
#include "checkpoint/torch_read.h"

static Status open_file(HfFiles *files, const char *name, const SafeFile **ret_file) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, files->dir, name));
    TRY(mem_grow(&files->file, &files->capacity, files->count + 1, sizeof *files->file));
    TRY(path_ends_with(name, ".bin") ? torch_open(&files->file[files->count], path)
                                     : safe_open(&files->file[files->count], path));
    *ret_file = files->file[files->count++];
    return OK;
}

static Status add_tensors(HfFiles *files) {
    for (size_t i = 0; i < files->count; i++) {
        size_t count = safe_count(files->file[i]);
        TRY(mem_grow(&files->entry, &files->entries_capacity, files->entries + count, sizeof *files->entry));
        for (size_t j = 0; j < count; j++)
            files->entry[files->entries++] =
                (HfEntry){.tensor = safe_at(files->file[i], j), .path = safe_path(files->file[i])};
    }
    return OK;
}

static Status check_file_name(const char *index, const char *name) {
    char shown[NAME_TEXT];
    const char *ending = path_ends_with(index, HF_TORCH_INDEX) ? ".bin" : ".safetensors";
    if (strchr(name, '/') || name[0] == '.' || !path_ends_with(name, ending))
        return FAILED("%s: lists file '%s'; expected a %s file in the same directory", index,
                      name_text(shown, name), ending);
    return OK;
}

/* The weight file of that name, opened on first use. */
static Status find_weight_file(HfFiles *files, const char *index, const char *name,
                               const SafeFile **ret_file) {
    for (size_t i = files->count; i-- > 0;) {
        if (strcmp(path_base(safe_path(files->file[i])), name)) continue;
        *ret_file = files->file[i];
        return OK;
    }
    TRY(check_file_name(index, name));
    return status_wrap(open_file(files, name, ret_file), "%s: lists a file that cannot be used", index);
}

static Status open_weight_files(HfFiles *files, const char *index, const json_t *map) {
    char shown[NAME_TEXT];
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, name, value) {
        if (!json_is_string(value))
            return FAILED("%s: 'weight_map' has no file name for '%s'", index, name_text(shown, name));
        const SafeFile *file = NULL;
        TRY(find_weight_file(files, index, json_string_value(value), &file));
        if (!safe_find(file, name))
            return FAILED("%s: lists tensor '%s' in %s, which does not contain it", index,
                          name_text(shown, name), path_base(safe_path(file)));
    }
    return OK;
}

/* Checks that every tensor of the files is listed in the index, for the file that contains it. */
static Status check_mapped(const HfFiles *files, const char *index, const json_t *map) {
    char shown[NAME_TEXT];
    for (size_t i = 0; i < files->entries; i++) {
        const HfEntry *entry = &files->entry[i];
        const char *mapped = json_string_value(json_object_get(map, entry->tensor->name));
        if (!mapped || strcmp(mapped, path_base(entry->path)))
            return FAILED("%s: contains tensor '%s', which %s does not list for this file", entry->path,
                          name_text(shown, entry->tensor->name), path_base(index));
    }
    return OK;
}

static Status open_index(HfFiles *files, const char *name) {
    CLEANUP(mem_freep) char *index = NULL;
    TRY(path_join(&index, files->dir, name));
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(json_read_file(index, &json));
    const json_t *map = json_object_get(json, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        return FAILED("%s: expected a 'weight_map' that maps tensor names to file names", index);
    TRY(open_weight_files(files, index, map));
    TRY(add_tensors(files));
    return check_mapped(files, index, map);
}

static Status exists_in(const char *dir, const char *name, bool *ret_exists) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, name));
    *ret_exists = path_exists(path);
    return OK;
}

static Status open_gguf(HfFiles *files) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, files->dir, GGUF_WEIGHTS));
    TRY(mem_grow(&files->file, &files->capacity, 1, sizeof *files->file));
    TRY(gguf_open(&files->file[0], path));
    files->count = 1;
    files->gguf = true;
    return add_tensors(files);
}

static Status open_named(HfFiles *files, const char *name) {
    const SafeFile *file;
    TRY(open_file(files, name, &file));
    return add_tensors(files);
}

static Status open_any(HfFiles *files) {
    bool single = false, index = false, gguf = false, int8 = false, sparse = false, pickle = false,
         pickle_index = false;
    TRY(exists_in(files->dir, HF_WEIGHTS, &single));
    TRY(exists_in(files->dir, HF_INT8, &int8));
    TRY(exists_in(files->dir, HF_SPARSE, &sparse));
    TRY(exists_in(files->dir, HF_INDEX, &index));
    TRY(exists_in(files->dir, GGUF_WEIGHTS, &gguf));
    TRY(exists_in(files->dir, HF_TORCH, &pickle));
    TRY(exists_in(files->dir, HF_TORCH_INDEX, &pickle_index));
    if (single || ((int8 || sparse) && !index))
        return open_named(files, single ? HF_WEIGHTS : int8 ? HF_INT8 : HF_SPARSE);
    if (index) return open_index(files, HF_INDEX);
    if (gguf) return open_gguf(files);
    if (pickle) return open_named(files, HF_TORCH);
    if (pickle_index) return open_index(files, HF_TORCH_INDEX);
    return FAILED("%s: contains no weights; expected %s, %s or %s", files->dir, HF_WEIGHTS, HF_INDEX,
                  HF_TORCH);
}

static int by_name(const void *a, const void *b) {
    const HfEntry *x = a, *y = b;
    return strcmp(x->tensor->name, y->tensor->name);
}

Status hf_files_open_single(HfFiles **ret_files, const char *dir, const char *name) {
    CLEANUP(hf_files_freep) HfFiles *files = NULL;
    TRY(mem_new(1, sizeof *files, &files));
    TRY(str_dup(dir, &files->dir));
    TRY(name ? open_named(files, name) : open_any(files));
    if (files->entries) qsort(files->entry, files->entries, sizeof *files->entry, by_name);
    return MOVE(ret_files, files);
}

Status hf_files_open(HfFiles **ret_files, const char *dir) {
    CLEANUP(mem_freep) char *base = NULL;
    TRY(adapter_base(dir, &base));
    return hf_files_open_single(ret_files, base ? base : dir, NULL);
}

void hf_files_free(HfFiles *files) {
    if (!files) return;
    for (size_t i = 0; i < files->count; i++) safe_free(files->file[i]);
    free(files->file);
    free(files->entry);
    free(files->dir);
    free(files);
}

DType hf_files_dtype(const HfFiles *files) {
    size_t bytes[DT_COUNT + 1] = {0};
    for (size_t i = 0; i < files->entries; i++)
        bytes[files->entry[i].tensor->dtype] += files->entry[i].tensor->bytes;
    DType dominant = DT_F32;
    for (DType dtype = DT_F32; dtype <= DT_F64; dtype++)
        if (bytes[dtype] > bytes[dominant]) dominant = dtype;
    return dominant;
}

static Status fits(const SafeTensor *tensor, DType dtype, bool *ret_fits) {
    enum { CHUNK = 1 << 10 };
    float values[CHUNK], back[CHUNK];
    uint16_t halves[CHUNK];
    int64_t count = (int64_t)(tensor->bytes / sizeof *values);
    for (int64_t at = 0; at < count && *ret_fits; at += CHUNK) {
        int64_t n = count - at < CHUNK ? count - at : CHUNK;
        TRY(values_read(values, tensor, at, n));
        TRY(dtype_convert(halves, dtype, values, DT_F32, (size_t)n));
        TRY(dtype_convert(back, DT_F32, halves, dtype, (size_t)n));
        *ret_fits = !memcmp(values, back, (size_t)n * sizeof *values);
    }
    return OK;
}

Status hf_files_exact_dtype(const HfFiles *files, DType *ret_dtype) {
    DType dtype = hf_files_dtype(files);
    bool half = dtype == DT_BF16 || dtype == DT_F16, exact = true;
    for (size_t i = 0; half && exact && i < files->entries; i++)
        if (files->entry[i].tensor->dtype == DT_F32) TRY(fits(files->entry[i].tensor, dtype, &exact));
    *ret_dtype = exact ? dtype : DT_F32;
    return OK;
}

HfEntry *hf_files_find(HfFiles *files, const char *name) {
    SafeTensor wanted = {.name = name};
    HfEntry key = {.tensor = &wanted};
    if (!files->entries) return NULL;
    return bsearch(&key, files->entry, files->entries, sizeof *files->entry, by_name);
}

HfEntry *hf_files_find_prefixed(HfFiles *files, const char *outer, const char *prefix, const char *name) {
    enum { LONGEST = 512 };
    char full[LONGEST];
    HfEntry *entry = NULL;
    for (int with = 1; with >= 0 && !entry; with--)
        if (snprintf(full, sizeof full, "%s%s%s", outer, with ? prefix : "", name) < LONGEST)
            entry = hf_files_find(files, full);
    return entry;
}
