/* Each matrix becomes int8 with a scale for each output: its largest weight is 127. Inputs are rounded when
 * they come, a row at a time, also so that the largest is 127; an input that is always far larger than the
 * others would leave these with few of the 127 steps. So such inputs are made smaller and their weights
 * larger by the same factor, which changes no product: with a the largest magnitude of an input and w that of
 * its weights, the input is divided by sqrt(a / w), and then both have the same share of the rounding. How
 * large inputs are is found by running the model over data or, without any, by letting it write
 * (calibrate.h). BERT does not write: without data its inputs are taken as they are.
 *
 * With static activations the largest input that was seen, after it was made smaller, takes the place of each
 * row's own; the few that are larger later are cut to it.
 */
#include "compress/quantize.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/fs.h"
#include "checkpoint/checkpoint.h"
#include "compress/int4.h"

/* Everything one quantization holds. */
typedef struct Work {
    char *dir;
    Model *from, *to; /* the model, and the same with int8 parameters */
    Device *device;
    Stream *stream;
    Store *values, *rest; /* all values, and those that stay as they are */
    bool balance;
    Calibration calibration;
    Int8List list;
    double noise, power; /* of rounding the weights: sums of squares */
} Work;

static void work_done(Work *work) {
    int8_list_done(&work->list);
    calibration_done(&work->calibration);
    store_free(work->values);
    store_free(work->rest);
    stream_free(work->stream);
    model_free(work->from);
    model_free(work->to);
    device_free(work->device);
    free(work->dir);
}

static bool is_static(const QuantizeConfig *config) {
    return config->activations && !strcmp(config->activations, "static");
}

static Status find_model(Work *work, const QuantizeConfig *config) {
    ModelConfig found;
    TRY(ckpt_model_dir(config->model, &work->dir));
    TRY(hf_config_read(work->dir, &found));
    if (found.int8)
        return FAILED("%s: is quantized to int%d already: expected the model it was made from", work->dir,
                      found.int4 ? 4 : 8);
    if (found.hidden > INT8_DEEPEST || found.inner > INT8_DEEPEST)
        return FAILED("%s: has layers of more than %d inputs, the most that int8 takes", work->dir,
                      INT8_DEEPEST);
    CLEANUP(load_report_done) LoadReport report = {0};
    TRY(model_new(&work->from, &found));
    TRY(hf_weights_check(work->dir, work->from, &report));
    TRY(load_report_check(&report, work->dir, &found, false));
    found.int8 = true;
    found.int4 = config->bits && !strcmp(config->bits, "4");
    if (config->embedding && config->int4_embedding)
        return USAGE(
            "--int8-embedding and --int4-embedding both say what the embedding becomes; give one of them");
    found.int4_embedding = config->int4_embedding;
    found.int8_embedding = config->embedding || config->int4_embedding;
    found.int8_held = is_static(config);
    return model_new(&work->to, &found);
}

static Status load_values(Work *work, const QuantizeConfig *config) {
    TRY(device_new_cpu(&work->device, (int)config->threads));
    TRY(stream_new(&work->stream, work->device));
    TRY(store_new(&work->values, work->from, work->device, MEM_PARAMS));
    TRY(hf_weights_load(work->dir, work->values, work->stream, NULL));
    return store_new(&work->rest, work->to, work->device, MEM_PARAMS);
}

/* What stays as it is. */
static Status copy_rest(Work *work) {
    for (int i = 0; i < work->to->count; i++)
        for (size_t j = 0; j < work->to->block[i].params.count; j++) {
            const ParamDesc *desc = &work->to->block[i].params.desc[j];
            if (desc->int8 || desc->tied) continue;
            Tensor to = work->rest->view[i][j], from = work->values->view[i][j];
            TRY(stream_copy(work->stream, to.data, from.data, tensor_bytes(to), COPY_ON_DEVICE));
        }
    return OK;
}

/* What inputs are to be multiplied by. Those that never showed count as small. */
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
        double made = sqrt(weight / input);
        factor[k] = made > 0 && isfinite(made) ? (float)made : 1;
    }
}

/* One output's weights to 4 bits; `room` holds a row. */
static void round_output4(Int8Param *param, int64_t n, const float *w, float *room, double *noise,
                          double *power) {
    int64_t cols = param->cols, groups = (cols + INT4_GROUP - 1) / INT4_GROUP;
    uint8_t *bytes = (uint8_t *)param->w + n * ((cols + 1) / 2);
    int8_t *step = param->step + n * groups;
    for (int64_t k = 0; k < cols; k++) room[k] = param->factor ? w[k] / param->factor[k] : w[k];
    int4_round(room, cols, bytes, step, &param->scale[n]);
    for (int64_t k = 0; k < cols; k++) {
        double off = (double)int4_value(bytes, step, param->scale[n], k) - room[k];
        off *= param->factor ? param->factor[k] : 1;
        *noise += off * off;
        *power += (double)w[k] * w[k];
    }
}

static Status round_param4(Work *work, Int8Param *param, const float *w) {
    int64_t rows = param->rows, cols = param->cols;
    int threads = work->device->threads;
    CLEANUP(mem_freep) float *room = NULL;
    TRY(mem_new((size_t)threads * (size_t)cols, sizeof *room, &room));
    for (int64_t i = 0; i < rows * cols; i++)
        if (!isfinite(w[i]))
            return FAILED("%s: %s holds a weight that is not finite", work->dir, param->name);
    double noise = 0, power = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : noise, power)
    for (int64_t n = 0; n < rows; n++)
        round_output4(param, n, w + n * cols, room + omp_get_thread_num() * cols, &noise, &power);
    work->noise += noise;
    work->power += power;
    return OK;
}

/* One output's weights. */
static Status round_output(Work *work, Int8Param *param, int64_t n, const float *w) {
    float largest = 0;
    for (int64_t k = 0; k < param->cols; k++) {
        float size = fabsf(param->factor ? w[k] / param->factor[k] : w[k]);
        if (!isfinite(size))
            return FAILED("%s: %s holds a weight that is not finite", work->dir, param->name);
        if (size > largest) largest = size;
    }
    float scale = largest / 127.0f;
    param->scale[n] = scale;
    for (int64_t k = 0; k < param->cols; k++) {
        float factor = param->factor ? param->factor[k] : 1;
        float steps = scale > 0 ? rintf(w[k] / factor / scale) : 0;
        int8_t rounded = (int8_t)fmaxf(-127, fminf(127, steps));
        param->w[n * param->cols + k] = rounded;
        double off = (double)rounded * scale * factor - w[k];
        work->noise += off * off;
        work->power += (double)w[k] * w[k];
    }
    return OK;
}

static Status round_param(Work *work, const ParamDesc *desc, const float *w) {
    int64_t cols = desc->dim[desc->ndim - 1], rows = param_count(desc) / cols;
    Int8Param *param = NULL;
    TRY(int8_list_add(&work->list, desc->name, desc->int4 ? 4 : 8, rows, cols, &param));
    const SeenInput *inputs = calibration_find(&work->calibration, desc->name);
    if (inputs && inputs->layer && work->balance) {
        TRY(mem_new((size_t)cols, sizeof *param->factor, &param->factor));
        balance(param->factor, inputs->largest, w, rows, cols);
    }
    param->held = work->to->config.int8_held;
    for (int64_t k = 0; param->held && inputs && k < cols; k++)
        param->largest = fmaxf(param->largest, inputs->largest[k] * (param->factor ? param->factor[k] : 1));
    if (desc->int4) return round_param4(work, param, w);
    for (int64_t n = 0; n < rows; n++) TRY(round_output(work, param, n, w + n * cols));
    return OK;
}

static Status round_all(Work *work) {
    for (int i = 0; i < work->to->count; i++)
        for (size_t j = 0; j < work->to->block[i].params.count; j++) {
            const ParamDesc *desc = &work->to->block[i].params.desc[j];
            if (desc->int8 && !desc->tied) TRY(round_param(work, desc, tensor_f32(work->values->view[i][j])));
        }
    return OK;
}

static Status describe(const Work *work, const QuantizeConfig *config, json_t **ret_result) {
    int64_t total = model_params(work->from), eight = 0, four = 0;
    for (size_t i = 0; i < work->list.count; i++) {
        const Int8Param *param = &work->list.param[i];
        *(param->bits == 4 ? &four : &eight) += param->rows * param->cols;
    }
    double noise = work->power > 0 ? sqrt(work->noise / work->power) : 0;
    json_t *result =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:s, s:f}", "model", work->dir, "out", config->out,
                  "params_total", (json_int_t)total, "params_int8", (json_int_t)eight, "params_int4",
                  (json_int_t)four, "embedding", work->to->config.int8_embedding, "balanced", work->balance,
                  "activations", is_static(config) ? "static" : "dynamic", "weights_noise", noise);
    if (!result) return FAILED("out of memory while writing the result");
    *ret_result = result;
    return OK;
}

static Status see_inputs(Work *work, const QuantizeConfig *config) {
    const ModelConfig *model = &work->from->config;
    bool writes = model->family == FAMILY_GPT2 && config_has(model, OUTPUT_LM), held = is_static(config);
    if (config->data.files_count && config->no_balance && !held)
        return USAGE("--calibrate: --no-balance leaves out what it is for; give one of them");
    if (held && !writes && !config->data.files_count)
        return USAGE("--activations static: %s writes no text to find its inputs' sizes from; give some with "
                     "--calibrate FILE",
                     work->dir);
    work->balance = !config->no_balance && (writes || config->data.files_count);
    if (!work->balance && !held) return OK;
    if (config->data.files_count)
        return calibrate_on(work->dir, work->to, &config->data, (int)config->threads, &work->calibration);
    return calibrate(work->dir, work->to, (int)config->threads, config->seed, &work->calibration);
}

Status quantize_run(const QuantizeConfig *config, json_t **ret_result) {
    CLEANUP(work_done) Work work = {0};
    TRY(hf_save_check(config->out));
    TRY(find_model(&work, config));
    TRY(see_inputs(&work, config));
    TRY(load_values(&work, config));
    TRY(copy_rest(&work));
    TRY(round_all(&work));
    SaveOptions options = {.dtype = DT_F32, .assets_dir = work.dir, .int8 = &work.list};
    TRY(hf_save(config->out, work.rest, work.stream, &options));
    return describe(&work, config, ret_result);
}
