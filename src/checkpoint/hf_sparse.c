/* Writing and reading of sparse.safetensors; the format is described in hf_sparse.h. */
#include "checkpoint/hf_sparse.h"

#include <string.h>

#include "checkpoint/safetensors.h"

enum { SPARSE_NAME = PARAM_NAME + 16 };

bool sparse_param(const ModelParam *param) {
    return block_is_layer(param->block) && param->desc->decay && param->desc->ndim >= 2;
}

static void matrix_shape(const ParamDesc *desc, int64_t *ret_rows, int64_t *ret_cols) {
    *ret_cols = desc->dim[desc->ndim - 1];
    *ret_rows = param_count(desc) / *ret_cols;
}

/* ---- writing ---- */

static int64_t count_values(const float *w, int64_t count) {
    int64_t values = 0;
    for (int64_t i = 0; i < count; i++) values += w[i] != 0;
    return values;
}

static Status declare_one(const ParamDesc *desc, const float *w, DType dtype, SafeWriter *writer) {
    char name[SPARSE_NAME];
    int64_t rows, cols;
    matrix_shape(desc, &rows, &cols);
    snprintf(name, sizeof name, "%s.values", desc->name);
    TRY(safe_writer_declare(writer, name, dtype, 1, (const int64_t[]){count_values(w, rows * cols)}));
    snprintf(name, sizeof name, "%s.mask", desc->name);
    return safe_writer_declare(writer, name, DT_U8, 2, (const int64_t[]){rows, (cols + 7) / 8});
}

static Status write_one(const ParamDesc *desc, const float *w, DType dtype, int64_t *at, SafeWriter *writer) {
    int64_t rows, cols, found = 0;
    matrix_shape(desc, &rows, &cols);
    int64_t bytes = (cols + 7) / 8, count = count_values(w, rows * cols);
    CLEANUP(mem_freep) float *values = NULL;
    CLEANUP(mem_freep) uint8_t *mask = NULL;
    TRY(mem_new((size_t)count + 1, sizeof *values, &values));
    TRY(mem_new((size_t)(rows * bytes), 1, &mask));
    for (int64_t n = 0; n < rows; n++)
        for (int64_t k = 0; k < cols; k++) {
            float value = w[n * cols + k];
            if (value == 0) continue;
            mask[n * bytes + k / 8] = (uint8_t)(mask[n * bytes + k / 8] | 1u << k % 8);
            values[found++] = value;
        }
    TRY(values_write(writer, *at, dtype, values, count));
    *at += count * (int64_t)dtype_size(dtype);
    TRY(safe_writer_write(writer, *at, mask, (size_t)(rows * bytes)));
    *at += rows * bytes;
    return OK;
}

Status sparse_declare(const Store *params, DType dtype, SafeWriter *writer) {
    StorePart part;
    for (ModelParam param = {0}; model_param_next(params->model, &param);)
        if (sparse_param(&param) && store_part(params, param.ref, &part))
            TRY(declare_one(param.desc, part.values.data, dtype, writer));
    return OK;
}

Status sparse_write(const Store *params, DType dtype, int64_t at, SafeWriter *writer) {
    StorePart part;
    for (ModelParam param = {0}; model_param_next(params->model, &param);)
        if (sparse_param(&param) && store_part(params, param.ref, &part))
            TRY(write_one(param.desc, part.values.data, dtype, &at, writer));
    return OK;
}

/* ---- reading ---- */

static HfEntry *find_part(HfFiles *files, const ParamDesc *desc, const char *part) {
    char name[SPARSE_NAME];
    snprintf(name, sizeof name, "%s.%s", desc->name, part);
    HfEntry *entry = hf_files_find(files, name);
    if (entry) entry->used = true;
    return entry;
}

static const uint8_t *mask_row(const SparseTensors *tensors, int64_t row) {
    return (const uint8_t *)tensors->mask->data + row * tensors->mask->dim[1];
}

/* The number of bits set in a row. */
static int64_t count_row(const SparseTensors *tensors, int64_t row) {
    const uint8_t *bits = mask_row(tensors, row);
    int64_t count = 0;
    for (int64_t i = 0; i < tensors->mask->dim[1]; i++) count += __builtin_popcount(bits[i]);
    return count;
}

Status sparse_find(HfFiles *files, const ParamDesc *desc, SparseTensors *ret_tensors) {
    HfEntry *mask = find_part(files, desc, "mask"), *values = find_part(files, desc, "values");
    int64_t rows, cols, count = 0;
    *ret_tensors = (SparseTensors){0};
    if (!mask || !values) return OK;
    matrix_shape(desc, &rows, &cols);
    const SafeTensor *m = mask->tensor, *v = values->tensor;
    char found[SHAPE_TEXT];
    if (m->dtype != DT_U8 || m->ndim != 2 || m->dim[0] != rows || m->dim[1] != (cols + 7) / 8)
        return FAILED("%s: tensor '%s' is %s %s, but the model expects U8 (%lld, %lld)", mask->path, m->name,
                      m->type, safe_shape_text(found, m->ndim, m->dim), (long long)rows,
                      (long long)((cols + 7) / 8));
    SparseTensors tensors = {m, v};
    for (int64_t n = 0; n < rows; n++) {
        count += count_row(&tensors, n);
        if (cols % 8 && mask_row(&tensors, n)[cols / 8] >> cols % 8)
            return FAILED("%s: tensor '%s' has bits set beyond its %lld inputs", mask->path, m->name,
                          (long long)cols);
    }
    if (v->dtype > DT_F64 || v->ndim != 1 || v->dim[0] != count)
        return FAILED("%s: tensor '%s' is %s %s; expected the %lld values that the mask selects",
                      values->path, v->name, v->type, safe_shape_text(found, v->ndim, v->dim),
                      (long long)count);
    *ret_tensors = tensors;
    return OK;
}

static Status read_values(const SparseTensors *tensors, float **ret_values) {
    size_t count = (size_t)tensors->values->dim[0];
    CLEANUP(mem_freep) float *values = NULL;
    TRY(mem_new(count + 1, sizeof *values, &values));
    TRY(values_read(values, tensors->values, 0, (int64_t)count));
    return MOVE(ret_values, values);
}

Status sparse_expand(const ParamDesc *desc, const SparseTensors *tensors, float **ret_values) {
    int64_t rows, cols, at = 0;
    matrix_shape(desc, &rows, &cols);
    CLEANUP(mem_freep) float *values = NULL, *all = NULL;
    TRY(read_values(tensors, &values));
    TRY(mem_new((size_t)(rows * cols), sizeof *all, &all));
    for (int64_t n = 0; n < rows; n++)
        for (int64_t k = 0; k < cols; k++)
            if (mask_row(tensors, n)[k / 8] >> k % 8 & 1) all[n * cols + k] = values[at++];
    return MOVE(ret_values, all);
}

static Status load_one(const char *dir, Model *model, const Exec *exec, const ParamDesc *desc,
                       HfFiles *files) {
    SparseTensors found;
    int64_t rows, cols;
    matrix_shape(desc, &rows, &cols);
    TRY(sparse_find(files, desc, &found));
    if (!found.mask) return FAILED("%s: no tensor for the model's parameter %s", dir, desc->name);
    CLEANUP(mem_freep) float *values = NULL;
    CLEANUP(mem_freep) int64_t *first = NULL;
    TRY(read_values(&found, &values));
    TRY(mem_new((size_t)rows + 1, sizeof *first, &first));
    for (int64_t n = 0; n < rows; n++) first[n + 1] = first[n] + count_row(&found, n);
    Tensor mask = tensor_2d((void *)(uintptr_t)found.mask->data, DT_U8, rows, (cols + 7) / 8);
    return model_set_sparse(model, exec, desc->name, mask, first, tensor_1d(values, DT_F32, first[rows]));
}

void hf_sparse_choose(ModelConfig *config, const Device *device, DType dtype) {
    if (config->sparse && !config->packed_layers && device_is_host(device) && dtype == DT_F32)
        config->packed_layers = PACK_SPARSE;
}

Status hf_sparse_load(const char *dir, Model *model, const Exec *exec) {
    if (model->config.packed_layers != PACK_SPARSE) return OK;
    CLEANUP(hf_files_freep) HfFiles *files = NULL;
    TRY(hf_files_open(&files, dir));
    for (ModelParam param = {0}; model_param_next(model, &param);)
        if (param.desc->packing == PACK_SPARSE) TRY(load_one(dir, model, exec, param.desc, files));
    return OK;
}
