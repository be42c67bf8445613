#include "checkpoint/bnb.h"

#include <string.h>

#include "base/format.h"
#include "base/json.h"
#include "base/memory.h"

enum { LEVELS = 16, NESTED_LEVELS = 256, NAME = 512, LARGEST = 1 << 16 };

static const SafeTensor *find_part(HfFiles *files, const SafeTensor *codes, const char *part) {
    char name[NAME];
    if (snprintf(name, sizeof name, "%s.%s", codes->name, part) >= NAME) return NULL;
    HfEntry *entry = hf_files_find(files, name);
    if (entry) entry->used = true;
    return entry ? entry->tensor : NULL;
}

static int64_t count_of(const SafeTensor *tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->dim[i];
    return count;
}

static int64_t blocks_of(int64_t count, int64_t block) {
    return (count + block - 1) / block;
}

static Status read_shape(const json_t *state, const char *from, BnbMatrix *m) {
    const json_t *shape = json_object_get(state, "shape");
    m->decoded.ndim = (int)json_array_size(shape);
    if (m->decoded.ndim < 1 || m->decoded.ndim > 2)
        return FAILED("%s: 'shape' must have one or two numbers", from);
    m->count = 1;
    for (int i = 0; i < m->decoded.ndim; i++) {
        int64_t dim = json_integer_value(json_array_get(shape, (size_t)i));
        if (dim < 1 || dim > INT32_MAX || m->count > INT64_MAX / 4 / dim)
            return FAILED("%s: 'shape' has the number %lld", from, (long long)dim);
        m->decoded.dim[i] = dim;
        m->count *= dim;
    }
    return OK;
}

static Status read_state(const SafeTensor *state, const char *from, BnbMatrix *m) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    if (state->dtype != DT_U8 || state->bytes > LARGEST) return FAILED("%s: not a description in JSON", from);
    TRY(json_parse((const char *)state->data, state->bytes, from, &json));
    TRY(read_shape(json, from, m));
    m->block = m->nested_block = 64;
    TRY(json_get_int(json, from, "blocksize", 1, LARGEST, &m->block));
    TRY(json_get_int(json, from, "nested_blocksize", 1, LARGEST, &m->nested_block));
    return json_get_double(json, from, "nested_offset", -1e30, 1e30, &m->offset);
}

static bool is_right(const SafeTensor *tensor, DType dtype, int64_t count) {
    return tensor && tensor->dtype == dtype && count_of(tensor) == count;
}

Status bnb_find(HfFiles *files, const HfEntry *entry, BnbMatrix *ret_matrix) {
    BnbMatrix m = {.codes = entry->tensor};
    char from[NAME];
    *ret_matrix = (BnbMatrix){0};
    if (m.codes->dtype != DT_U8 || !(m.absmax = find_part(files, m.codes, "absmax"))) return OK;
    const SafeTensor *state = find_part(files, m.codes, "quant_state.bitsandbytes__nf4");
    if (!state) state = find_part(files, m.codes, "quant_state.bitsandbytes__fp4");
    m.levels = find_part(files, m.codes, "quant_map");
    m.nested_absmax = find_part(files, m.codes, "nested_absmax");
    m.nested_levels = find_part(files, m.codes, "nested_quant_map");
    if (!state) return FAILED("%s: '%s' has no quant_state", entry->path, m.codes->name);
    snprintf(from, sizeof from, "%s: the quant_state of '%s'", entry->path, m.codes->name);
    TRY(read_state(state, from, &m));
    int64_t blocks = blocks_of(m.count, m.block);
    bool nested = m.absmax->dtype == DT_U8;
    bool right = is_right(m.codes, DT_U8, (m.count + 1) / 2) && is_right(m.levels, DT_F32, LEVELS) &&
                 is_right(m.absmax, nested ? DT_U8 : DT_F32, blocks);
    if (nested)
        right = right && is_right(m.nested_levels, DT_F32, NESTED_LEVELS) &&
                is_right(m.nested_absmax, DT_F32, blocks_of(blocks, m.nested_block));
    if (!right)
        return FAILED("%s: the codes and scales of '%s' do not belong to a matrix of %lld values",
                      entry->path, m.codes->name, (long long)m.count);
    m.decoded.name = m.codes->name;
    m.decoded.type = "F32";
    m.decoded.dtype = DT_F32;
    m.decoded.bytes = (size_t)m.count * sizeof(float);
    *ret_matrix = m;
    return OK;
}

/* The scales in fp32. */
static Status read_scales(const BnbMatrix *m, float *scales) {
    int64_t blocks = blocks_of(m->count, m->block);
    if (m->absmax->dtype == DT_F32) return values_read(scales, m->absmax, 0, blocks);
    float levels[NESTED_LEVELS];
    TRY(values_read(levels, m->nested_levels, 0, NESTED_LEVELS));
    for (int64_t b = 0; b < blocks; b++) {
        float scale;
        TRY(values_read(&scale, m->nested_absmax, b / m->nested_block, 1));
        scales[b] = levels[m->absmax->data[b]] * scale + (float)m->offset;
    }
    return OK;
}

Status bnb_decode(const BnbMatrix *m, float **ret_values) {
    CLEANUP(mem_freep) float *values = NULL, *scales = NULL;
    float levels[LEVELS];
    TRY(mem_new((size_t)m->count, sizeof *values, &values));
    TRY(mem_new((size_t)blocks_of(m->count, m->block), sizeof *scales, &scales));
    TRY(values_read(levels, m->levels, 0, LEVELS));
    TRY(read_scales(m, scales));
    for (int64_t i = 0; i < m->count; i++)
        values[i] = levels[m->codes->data[i / 2] >> (i % 2 ? 0 : 4) & 15] * scales[i / m->block];
    return MOVE(ret_values, values);
}
