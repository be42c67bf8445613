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

static Status check(const char *model) {
    CLEANUP(model_dir_done) ModelDir dir = {0};
    ModelConfig config;
    if (!path_is_dir(model)) return USAGE("%s: no such directory; expected a run or a checkpoint", model);
    TRY(model_dir_open(&dir, model));
    return hf_config_read(dir.path, &config);
}

static Status measure(const EvalConfig *config, const char *model, json_t *models) {
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(json_decrefp) json_t *result = NULL;
    EvalConfig mine = *config;
    int64_t bytes = 0;
    double seconds = 0, tokens = 0;
    TRY(size_of(model, &bytes));
    TRY(device_new(&device, config->settings.device.name, 0, (int)config->settings.device.threads));
    mine.settings.model.name = model;
    mine.settings.device.on = device;
    TRY(eval_run(&mine, &result));
    int failed = json_object_set_new(result, "model", json_string(model));
    failed |= json_object_set_new(result, "size_bytes", json_integer(bytes));
    failed |= json_object_set_new(result, "peak_bytes", json_integer((json_int_t)device->total.peak));
    if (json_has_number(result, "runtime_s", &seconds) && json_has_number(result, "tokens", &tokens) &&
        seconds > 0)
        failed |= json_object_set_new(result, "tokens_per_s", json_real(tokens / seconds));
    if (failed || json_array_append(models, result)) return FAILED("out of memory");
    return OK;
}

Status models_measure(const EvalConfig *config, const char *const *others, int count, json_t **ret_result) {
    CLEANUP(json_decrefp) json_t *models = json_array(), *result = NULL;
    TRY(check(config->settings.model.name)); /* all of them, since a measurement may take long */
    for (int i = 0; i < count; i++) TRY(check(others[i]));
    TRY(measure(config, config->settings.model.name, models));
    for (int i = 0; i < count; i++) TRY(measure(config, others[i], models));
    result = json_pack("{s:O}", "models", models);
    if (!result) return FAILED("out of memory");
    *ret_result = json_incref(result);
    return OK;
}
