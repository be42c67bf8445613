/* Each model runs on its own device object, so that peak memory is counted from zero. Tokenized data is
 * cached after the first model. The size of a checkpoint is that of its weight files.
 */
#include "cli/eval_against.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/format.h"
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

static Status measure(const EvalConfig *config, const char *model, json_t *models) {
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(json_decrefp) json_t *result = NULL;
    EvalConfig mine = *config;
    int64_t bytes = 0;
    double seconds = 0, tokens = 0;
    TRY(size_of(model, &bytes));
    TRY(device_new(&device, config->device, 0, (int)config->threads));
    mine.model = model;
    mine.on = device;
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

Status eval_against(const EvalConfig *config, const char *const *against, int count, json_t **ret_result) {
    CLEANUP(json_decrefp) json_t *models = json_array(), *result = NULL;
    if (!config->model) return USAGE("--against requires --model DIR, the baseline");
    if (config->squad.out)
        return USAGE("--out saves the answers of a single model; remove --against or --out");
    if (config->mesh && config->mesh->world->size > 1)
        return USAGE(
            "--against supports only a single rank; with several ranks, evaluate one model at a time");
    TRY(measure(config, config->model, models));
    for (int i = 0; i < count; i++) TRY(measure(config, against[i], models));
    result = json_pack("{s:O}", "models", models);
    if (!result) return FAILED("out of memory");
    *ret_result = json_incref(result);
    return OK;
}

/* A value and its relative difference from the first model's. */
static void show_cell(FILE *out, const json_t *row, const json_t *first, const char *key, bool bytes) {
    char text[FORMAT_SIZE], change[32] = "";
    double value, before;
    if (!json_has_number(row, key, &value)) {
        fprintf(out, "  %20s", "-");
        return;
    }
    if (bytes)
        format_bytes(text, value);
    else
        snprintf(text, sizeof text, "%.0f", value);
    if (row != first && json_has_number(first, key, &before) && before > 0)
        snprintf(change, sizeof change, "%+.1f%%", 100 * (value / before - 1));
    fprintf(out, "  %9s %10s", text, change);
}

/* Quality metrics; `unit` is the factor by which a value is multiplied for display. */
static const struct {
    const char *key, *title;
    double unit;
} scores[] = {{"loss", "loss", 1},
              {"exact", "exact", 1},
              {"f1", "F1", 1},
              {"accuracy", "accuracy %", 100},
              {"pearson", "Pearson", 1}};

static void show_score(FILE *out, const json_t *row, const json_t *first, size_t which) {
    char change[32] = "";
    double value, before, unit = scores[which].unit;
    if (!json_has_number(first, scores[which].key, &before)) return;
    if (!json_has_number(row, scores[which].key, &value)) {
        fprintf(out, "  %19s", "-");
        return;
    }
    if (row != first) snprintf(change, sizeof change, "%+.4f", unit * (value - before));
    fprintf(out, "  %9.4f %9s", unit * value, change);
}

static void show_head(FILE *out, const json_t *first, int widest, bool tokens) {
    fprintf(out, "%-*s  %20s  %20s", widest, "model", "size on disk", "peak memory");
    for (size_t i = 0; i < COUNT_OF(scores); i++)
        if (json_object_get(first, scores[i].key)) fprintf(out, "  %19s", scores[i].title);
    fprintf(out, "  %20s\n", tokens ? "tokens/s" : "sequences/s");
}

void eval_against_show(const json_t *result, FILE *out) {
    const json_t *models = json_object_get(result, "models"), *first = json_array_get(models, 0);
    bool tokens = json_object_get(first, "tokens_per_s") != NULL;
    size_t index, widest = strlen("model");
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)models, index, row) {
        size_t length = strlen(json_string_at(row, "model"));
        if (length > widest) widest = length;
    }
    show_head(out, first, (int)widest, tokens);
    json_array_foreach((json_t *)(uintptr_t)models, index, row) {
        fprintf(out, "%-*s", (int)widest, json_string_at(row, "model"));
        show_cell(out, row, first, "size_bytes", true);
        show_cell(out, row, first, "peak_bytes", true);
        for (size_t i = 0; i < COUNT_OF(scores); i++) show_score(out, row, first, i);
        show_cell(out, row, first, tokens ? "tokens_per_s" : "samples_per_s", false);
        fputc('\n', out);
    }
}
