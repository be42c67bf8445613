/* int8 and int4 weights in a checkpoint's file int8.safetensors. Unquantized tensors have the names that
 * transformers uses. For each quantized parameter, under the model's own name:
 *
 *   NAME.int8     I8 (outputs, inputs)
 *   NAME.scale    F32 (outputs)
 *   NAME.factor   F32 (inputs); absent: all 1
 *
 * int4 parameters have, instead of NAME.int8:
 *
 *   NAME.int4     U8 (outputs, inputs / 2 rounded up): two weights per byte, low nibble first
 *   NAME.step     I8 (outputs, groups of 32 inputs): integer scale of each group
 *
 * and with static activation quantization (see config.json):
 *
 *   NAME.largest  F32 (1): largest magnitude of inputs times their factors; 0: dynamic scales for this matrix
 *
 * Experts of a mixture are one parameter. Its outputs are those of all experts in order; each expert has its
 * own factors and largest input: F32 (experts, inputs) and F32 (experts).
 *
 * A weight is int8 * scale * factor, or int4 * step * scale * factor. Inputs are multiplied by their
 * factor before they are quantized (kernels.h). The file name differs from the one transformers looks for,
 * so transformers never misreads such a checkpoint. */
#include <math.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/hf_files.h"
#include "checkpoint/hf_quantized.h"

void quantized_list_done(QuantizedList *list) {
    for (size_t i = 0; i < list->count; i++) {
        free(list->param[i].w);
        free(list->param[i].step);
        free(list->param[i].scale);
        free(list->param[i].factor);
        free(list->param[i].amax);
    }
    free(list->param);
    *list = (QuantizedList){0};
}

/* Bytes, and int4 groups, per output row. */
static int64_t row_bytes(int bits, int64_t cols) {
    return bits == 4 ? (cols + 1) / 2 : cols;
}
static int64_t row_groups(int64_t cols) {
    return (cols + INT4_GROUP - 1) / INT4_GROUP;
}

Status quantized_list_add(QuantizedList *list, const char *name, int bits, int64_t matrices, int64_t rows,
                          int64_t cols, QuantizedParam **ret_param) {
    TRY(mem_grow(&list->param, &list->capacity, list->count + 1, sizeof *list->param));
    QuantizedParam *param = &list->param[list->count];
    *param = (QuantizedParam){.bits = bits, .matrices = matrices, .rows = rows, .cols = cols};
    snprintf(param->name, sizeof param->name, "%s", name);
    list->count++;
    size_t count;
    if (!mul_size((size_t)rows, (size_t)cols, &count)) return FAILED("parameter %s is too large", name);
    TRY(mem_new((size_t)(rows * row_bytes(bits, cols)), 1, &param->w));
    if (bits == 4) TRY(mem_new((size_t)(rows * row_groups(cols)), 1, &param->step));
    TRY(mem_new((size_t)rows, sizeof *param->scale, &param->scale));
    TRY(mem_new((size_t)matrices, sizeof *param->amax, &param->amax));
    *ret_param = param;
    return OK;
}

/* ---- writing ---- */

static Status declare(SafeWriter *writer, const char *name, const char *part, DType dtype, int ndim,
                      const int64_t *dim) {
    char full[INT8_NAME];
    snprintf(full, sizeof full, "%s.%s", name, part);
    return safe_writer_declare(writer, full, dtype, ndim, dim);
}

Status quantized_declare(QuantizedList *list, SafeWriter *writer) {
    for (size_t i = 0; i < list->count; i++) {
        QuantizedParam *p = &list->param[i];
        p->offset = safe_writer_declared(writer);
        TRY(declare(writer, p->name, "scale", DT_F32, 1, (const int64_t[]){p->rows}));
        const int64_t factor[] = {p->matrices, p->cols};
        int one = p->matrices == 1;
        if (p->factor) TRY(declare(writer, p->name, "factor", DT_F32, 2 - one, factor + one));
        if (p->is_static) TRY(declare(writer, p->name, "largest", DT_F32, 1, &p->matrices));
        if (p->bits == 4) {
            TRY(declare(writer, p->name, "step", DT_I8, 2, (const int64_t[]){p->rows, row_groups(p->cols)}));
            TRY(declare(writer, p->name, "int4", DT_U8, 2,
                        (const int64_t[]){p->rows, row_bytes(4, p->cols)}));
        } else {
            TRY(declare(writer, p->name, "int8", DT_I8, 2, (const int64_t[]){p->rows, p->cols}));
        }
    }
    return OK;
}

/* Writes bytes at offset *at and advances it; does nothing if data is NULL. */
static Status write_part(SafeWriter *writer, int64_t *at, const void *data, int64_t bytes) {
    if (!data) return OK;
    TRY(safe_writer_write(writer, *at, data, (size_t)bytes));
    *at += bytes;
    return OK;
}

Status quantized_write(const QuantizedList *list, SafeWriter *writer) {
    for (size_t i = 0; i < list->count; i++) {
        const QuantizedParam *p = &list->param[i];
        int64_t at = p->offset;
        TRY(write_part(writer, &at, p->scale, p->rows * 4));
        TRY(write_part(writer, &at, p->factor, p->matrices * p->cols * 4));
        TRY(write_part(writer, &at, p->is_static ? p->amax : NULL, p->matrices * 4));
        TRY(write_part(writer, &at, p->step, p->rows * row_groups(p->cols)));
        TRY(write_part(writer, &at, p->w, p->rows * row_bytes(p->bits, p->cols)));
    }
    return OK;
}

/* ---- reading ---- */

static Status find_part(HfFiles *files, const char *name, const char *part, DType dtype, int64_t rows,
                        int64_t cols, const SafeTensor **ret_tensor) {
    char full[INT8_NAME];
    snprintf(full, sizeof full, "%s.%s", name, part);
    HfEntry *entry = hf_files_find(files, full);
    *ret_tensor = NULL;
    if (!entry) return OK;
    entry->used = true;
    const SafeTensor *tensor = entry->tensor;
    bool shape = cols ? tensor->ndim == 2 && tensor->dim[0] == rows && tensor->dim[1] == cols
                      : tensor->ndim == 1 && tensor->dim[0] == rows;
    char found[SHAPE_TEXT], expected[SHAPE_TEXT];
    if (tensor->dtype != dtype || !shape)
        return FAILED("%s: tensor '%s' is %s %s, but the model expects %s %s", entry->path, full,
                      tensor->type, safe_shape_text(found, tensor->ndim, tensor->dim),
                      dtype == DT_I8   ? "I8"
                      : dtype == DT_U8 ? "U8"
                                       : "F32",
                      safe_shape_text(expected, cols ? 2 : 1, (const int64_t[]){rows, cols}));
    *ret_tensor = tensor;
    return OK;
}

static void matrix_shape(const ParamDesc *desc, int64_t *ret_rows, int64_t *ret_cols) {
    *ret_cols = desc->dim[desc->ndim - 1];
    *ret_rows = param_count(desc) / *ret_cols;
}

Status quantized_find(HfFiles *files, const ModelConfig *config, const ParamDesc *desc,
                      QuantizedTensors *ret_tensors) {
    int64_t rows, cols, matrices = packed_matrices(config, desc);
    QuantizedTensors found = {0};
    matrix_shape(desc, &rows, &cols);
    if (desc->packing == PACK_INT4) {
        TRY(find_part(files, desc->name, "int4", DT_U8, rows, row_bytes(4, cols), &found.w));
        TRY(find_part(files, desc->name, "step", DT_I8, rows, row_groups(cols), &found.step));
    } else {
        TRY(find_part(files, desc->name, "int8", DT_I8, rows, cols, &found.w));
    }
    TRY(find_part(files, desc->name, "scale", DT_F32, rows, 0, &found.scale));
    TRY(matrices > 1 ? find_part(files, desc->name, "factor", DT_F32, matrices, cols, &found.factor)
                     : find_part(files, desc->name, "factor", DT_F32, cols, 0, &found.factor));
    TRY(find_part(files, desc->name, "largest", DT_F32, matrices, 0, &found.largest));
    if (found.largest && !config->static_scales)
        return FAILED(
            "%s: tensor '%s.largest' requires static activation quantization, but 'quantization.method' "
            "in config.json is dynamic",
            files->dir, desc->name);
    found.complete = found.w && found.scale && (found.step || desc->packing != PACK_INT4) &&
                     (found.largest || !config->static_scales);
    *ret_tensors = found;
    return OK;
}

/* An aligned copy of the values; fails if one is not finite. The caller frees it. */
static Status copy_floats(const char *dir, const SafeTensor *tensor, float **ret_values) {
    size_t count = tensor->bytes / sizeof(float);
    CLEANUP(mem_freep) float *values = NULL;
    TRY(mem_new(count, sizeof *values, &values));
    memcpy(values, tensor->data, tensor->bytes);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return FAILED("%s: tensor '%s' contains a value that is not finite", dir, tensor->name);
    return MOVE(ret_values, values);
}

static Status load_one(const char *dir, Model *model, const Exec *exec, const ParamDesc *desc,
                       HfFiles *files) {
    int64_t rows, cols;
    QuantizedTensors found;
    matrix_shape(desc, &rows, &cols);
    TRY(quantized_find(files, &model->config, desc, &found));
    if (!found.complete) return FAILED("%s: no tensor for the model's parameter %s", dir, desc->name);
    CLEANUP(mem_freep) float *scale = NULL, *factor = NULL, *largest = NULL;
    TRY(copy_floats(dir, found.scale, &scale));
    if (found.largest) TRY(copy_floats(dir, found.largest, &largest));
    if (found.factor) TRY(copy_floats(dir, found.factor, &factor));
    void *w = (void *)(uintptr_t)found.w->data;
    int64_t factor_count = packed_matrices(&model->config, desc) * cols;
    Tensor scales = tensor_1d(scale, DT_F32, rows), factors = tensor_1d(factor, DT_F32, factor_count);
    Status status =
        desc->packing == PACK_INT4
            ? model_set_int4(model, exec, desc->name, tensor_2d(w, DT_U8, rows, row_bytes(4, cols)),
                             tensor_2d((void *)(uintptr_t)found.step->data, DT_I8, rows, row_groups(cols)),
                             scales, factors, largest)
            : model_set_int8(model, exec, desc->name, tensor_2d(w, DT_I8, rows, cols), scales, factors,
                             largest);
    return status ? status_wrap(status, "%s: %s", dir, desc->name) : OK;
}

Status hf_quantized_load(const char *dir, Model *model, const Exec *exec) {
    if (!config_quantized(&model->config)) return OK;
    CLEANUP(hf_files_freep) HfFiles *files = NULL;
    TRY(hf_files_open(&files, dir));
    for (ModelParam param = {0}; model_param_next(model, &param);)
        if (param.desc->packing) TRY(load_one(dir, model, exec, param.desc, files));
    return OK;
}

Status hf_quantized_check(const char *dir, const ModelConfig *config, const Device *device, DType dtype) {
    if (!config_quantized(config)) return OK;
    if (device_is_host(device) && dtype != DT_F32)
        return FAILED("%s: quantized models run in fp32 on a CPU; use {precision} fp32", dir);
    return OK;
}
