/* Each matrix becomes int8 with one scale per output, chosen so that its largest weight maps to 127 (int4
 * has a scale per output and a step per group of inputs, see int4_quantize). Activations are quantized to
 * int8 at run time, one row at a time, so that the largest maps to 127. An outlier channel that is always
 * much larger than the others would leave the others with few of the 127 levels. Balancing (as in
 * SmoothQuant) scales such inputs down and their weights up by the same factor, which leaves the GEMM
 * unchanged: with a the largest magnitude of an input and w that of its weights, the input is divided by
 * sqrt(a / w), so that quantization error is spread evenly over both. Input magnitudes come from calibration
 * (calibrate.h): running the model on data or, without data, letting it generate text. BERT cannot generate,
 * so without data its inputs are not balanced.
 *
 * With static activation scales, the largest balanced input seen in calibration replaces each row's maximum;
 * larger inputs are clipped.
 */
#include "compress/quantize.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/fs.h"
#include "base/progress.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checksums.h"
#include "kernels/int4_round.h"

typedef struct Quantizer {
    ModelDir source;
    const char *dir;  /* its path */
    Model *from, *to; /* the model, and the same model with quantized parameters */
    Device *device;
    Stream *stream;
    Store *values, *rest; /* all parameters; those that are not quantized */
    bool balance;
    Calibration calibration;
    QuantizedList list;
    double noise, power; /* sums of squares of the quantization error and of the weights */
} Quantizer;

static void quantizer_done(Quantizer *q) {
    quantized_list_done(&q->list);
    calibration_done(&q->calibration);
    store_free(q->values);
    store_free(q->rest);
    stream_free(q->stream);
    model_free(q->from);
    model_free(q->to);
    device_free(q->device);
    model_dir_done(&q->source);
}

static bool is_static(const QuantizeConfig *config) {
    return config->activations && !strcmp(config->activations, "static");
}

static Status find_model(Quantizer *q, const QuantizeConfig *config) {
    ModelConfig found;
    TRY(model_dir_open(&q->source, config->model));
    q->dir = q->source.path;
    TRY(hf_config_read(q->dir, &found));
    if (config_quantized(&found))
        return FAILED("%s is already quantized to int%d; use the checkpoint it was quantized from", q->dir,
                      packing_bits(found.packed_layers));
    if (found.hidden > INT8_MAX_INPUTS || found.inner > INT8_MAX_INPUTS ||
        found.expert_inner > INT8_MAX_INPUTS || found.shared_inner > INT8_MAX_INPUTS)
        return FAILED("%s: layers with more than %d inputs cannot be quantized", q->dir, INT8_MAX_INPUTS);
    CLEANUP(load_report_done) LoadReport report = {0};
    TRY(model_new(&q->from, &found));
    TRY(hf_weights_check(q->dir, q->from, &report));
    TRY(load_report_check(&report, q->dir, &found, false));
    found.packed_layers = config->bits && !strcmp(config->bits, "4") ? PACK_INT4 : PACK_INT8;
    if (config->embedding && config->int4_embedding)
        return USAGE("{int8-embedding} and {int4-embedding} cannot be combined; choose one");
    found.packed_embedding = config->int4_embedding ? PACK_INT4 : config->embedding ? PACK_INT8 : PACK_NONE;
    found.static_scales = is_static(config);
    return model_new(&q->to, &found);
}

static Status load_values(Quantizer *q, const QuantizeConfig *config) {
    TRY(device_new_cpu(&q->device, (int)config->threads));
    TRY(stream_new(&q->stream, q->device));
    TRY(store_new(&q->values, q->from, q->device, MEM_PARAMS));
    TRY(checksums_verify(q->dir, VERIFY_WEIGHTS, NULL, NULL));
    TRY(hf_weights_load(q->dir, q->values, q->stream, NULL));
    return store_new(&q->rest, q->to, q->device, MEM_PARAMS);
}

/* Copies the parameters that are not quantized. */
static Status copy_rest(Quantizer *q) {
    for (int i = 0; i < q->to->count; i++)
        for (size_t j = 0; j < q->to->block[i].params.count; j++) {
            const ParamDesc *desc = &q->to->block[i].params.desc[j];
            if (desc->packing || desc->tied) continue;
            Tensor to = q->rest->view[i][j], from;
            TRY(store_source(q->values, desc->name, &from));
            TRY(stream_copy(q->stream, to.data, from.data, tensor_bytes(to), COPY_ON_DEVICE));
        }
    return OK;
}

/* The factor to multiply each input by. Inputs or weights near zero are raised to 1e-3 of the average. */
static void balance(float *factor, const float *inputs, const float *w, int64_t rows, int64_t cols) {
    double typical_input = 0, typical_weight = 0;
    for (int64_t k = 0; k < cols; k++) {
        factor[k] = 0;
        for (int64_t n = 0; n < rows; n++)
            if (fabsf(w[n * cols + k]) > factor[k]) factor[k] = fabsf(w[n * cols + k]);
        typical_input += inputs[k] / (double)cols;
        typical_weight += factor[k] / (double)cols;
    }
    for (int64_t k = 0; k < cols; k++) {
        double input = fmax(inputs[k], 1e-3 * typical_input), weight = fmax(factor[k], 1e-3 * typical_weight);
        double ratio = sqrt(weight / input);
        factor[k] = ratio > 0 && isfinite(ratio) ? (float)ratio : 1;
    }
}

static int64_t group_size(int64_t cols, int64_t first) {
    return cols - first < INT4_GROUP ? cols - first : INT4_GROUP;
}

/* Quantizes the weights w (cols) of one output into the form that int4_pack accepts: bytes ((cols+1)/2, two
 * weights per byte, the even column in the low half), step (one integer per group of INT4_GROUP columns) and
 * a scale; int4_round.h chooses the steps. A weight is int4 * step * scale. The weights must be finite. */
static void int4_quantize(const float *w, int64_t cols, uint8_t *bytes, int8_t *step, float *ret_scale) {
    float largest = 0;
    for (int64_t k = 0; k < cols; k++)
        if (fabsf(w[k]) > largest) largest = fabsf(w[k]);
    float scale = int4_scale(largest);
    memset(bytes, 0, ((size_t)cols + 1) / 2);
    *ret_scale = scale;
    for (int64_t first = 0; first < cols; first += INT4_GROUP) {
        float group[INT4_GROUP] = {0};
        int64_t count = group_size(cols, first);
        memcpy(group, w + first, (size_t)count * sizeof *group);
        int chosen = int4_step(group, scale);
        step[first / INT4_GROUP] = (int8_t)chosen;
        for (int64_t k = first; k < first + count; k++) {
            int nibble = (int)int4_clamp(rintf(w[k] * int4_inverse_step(chosen, scale))) & 15;
            bytes[k / 2] = (uint8_t)(bytes[k / 2] | nibble << (k % 2 ? 4 : 0));
        }
    }
}

/* The dequantized weight of column `col`. */
static float int4_dequantize(const uint8_t *bytes, const int8_t *step, float scale, int64_t col) {
    int nibble = bytes[col / 2] >> (col % 2 ? 4 : 0) & 15;
    return (float)(((nibble ^ 8) - 8) * step[col / INT4_GROUP]) * scale;
}

/* The factors of output n; NULL: all 1. */
static const float *factors_of(const QuantizedParam *param, int64_t n) {
    return param->factor ? param->factor + n / (param->rows / param->matrices) * param->cols : NULL;
}

/* Quantizes one output's weights to int4; `scaled` is workspace for a row. */
static void quantize_row_int4(QuantizedParam *param, int64_t n, const float *w, float *scaled, double *noise,
                              double *power) {
    int64_t cols = param->cols, groups = (cols + INT4_GROUP - 1) / INT4_GROUP;
    uint8_t *bytes = (uint8_t *)param->w + n * ((cols + 1) / 2);
    int8_t *step = param->step + n * groups;
    const float *factor = factors_of(param, n);
    for (int64_t k = 0; k < cols; k++) scaled[k] = factor ? w[k] / factor[k] : w[k];
    int4_quantize(scaled, cols, bytes, step, &param->scale[n]);
    for (int64_t k = 0; k < cols; k++) {
        double error = (double)int4_dequantize(bytes, step, param->scale[n], k) - scaled[k];
        error *= factor ? factor[k] : 1;
        *noise += error * error;
        *power += (double)w[k] * w[k];
    }
}

static Status quantize_param_int4(Quantizer *q, QuantizedParam *param, const float *w) {
    int64_t rows = param->rows, cols = param->cols;
    int threads = q->device->threads;
    CLEANUP(mem_freep) float *scaled = NULL;
    TRY(mem_new((size_t)threads * (size_t)cols, sizeof *scaled, &scaled));
    for (int64_t i = 0; i < rows * cols; i++)
        if (!isfinite(w[i]))
            return FAILED("%s: %s contains a weight that is not finite", q->dir, param->name);
    double noise = 0, power = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : noise, power)
    for (int64_t n = 0; n < rows; n++)
        quantize_row_int4(param, n, w + n * cols, scaled + omp_get_thread_num() * cols, &noise, &power);
    q->noise += noise;
    q->power += power;
    return OK;
}

/* Quantizes one output's weights to int8. */
static Status quantize_row(Quantizer *q, QuantizedParam *param, int64_t n, const float *w) {
    float largest = 0;
    const float *factors = factors_of(param, n);
    for (int64_t k = 0; k < param->cols; k++) {
        float size = fabsf(factors ? w[k] / factors[k] : w[k]);
        if (!isfinite(size))
            return FAILED("%s: %s contains a weight that is not finite", q->dir, param->name);
        if (size > largest) largest = size;
    }
    float scale = largest / 127.0f;
    param->scale[n] = scale;
    for (int64_t k = 0; k < param->cols; k++) {
        float factor = factors ? factors[k] : 1;
        float level = scale > 0 ? rintf(w[k] / factor / scale) : 0;
        int8_t quantized = (int8_t)fmaxf(-127, fminf(127, level));
        param->w[n * param->cols + k] = quantized;
        double error = (double)quantized * scale * factor - w[k];
        q->noise += error * error;
        q->power += (double)w[k] * w[k];
    }
    return OK;
}

static Status quantize_param(Quantizer *q, const ParamDesc *desc, const float *w) {
    int64_t cols = desc->dim[desc->ndim - 1], rows = param_count(desc) / cols;
    int64_t matrices = packed_matrices(&q->to->config, desc), each = rows / matrices;
    QuantizedParam *param = NULL;
    TRY(quantized_list_add(&q->list, desc->name, packing_bits(desc->packing), matrices, rows, cols, &param));
    const InputStats *inputs = calibration_find(&q->calibration, desc->name);
    bool balanced = inputs && inputs->layer && q->balance;
    param->is_static = q->to->config.static_scales;
    if (balanced) TRY(mem_new((size_t)(matrices * cols), sizeof *param->factor, &param->factor));
    for (int64_t m = 0; inputs && m < matrices; m++) {
        const float *largest = calibration_largest(inputs, m);
        if (balanced) balance(param->factor + m * cols, largest, w + m * each * cols, each, cols);
        for (int64_t k = 0; param->is_static && k < cols; k++)
            param->amax[m] = fmaxf(param->amax[m], largest[k] * (balanced ? param->factor[m * cols + k] : 1));
    }
    if (desc->packing == PACK_INT4) return quantize_param_int4(q, param, w);
    for (int64_t n = 0; n < rows; n++) TRY(quantize_row(q, param, n, w + n * cols));
    return OK;
}

static Status quantize_all(Quantizer *q) {
    for (int i = 0; i < q->to->count; i++)
        for (size_t j = 0; j < q->to->block[i].params.count; j++) {
            const ParamDesc *desc = &q->to->block[i].params.desc[j];
            if (!desc->packing || desc->tied) continue;
            Tensor values;
            TRY(store_source(q->values, desc->name, &values));
            TRY(quantize_param(q, desc, tensor_f32(values)));
        }
    return OK;
}

static Status describe(const Quantizer *q, const QuantizeConfig *config, json_t **ret_result) {
    int64_t total = model_params(q->from), int8_count = 0, int4_count = 0;
    for (size_t i = 0; i < q->list.count; i++) {
        const QuantizedParam *param = &q->list.param[i];
        *(param->bits == 4 ? &int4_count : &int8_count) += param->rows * param->cols;
    }
    double noise = q->power > 0 ? sqrt(q->noise / q->power) : 0;
    json_t *result = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:s, s:f}", "model", q->dir, "out", config->out, "level",
        q->to->config.packed_layers == PACK_INT4 ? "int4" : "int8", "params_total", (json_int_t)total,
        "params_int8", (json_int_t)int8_count, "params_int4", (json_int_t)int4_count, "embedding",
        q->to->config.packed_embedding != PACK_NONE, "balanced", q->balance, "activations",
        is_static(config) ? "static" : "dynamic", "weights_noise", noise);
    if (!result) return FAILED("out of memory while writing the result");
    *ret_result = result;
    return OK;
}

static Status run_calibration(Quantizer *q, const QuantizeConfig *config) {
    const ModelConfig *model = &q->from->config;
    bool generates = config_generates(model), fixed = is_static(config);
    if (config->data.files_count && config->no_balance && !fixed)
        return USAGE("{calibrate} has no effect with {no-balance} and dynamic activations; drop one of them");
    if (fixed && !generates && !config->data.files_count)
        return USAGE("{activations} static needs calibration data, since %s cannot generate text; pass "
                     "{calibrate} FILE",
                     q->dir);
    q->balance = !config->no_balance && (generates || config->data.files_count);
    if (!q->balance && !fixed) return OK;
    if (config->data.files_count)
        return calibrate_on_data(q->dir, q->to, &config->data, (int)config->threads, &q->calibration);
    return calibrate_on_samples(q->dir, q->to, (int)config->threads, config->seed, &q->calibration);
}

Status quantize_run(const QuantizeConfig *config, json_t **ret_result) {
    CLEANUP(quantizer_done) Quantizer q = {0};
    TRY(hf_save_check(config->out));
    TRY(find_model(&q, config));
    TRY(run_calibration(&q, config));
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(progress_new_phase(&progress, config->data.log, "quantizing", 0, false));
    TRY(load_values(&q, config));
    TRY(copy_rest(&q));
    TRY(quantize_all(&q));
    SaveOptions options = {.dtype = DT_F32, .assets_dir = q.dir, .quantized = &q.list};
    TRY(hf_save(config->out, q.rest, q.stream, &options));
    return describe(&q, config, ret_result);
}
