/* Each model runs on its own device object, so that peak memory is counted from zero. Tokenized data is
 * cached after the first model. The size of a checkpoint is that of its weight files.
 */
#include "compare/models.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "data/task.h"
#include "model/head.h"
#include "train/job.h"

static bool holds_weights(const char *name) {
    const char *end = strrchr(name, '.');
    return end && (!strcmp(end, ".safetensors") || !strcmp(end, ".bin")) &&
           strcmp(name, "optimizer.safetensors");
}

static Status size_of(const char *model, int64_t *ret_bytes) {
    CLEANUP(model_dir_done) ModelDir dir = {0};
    TRY(model_dir_open(&dir, model));
    DIR *open = opendir(dir.path);
    if (!open) return FAILED("%s: cannot be opened; expected a checkpoint directory", dir.path);
    int64_t bytes = 0;
    for (struct dirent *entry; (entry = readdir(open));) {
        struct stat found;
        if (holds_weights(entry->d_name) && fstatat(dirfd(open), entry->d_name, &found, 0) == 0)
            bytes += (int64_t)found.st_size;
    }
    closedir(open);
    *ret_bytes = bytes;
    return OK;
}

/* What a model's loss measures. */
typedef struct Measure {
    Task task;
    bool bytes;         /* nll is also known per byte of text */
    bool per_token;     /* depends on how the tokenizer divides text ... */
    TokenizerId tokens; /* ... which is this one */
} Measure;

static Status find_measure(const EvalConfig *config, const char *model, Measure *ret_measure) {
    CLEANUP(job_freep) Job *job = NULL;
    Settings settings = config->settings;
    const DataSettings *data = &settings.data;
    DataFormat format = FORMAT_AUTO;
    if (!path_is_dir(model)) return USAGE("%s: no such directory; expected a run or a checkpoint", model);
    settings.model.name = model;
    TRY(job_new(&job, &settings, JOB_EVAL));
    TRY(job_format(job, data->files, data->files_count, &format));
    Measure measure = {.task = job->task};
    measure.bytes = task_data(job->task)->windows && !config->max_batches &&
                    (format == FORMAT_TEXT || format == FORMAT_BYTES);
    measure.per_token =
        heads_traits(task_heads(job->task)).vocab && format != FORMAT_TOKENS && format != FORMAT_IDS;
    if (measure.per_token) {
        TRY(job_need_tokenizer(job));
        measure.tokens = tokenizer_id(job->tokenizer);
    }
    *ret_measure = measure;
    return OK;
}

/* Refuses models whose losses mean different things. *ret_per_byte: only losses per byte are comparable. */
static Status check(const EvalConfig *config, const char *const *others, int count, bool *ret_per_byte) {
    const char *model = config->settings.model.name;
    Measure first, other;
    TRY(find_measure(config, model, &first));
    *ret_per_byte = false;
    for (int i = 0; i < count; i++) {
        TRY(find_measure(config, others[i], &other));
        if (other.task != first.task)
            return USAGE("%s would be evaluated on another task (%s) than %s (%s); compare models of the "
                         "same task",
                         others[i], task_names[other.task], model, task_names[first.task]);
        if (!first.per_token || tokenizer_id_same(&first.tokens, &other.tokens)) continue;
        char own[TOKENIZER_ID_TEXT], its[TOKENIZER_ID_TEXT];
        if (!first.bytes)
            return USAGE("%s has another tokenizer (%s) than %s (%s), so their losses per token cannot be "
                         "compared; language models are compared per byte on text, without {max-batches}",
                         others[i], tokenizer_id_text(&other.tokens, its), model,
                         tokenizer_id_text(&first.tokens, own));
        *ret_per_byte = true;
    }
    return OK;
}

/* Sets result[rate] to result[key] per second, if both are known. */
static int put_rate(json_t *result, const char *key, const char *rate) {
    double seconds, amount;
    if (!json_has_number(result, "runtime_s", &seconds) || !json_has_number(result, key, &amount) ||
        seconds <= 0)
        return 0;
    return json_object_set_new(result, rate, json_real(amount / seconds));
}

static Status measure(const EvalConfig *config, const char *model, json_t *models) {
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(json_decrefp) json_t *result = NULL;
    EvalConfig mine = *config;
    int64_t bytes = 0;
    TRY(size_of(model, &bytes));
    TRY(device_new(&device, config->settings.device.name, 0, (int)config->settings.device.threads));
    mine.settings.model.name = model;
    mine.settings.device.on = device;
    TRY(eval_run(&mine, &result));
    int failed = json_object_set_new(result, "model", json_string(model));
    failed |= json_object_set_new(result, "size_bytes", json_integer(bytes));
    failed |= json_object_set_new(result, "peak_bytes", json_integer((json_int_t)device->total.peak));
    failed |= put_rate(result, "tokens", "tokens_per_s");
    failed |= put_rate(result, "bytes", "bytes_per_s");
    if (failed || json_array_append(models, result)) return FAILED("out of memory");
    return OK;
}

Status models_measure(const EvalConfig *config, const char *const *others, int count, json_t **ret_result) {
    CLEANUP(json_decrefp) json_t *models = json_array(), *result = NULL;
    bool per_byte;
    TRY(check(config, others, count, &per_byte)); /* all of them, since a measurement may take long */
    TRY(measure(config, config->settings.model.name, models));
    for (int i = 0; i < count; i++) TRY(measure(config, others[i], models));
    result = json_pack("{s:O, s:b}", "models", models, "same_tokenizer", !per_byte);
    if (!result) return FAILED("out of memory");
    *ret_result = json_incref(result);
    return OK;
}
