#include "compress/gradients.h"

#include "base/memory.h"

enum { BATCHES = 4, BATCH = 4 };

typedef struct Batches {
    HostBatch *at[BATCHES];
} Batches;

static void batches_done(Batches *batches) {
    for (int i = 0; i < BATCHES; i++) host_batch_free(batches->at[i]);
}

/* Forward and backward over the first batches in the run's own order. */
static Status accumulate(const Job *job, const Settings *config, const Dataset *data) {
    CLEANUP(batches_done) Batches batches = {0};
    StepResult result;
    int64_t targets = config_targets(&job->model->config);
    for (int i = 0; i < BATCHES; i++) {
        TRY(host_batch_new_targets(&batches.at[i], BATCH, job->seq, targets));
        TRY(dataset_fill(data, (uint64_t)i * BATCH, !config->data.no_shuffle, batches.at[i]));
    }
    return runner_gradients(job->runner, batches.at, BATCHES, 1, &result);
}

/* The training data, as 'weft train' splits it. */
static Status open_data(Job *job, const Settings *c, Dataset **ret_data) {
    CLEANUP(token_file_list_done) TokenFileList val_files = {0};
    if (c->data.val_count == 0) TRY(job_val_token_files(c->data.files, c->data.files_count, &val_files));
    bool split = c->data.val_count == 0 && val_files.count == 0;
    return job_data(job, c->data.files, c->data.files_count, split ? 1 - c->data.val_fraction : 0, 0,
                    c->data.mask_rate, c->run.seed, ret_data);
}

Status gradients_new(const char *dir, const Settings *config, Job **ret_job) {
    CLEANUP(load_report_done) LoadReport report = {0};
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(job_freep) Job *job = NULL;
    Settings spec = *config;
    spec.model.name = dir;
    spec.device = (DeviceSettings){.name = "cpu", .precision = "fp32", .threads = config->device.threads};
    spec.run.fake_quant = FAKE_QUANT_NONE;
    spec.model.dropout = 0;
    spec.run.mesh = NULL;
    spec.run.zero = spec.run.chunks = 0;
    spec.run.offload = OFFLOAD_NONE;
    spec.run.schedule = SCHEDULE_1F1B;
    spec.run.sequence = spec.run.keep_params = false;
    spec.run.micro_batch = BATCH;
    spec.training.batch = BATCH * BATCHES;
    TRY(job_new(&job, &spec, JOB_TRAIN));
    TRY(open_data(job, config, &data));
    TRY(job_start(job, &report));
    TRY(load_report_check(&report, dir, &job->model->config, true));
    TRY(accumulate(job, config, data));
    return MOVE(ret_job, job);
}
