/* Presents the tensors of a GGUF file as those of a checkpoint. Values are converted as they are read, so the
 * model is never in memory twice. */
#include <string.h>

#include "base/memory.h"
#include "checkpoint/gguf_read.h"

/* What `layout` of a SafeTensor has: */
enum { LAYOUT_TYPE, LAYOUT_COLS, LAYOUT_HEAD_ROWS };

/* ---- values ---- */

static float half_at(const unsigned char *data, bool bf16) {
    uint16_t half;
    memcpy(&half, data, sizeof half);
    return bf16 ? bf16_to_f32(half) : f16_to_f32(half);
}

static float value_at(GgufType type, const unsigned char *data, int64_t i) {
    enum { Q8_BYTES = 2 + GGUF_BLOCK, Q4_BYTES = 2 + GGUF_BLOCK / 2, HALF = GGUF_BLOCK / 2 };
    float value;
    int at = (int)(i % GGUF_BLOCK);
    switch (type) {
    case GGUF_F16:
    case GGUF_BF16: return half_at(data + 2 * i, type == GGUF_BF16);
    case GGUF_Q8_0:
        data += i / GGUF_BLOCK * Q8_BYTES;
        return half_at(data, false) * (float)(int8_t)data[2 + at];
    case GGUF_Q4_0:
        data += i / GGUF_BLOCK * Q4_BYTES;
        return half_at(data, false) * (float)((data[2 + at % HALF] >> (at < HALF ? 0 : 4) & 15) - 8);
    case GGUF_F32: break;
    }
    memcpy(&value, data + 4 * i, sizeof value);
    return value;
}

/* The row of the file that has a row of weft's. The file has rows of a head's first and second half in turns.
 */
static int64_t file_row(int64_t row, int64_t head_rows) {
    int64_t half = head_rows / 2, at = row % head_rows;
    return row - at + (at < half ? 2 * at : 2 * (at - half) + 1);
}

static Status read_values(const SafeTensor *tensor, int64_t first, int64_t count, float *ret_values) {
    GgufType type = (GgufType)tensor->layout[LAYOUT_TYPE];
    int64_t cols = tensor->layout[LAYOUT_COLS], head_rows = tensor->layout[LAYOUT_HEAD_ROWS];
    for (int64_t i = first; i < first + count; i++) {
        int64_t from = head_rows ? file_row(i / cols, head_rows) * cols + i % cols : i;
        *ret_values++ = value_at(type, tensor->data, from);
    }
    return OK;
}

/* ---- tensors ---- */

static bool is_frequencies(const char *name) {
    return !strncmp(name, "rope_freqs", 10) || !strncmp(name, "rope_factors_", 13);
}

/* Whether the rows of a tensor are heads in pairs. */
static Status find_pairs(const Family *family, const char *name, bool *ret_pairs) {
    *ret_pairs = false;
    for (const GgufRule *rule = family->gguf_names; family->gguf_pairs && rule->ours; rule++) {
        char ours[HF_NAME];
        bool applies = false;
        TRY(hf_rename(rule->theirs, rule->ours, name, 0, ours, &applies));
        if (applies && rule->heads) *ret_pairs = true;
    }
    return OK;
}

/* As in safetensors. */
static const char *type_name(GgufType type) {
    switch (type) {
    case GGUF_F32: return "F32";
    case GGUF_F16: return "F16";
    case GGUF_BF16: return "BF16";
    case GGUF_Q8_0: return "Q8_0";
    case GGUF_Q4_0: return "Q4_0";
    }
    return "unknown";
}

static Status add_tensor(SafeTensor *ret_tensor, const GgufTensor *from, int64_t head_rows, int64_t matrix) {
    bool experts = matrix >= 0;
    SafeTensor tensor = {.type = type_name(from->type), .data = from->data, .read = read_values};
    int64_t count = 1, cols = from->ndim > 1 ? from->dim[from->ndim - 1] : 1;
    for (int i = experts; i < from->ndim; i++) {
        tensor.dim[tensor.ndim++] = from->dim[i];
        count *= from->dim[i];
    }
    tensor.dtype = from->type == GGUF_F16 ? DT_F16 : from->type == GGUF_BF16 ? DT_BF16 : DT_F32;
    tensor.bytes = (size_t)count * dtype_size(tensor.dtype);
    if (experts) tensor.data += (size_t)matrix * gguf_bytes(from->type, count);
    tensor.layout[LAYOUT_TYPE] = from->type;
    tensor.layout[LAYOUT_COLS] = cols;
    tensor.layout[LAYOUT_HEAD_ROWS] = head_rows;
    char *name;
    TRY(experts ? str_format(&name, "%s.%lld", from->name, (long long)matrix) : str_dup(from->name, &name));
    tensor.name = name;
    *ret_tensor = tensor;
    return OK;
}

typedef struct Tensors {
    SafeTensor *tensor;
    size_t count, capacity;
} Tensors;

static void tensors_done(Tensors *all) {
    for (size_t i = 0; i < all->count; i++) free((char *)(uintptr_t)all->tensor[i].name);
    free(all->tensor);
}

static Status add_all(Tensors *all, const GgufTensor *from, int64_t head_rows) {
    int64_t matrices = from->ndim > 2 ? from->dim[0] : 1;
    for (int64_t i = 0; i < matrices; i++) {
        TRY(mem_grow(&all->tensor, &all->capacity, all->count + 1, sizeof *all->tensor));
        TRY(add_tensor(&all->tensor[all->count], from, head_rows, from->ndim > 2 ? i : -1));
        all->count++;
    }
    return OK;
}

Status gguf_open(SafeFile **ret_file, const char *path) {
    CLEANUP(gguf_file_done) GgufFile file = {0};
    CLEANUP(tensors_done) Tensors all = {0};
    ModelConfig config;
    TRY(gguf_file_open(&file, path));
    TRY(gguf_config(&file, &config));
    for (size_t i = 0; i < file.count; i++) {
        const GgufTensor *from = &file.tensor[i];
        bool pairs = false;
        if (is_frequencies(from->name)) continue; /* in the configuration */
        TRY(find_pairs(config.family, from->name, &pairs));
        int64_t head_rows = pairs ? config_head_width(&config) : 0;
        if (pairs && (head_rows % 2 || from->dim[0] % head_rows))
            return DAMAGED("%s: the rows of tensor '%s' are not whole heads", path, from->name);
        TRY(add_all(&all, from, head_rows));
    }
    Status status = safe_adopt(ret_file, path, &file.map, &all.tensor, all.count);
    if (!status) all.count = 0;
    return status;
}

/* ---- parameters ---- */

/* The tensors of a rule, as writing has them (gguf.c), with experts one by one. */
static Status apply(const GgufRule *rule, const ParamDesc *desc, HfTensorList *list) {
    bool many = rule->part <= PART_EACH, applies = false;
    int skip = rule->part == PART_WHOLE ? 0 : 1, step = rule->part < PART_EACH ? 2 : 1;
    char name[HF_NAME];
    TRY(hf_rename(rule->ours, rule->theirs, desc->name, 0, name, &applies));
    if (!applies) return OK;
    const char *end = strrchr(desc->name, '.');
    bool vector = desc->ndim == skip + 1 || (end && !strcmp(end, ".bias"));
    int64_t rest = 1, cols = desc->dim[desc->ndim - 1], count = many ? desc->dim[0] / step : 1;
    for (int i = skip; i < desc->ndim; i++) rest *= desc->dim[i];
    for (int64_t i = 0; i < count; i++) {
        HfTensor tensor = {.part = many                       ? (rule->part == PART_ODD) + step * (int)i
                                   : rule->part == PART_WHOLE ? -1
                                                              : rule->part};
        tensor.ndim = vector ? 1 : 2;
        tensor.dim[0] = vector ? rest : rest / cols;
        tensor.dim[1] = cols;
        int used = many ? snprintf(tensor.name, HF_NAME, "%s.%lld", name, (long long)i)
                        : snprintf(tensor.name, HF_NAME, "%s", name);
        if (used >= HF_NAME)
            return FAILED("internal: the name of parameter '%s' in files is too long", desc->name);
        TRY(mem_grow(&list->tensor, &list->capacity, list->count + 1, sizeof *list->tensor));
        list->tensor[list->count++] = tensor;
    }
    return OK;
}

/* A parameter that no rule names is not in GGUF files: its tensor is missing. */
static Status add_missing(const ParamDesc *desc, HfTensorList *list) {
    TRY(mem_grow(&list->tensor, &list->capacity, 1, sizeof *list->tensor));
    list->tensor[list->count++] = (HfTensor){.part = -1, .ndim = 1, .dim = {param_count(desc)}};
    return OK;
}

Status gguf_tensors(const Family *family, const ParamDesc *desc, HfTensorList *ret_list) {
    CLEANUP(hf_tensors_done) HfTensorList list = {0};
    for (const GgufRule *rule = family->gguf_names; rule && rule->ours; rule++) TRY(apply(rule, desc, &list));
    if (!list.count) TRY(add_missing(desc, &list));
    return MOVE(ret_list, list);
}
