/* weft predict and weft embed: a model's outputs for rows without labels. Rows, batches and layouts are those
 * of evaluation; sequences are as long as the longest row. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "data/released.h"
#include "data/task.h"
#include "model/head.h"
#include "train/job.h"
#include "train/predictions.h"
#include "train/replicas.h"
#include "train/squad.h"

const char *const pooling_names[] = {"mean", "first", "last", NULL};

/* ---- what is common ---- */

static Status check_files(const PredictConfig *config, bool vectors) {
    RowFormat format = config->out ? row_format_of(config->out) : ROW_FILE_JSON;
    if (config->settings.data.files_count == 0) return USAGE("no data; pass files with {data}");
    if (format == ROW_FILE_JSON || (vectors ? format == ROW_FILE_NPY : format == ROW_FILE_CSV)) return OK;
    return USAGE("{out} %s: expected a file that ends in .jsonl or %s", config->out,
                 vectors ? ".npy" : ".csv");
}

static Status read_config(const char *model, ModelConfig *ret_config) {
    CLEANUP(model_dir_done) ModelDir dir = {0};
    char hint[RELEASED_HINT];
    if (!path_is_dir(model))
        return USAGE("{model} %s: not a checkpoint directory; predictions need trained weights%s", model,
                     released_hint(model, false, hint));
    TRY(model_dir_open(&dir, model));
    return hf_config_read(dir.path, ret_config);
}

/* Makes sequences as long as the longest row, in whole parts for the ranks that divide them. */
static void fit_rows(Job *job, Dataset *data) {
    const Mesh *mesh = job->settings.run.mesh;
    int64_t unit = mesh ? 8 * mesh->extent[AXIS_CP] * mesh->extent[AXIS_TP] : 8;
    int64_t T = (dataset_longest(data) + unit - 1) / unit * unit;
    if (T > job->seq) T = job->seq;
    job->seq = job->settings.run.seq = T;
    dataset_set_seq(data, T);
}

static Status start_job(Job *job, bool tells, Progress *progress) {
    CLEANUP(load_report_done) LoadReport report = {0};
    TRY(job_start(job, &report));
    TRY(load_report_check(&report, job->model_dir, &job->model->config, false));
    TRY(replicas_check(job->runner));
    if (tells) job_report(job, &report, progress);
    return OK;
}

static Status open_rows(Job *job, bool tells, Progress *progress, Dataset **ret_data) {
    const DataSettings *from = &job->settings.data;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    TRY(job_data(job, from->files, from->files_count, (DataPart){0}, 0, 0, &data));
    fit_rows(job, data);
    TRY(start_job(job, tells, progress));
    return MOVE(ret_data, data);
}

static Status result_json(const PredictConfig *config, const Predictions *out, double seconds,
                          json_t **ret_result) {
    CLEANUP(json_decrefp)
    json_t *json =
        json_pack("{s:I, s:f, s:f, s:o}", "rows", (json_int_t)out->rows, "runtime_s", seconds, "rows_per_s",
                  (double)out->rows / seconds, "out", config->out ? json_string(config->out) : json_null());
    if (!json) return FAILED("out of memory");
    return MOVE(ret_result, json);
}

static Status new_job(const Settings *settings, Job **ret_job) {
    CLEANUP(job_freep) Job *job = NULL;
    TRY(job_new(&job, settings, JOB_EVAL));
    job->device->advice = "a smaller {batch} or {seq}, or {zero} 3 on more ranks";
    return MOVE(ret_job, job);
}

/* ---- predictions ---- */

/* The bits of the heads that a task trains, by its name or alias; 0: there is no such task. */
static unsigned heads_of(const char *task) {
    for (Task id = 0; id < TASK_COUNT; id++) {
        const char *alias = task_data(id)->alias;
        if (!strcmp(task, task_names[id]) || (alias && !strcmp(task, alias))) return task_heads(id);
    }
    return 0;
}

static Status check_head(const Settings *settings) {
    const char *task = settings->model.task;
    ModelConfig config = {0};
    char names[HEAD_NAMES];
    TRY(read_config(settings->model.name, &config));
    if (!config.outputs_mask)
        return USAGE("{model} %s has no output head, so it predicts nothing; 'weft embed' gives its hidden "
                     "states",
                     settings->model.name);
    if (!strcmp(task, "auto") || heads_of(task) & config.outputs_mask) return OK;
    return USAGE("{model} %s has no head for {task} %s; it has %s", settings->model.name, task,
                 head_names(config.outputs_mask, NULL, names));
}

static Status predict_rows(const PredictConfig *config, Job *job, Progress *progress, Predictions *out) {
    CLEANUP(dataset_freep) Dataset *data = NULL;
    TRY(job_name_tokens(job));
    if (job->squad && job->task == TASK_SPAN) return squad_predict(config, job, progress, out);
    TRY(open_rows(job, true, progress, &data));
    return task_predict(job, data, out);
}

Status model_predict(const PredictConfig *config, json_t **ret_result) {
    CLEANUP(progress_freep) Progress *progress = NULL;
    CLEANUP(job_freep) Job *job = NULL;
    CLEANUP(predictions_done) Predictions out = {.top = config->top};
    CLEANUP(json_decrefp) json_t *result = NULL;
    Settings settings = config->settings;
    settings.data.unlabeled = settings.data.named = true;
    TRY(check_files(config, false));
    TRY(check_head(&settings));
    TRY(progress_new(&progress, settings.report.log, "predict", 0, 5, settings.report.quiet));
    TRY(new_job(&settings, &job));
    TRY(predictions_init(&out, job, config->out, config->put));
    double start = clock_wall();
    TRY(predict_rows(config, job, progress, &out));
    TRY(predictions_commit(&out));
    TRY(result_json(config, &out, clock_wall() - start, &result));
    TRY(json_put(result, "task", json_string(task_names[job->task])));
    return MOVE(ret_result, result);
}

/* ---- embeddings ---- */

typedef struct Embedding {
    const Job *job;
    const Dataset *data;
    const PredictConfig *config;
    Predictions *out;
} Embedding;

static Status fill_rows(void *context, int64_t at, HostBatch *batch) {
    const Embedding *embedding = context;
    return dataset_fill(embedding->data, (uint64_t)at, false, batch);
}

static int64_t pick_one(void *context, const HostBatch *batch, int32_t *rows) {
    const Embedding *embedding = context;
    bool last = embedding->config->pool == POOL_LAST;
    for (int64_t b = 0; b < batch->B; b++)
        rows[b] = (int32_t)(b * batch->T + (last ? batch->lens[b] - 1 : 0));
    return batch->B;
}

/* The mean over a text's tokens. */
static void average(void *context, const HostBatch *batch, const float *values, float *out) {
    const Embedding *embedding = context;
    int64_t C = embedding->job->model->config.hidden;
    for (int64_t b = 0; b < batch->B; b++)
        for (int64_t c = 0; c < C; c++) {
            double sum = 0;
            for (int64_t t = 0; t < batch->lens[b]; t++) sum += (double)values[(b * batch->T + t) * C + c];
            out[b * C + c] = (float)(sum / batch->lens[b]);
        }
}

static void scale_to_one(float *vector, int64_t width) {
    double sum = 0;
    for (int64_t c = 0; c < width; c++) sum += (double)vector[c] * (double)vector[c];
    double length = sqrt(sum) > 1e-12 ? sqrt(sum) : 1e-12; /* as in PyTorch */
    for (int64_t c = 0; c < width; c++) vector[c] = (float)((double)vector[c] / length);
}

static Status consume(void *context, int64_t at, const HostBatch *batch, const float *values) {
    const Embedding *embedding = context;
    int64_t C = embedding->job->model->config.hidden;
    CLEANUP(mem_freep) float *vector = NULL;
    TRY(predictions_check(values, batch->B * C));
    TRY(mem_new((size_t)C, sizeof *vector, &vector));
    for (int64_t b = 0; b < batch->B; b++) {
        memcpy(vector, values + b * C, (size_t)C * sizeof *vector);
        if (embedding->config->normalize) scale_to_one(vector, C);
        TRY(predictions_put_vector(embedding->out, embedding->data, at + b, vector, C));
    }
    return OK;
}

static Status embed_rows(const PredictConfig *config, const Job *job, const Dataset *data, Predictions *out) {
    Embedding embedding = {job, data, config, out};
    int64_t C = job->model->config.hidden;
    bool mean = config->pool == POOL_MEAN;
    ScoreWork work = {.head = HEAD_NONE,
                      .seq = job->seq,
                      .width = C,
                      .context = &embedding,
                      .title = "embedding",
                      .fill = fill_rows,
                      .consume = consume,
                      .pick = mean ? NULL : pick_one,
                      .raw = mean ? job->seq * C : 0,
                      .condense = mean ? average : NULL};
    return job_scores(job, dataset_count(data), &work);
}

Status model_embed(const PredictConfig *config, json_t **ret_result) {
    CLEANUP(progress_freep) Progress *progress = NULL;
    CLEANUP(job_freep) Job *job = NULL;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(predictions_done) Predictions out = {0};
    CLEANUP(json_decrefp) json_t *result = NULL;
    ModelConfig model = {0};
    Settings settings = config->settings;
    TRY(check_files(config, true));
    TRY(read_config(settings.model.name, &model));
    settings.data.unlabeled = settings.data.named = settings.model.headless = true;
    settings.model.task = task_names[family_task(model.family)];
    TRY(progress_new(&progress, settings.report.log, "embed", 0, 5, settings.report.quiet));
    TRY(new_job(&settings, &job));
    TRY(predictions_init(&out, job, config->out, config->put));
    double start = clock_wall();
    TRY(open_rows(job, false, progress, &data));
    TRY(embed_rows(config, job, data, &out));
    TRY(predictions_commit(&out));
    TRY(result_json(config, &out, clock_wall() - start, &result));
    TRY(json_put(result, "width", json_integer((json_int_t)job->model->config.hidden)));
    return MOVE(ret_result, result);
}
