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
static Status accumulate(const Job *job, const TrainConfig *config, const Dataset *data) {
    CLEANUP(batches_done) Batches batches = {0};
    StepResult result;
    int64_t targets = config_targets(&job->model->config);
    for (int i = 0; i < BATCHES; i++) {
        TRY(host_batch_new_targets(&batches.at[i], BATCH, job->seq, targets));
        TRY(dataset_fill(data, (uint64_t)i * BATCH, !config->no_shuffle, batches.at[i]));
    }
    return runner_gradients(job->runner, batches.at, BATCHES, 1, &result);
}

/* The training data, as 'weft train' splits it. */
static Status open_data(Job *job, const TrainConfig *c, Dataset **ret_data) {
    CLEANUP(token_file_list_done) TokenFileList val_files = {0};
    if (c->val_count == 0) TRY(job_val_token_files(c->data, c->data_count, &val_files));
    bool split = c->val_count == 0 && val_files.count == 0;
    return job_data(job, c->data, c->data_count, split ? 1 - c->val_fraction : 0, 0, c->mask_rate, c->seed,
                    ret_data);
}

Status gradients_new(const char *dir, const TrainConfig *config, Job **ret_job) {
    CLEANUP(load_report_done) LoadReport report = {0};
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(job_freep) Job *job = NULL;
    JobSpec spec = job_spec_of(config);
    spec.model = dir;
    spec.device = "cpu";
    spec.on = NULL;
    spec.kernels = NULL;
    spec.precision = "fp32";
    spec.quantize_aware = NULL;
    spec.dropout = 0;
    spec.mesh = NULL;
    spec.zero = spec.pp_chunks = 0;
    spec.offload = spec.pp_schedule = NULL;
    spec.sequence = spec.keep_params = false;
    spec.micro_batch = BATCH;
    spec.batch = BATCH * BATCHES;
    TRY(job_new(&job, &spec));
    TRY(open_data(job, config, &data));
    TRY(job_start(job, &report));
    TRY(load_report_check(&report, dir, &job->model->config, true));
    TRY(accumulate(job, config, data));
    *ret_job = job;
    job = NULL;
    return OK;
}
