/* An observer on the linear layers records the largest magnitude of each input while the model runs on data
 * or, without data, generates a few short samples, each from a random token. Random samples are good enough:
 * which inputs are outliers depends far more on the model than on the text. */
#include "compress/calibrate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "infer/sampler.h"
#include "infer/session.h"
#include "train/job.h"

enum { SAMPLES = 8, SAMPLE_TOKENS = 64, DATA_SEQUENCES = 16 };

void calibration_done(Calibration *calibration) {
    for (size_t i = 0; i < calibration->count; i++) free(calibration->input[i].largest);
    free(calibration->input);
    *calibration = (Calibration){0};
}

const InputStats *calibration_find(const Calibration *calibration, const char *name) {
    for (size_t i = 0; i < calibration->count; i++)
        if (!strcmp(calibration->input[i].name, name)) return &calibration->input[i];
    return NULL;
}

const float *calibration_largest(const InputStats *stats, int64_t matrix) {
    return stats->largest + (stats->inputs > 1 ? matrix : 0) * stats->cols;
}

typedef struct InputRecorder {
    Observer observer; /* must be first: the recorder is cast from it */
    Calibration *calibration;
} InputRecorder;

static Status record_input(Observer *observer, Stream *stream, Tensor x, Tensor w) {
    (void)stream;
    const Calibration *calibration = ((InputRecorder *)(void *)observer)->calibration;
    const InputStats *input = NULL;
    const char *at = w.data;
    for (size_t i = 0; i < calibration->count && !input; i++) {
        const InputStats *stats = &calibration->input[i];
        if (at >= stats->weights && at < stats->weights + stats->bytes) input = stats;
    }
    if (!input) return OK;
    int64_t rows = tensor_rows(x), cols = input->cols;
    size_t matrix = (size_t)(at - input->weights) / (input->bytes / (size_t)input->inputs);
    float *largest = input->largest + (int64_t)matrix * cols;
    for (int64_t row = 0; row < rows; row++) {
        const float *from = tensor_f32(x) + row * cols;
        for (int64_t c = 0; c < cols; c++)
            if (fabsf(from[c]) > largest[c]) largest[c] = fabsf(from[c]);
    }
    return OK;
}

/* All experts read the layer's rows, but the down matrix of each reads its own activations. */
static int64_t different_inputs(const ModelConfig *config, const ParamDesc *desc) {
    return strstr(desc->name, ".down.") ? packed_matrices(config, desc) : 1;
}

/* Lists the matrices to be quantized. They are matched by name, since the running model may have other heads.
 */
static Status list_inputs(const Store *params, const Model *to, Calibration *calibration) {
    for (int i = 0; i < to->count; i++)
        for (size_t j = 0; j < to->block[i].params.count; j++) {
            const ParamDesc *desc = &to->block[i].params.desc[j];
            Tensor view;
            if (!desc->packing || desc->tied) continue;
            CLEANUP(status_freep) Status absent = store_source(params, desc->name, &view);
            if (absent) continue;
            TRY(mem_grow(&calibration->input, &calibration->capacity, calibration->count + 1,
                         sizeof *calibration->input));
            InputStats *input = &calibration->input[calibration->count];
            *input = (InputStats){.weights = view.data,
                                  .bytes = tensor_bytes(view),
                                  .layer = block_is_layer(&to->block[i]),
                                  .inputs = different_inputs(&to->config, desc),
                                  .cols = desc->dim[desc->ndim - 1]};
            snprintf(input->name, sizeof input->name, "%s", desc->name);
            TRY(mem_new((size_t)(input->inputs * input->cols), sizeof *input->largest, &input->largest));
            calibration->count++;
        }
    return OK;
}

static Status generate_samples(Engine *engine, uint64_t seed) {
    const ModelConfig *config = &engine->model->config;
    int64_t positions = config->positions < SAMPLE_TOKENS ? config->positions : SAMPLE_TOKENS;
    CLEANUP(session_freep) Session *session = NULL;
    CLEANUP(sampler_freep) Sampler *sampler = NULL;
    TRY(session_new(&session, engine, SAMPLES, positions, 1));
    TRY(sampler_new(&sampler, &(Sampling){.temperature = 1, .top_p = 1, .seed = seed}, config->vocab));
    int32_t token[SAMPLES];
    Feed feed[SAMPLES];
    RngKey key = rng_key(seed, "calibrate", 0);
    for (int b = 0; b < SAMPLES; b++) {
        token[b] = (int32_t)rng_below(key, (uint64_t)b, (uint64_t)config->vocab);
        feed[b] = (Feed){&token[b], 1};
    }
    for (int64_t at = 0; at < positions; at++) {
        TRY(session_feed(session, feed, SAMPLES));
        for (int b = 0; b < SAMPLES; b++)
            TRY(sampler_pick(sampler, session_logits(session, b), (uint64_t)b, (uint64_t)at, &token[b]));
    }
    return OK;
}

Status calibrate_on_samples(const char *dir, const Model *to, int threads, uint64_t seed,
                            Calibration *ret_calibration) {
    CLEANUP(engine_freep) Engine *engine = NULL;
    CLEANUP(calibration_done) Calibration calibration = {0};
    TRY(engine_new(&engine, dir, &(EngineOptions){.threads = threads, .dtype = DT_F32}));
    TRY(list_inputs(engine->params, to, &calibration));
    InputRecorder recorder = {.observer = {record_input}, .calibration = &calibration};
    engine->exec.observer = &recorder.observer;
    TRY(generate_samples(engine, seed));
    return MOVE(ret_calibration, calibration);
}

/* A question-answering model needs questions, not plain text. */
static Status check_task(const Job *job, const char *dir, const CalibrationData *data) {
    DataFormat format;
    TRY(job_format(job, data->files, data->files_count, &format));
    if (config_has(&job->model->config, OUTPUT_SPAN) && format != FORMAT_SQUAD && format != FORMAT_IDS)
        return USAGE(
            "{calibrate}: %s is a question-answering model and needs data in SQuAD format, which %s is not",
            dir, data->files[0]);
    return OK;
}

Status calibrate_on_data(const char *dir, const Model *to, const CalibrationData *data, int threads,
                         Calibration *ret_calibration) {
    Settings settings = {.model = {.name = dir, .task = "auto"},
                         .data = {.files = data->files,
                                  .files_count = data->files_count,
                                  .format = data->format ? data->format : "auto",
                                  .text = data->text},
                         .run = {.micro_batch = 1},
                         .device = {.name = "cpu", .precision = "fp32", .threads = threads},
                         .report = {.log = data->log}};
    CLEANUP(load_report_done) LoadReport report = {0};
    CLEANUP(calibration_done) Calibration calibration = {0};
    CLEANUP(dataset_freep) Dataset *set = NULL;
    CLEANUP(job_freep) Job *job = NULL;
    EvalResult result;
    TRY(job_new(&job, &settings, JOB_EVAL));
    TRY(check_task(job, dir, data));
    job->fixed_seq = true;
    TRY(job_data(job, data->files, data->files_count, (DataPart){0}, 0.15, 0, &set));
    TRY(job_start(job, &report));
    TRY(load_report_check(&report, dir, &job->model->config, true));
    TRY(list_inputs(job->runner->params, to, &calibration));
    InputRecorder recorder = {.observer = {record_input}, .calibration = &calibration};
    job->runner->exec.observer = &recorder.observer;
    TRY(job_evaluate(job, set, DATA_SEQUENCES, &result));
    return MOVE(ret_calibration, calibration);
}
