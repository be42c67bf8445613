/* weft eval --against: checks and table. */
#include "cli/eval_against.h"

#include <string.h>

#include "base/format.h"
#include "cli/option.h"
#include "compare/models.h"

Status eval_against(const EvalConfig *config, const char *const *against, int count, json_t **ret_result) {
    if (!config->settings.model.name) return USAGE("--against requires --model DIR, the baseline");
    if (config->squad.out)
        return USAGE("--out saves the answers of a single model; remove --against or --out");
    if (config->settings.run.mesh && config->settings.run.mesh->world->size > 1)
        return USAGE(
            "--against supports only a single rank; with several ranks, evaluate one model at a time");
    return models_measure(config, against, count, ret_result);
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
typedef struct Metric {
    const char *key, *title;
    double unit;
} Metric;

static const Metric metrics[] = {
    {"loss", "loss", 1}, {"exact", "exact", 1},           {"f1", "F1", 1},
    {"mcc", "MCC", 1},   {"accuracy", "accuracy %", 100}, {"pearson", "Pearson", 1}};
/* Those that are comparable between language models with different tokenizers. */
static const Metric byte_metrics[] = {{"bits_per_byte", "bits per byte", 1}};

/* The table's columns besides size and memory. */
typedef struct Columns {
    const Metric *metric;
    size_t count;
    const char *rate, *rate_title;
} Columns;

static Columns columns_of(const json_t *result, const json_t *first) {
    if (json_is_false(json_object_get(result, "same_tokenizer")))
        return (Columns){byte_metrics, COUNT_OF(byte_metrics), "bytes_per_s", "bytes/s"};
    if (json_object_get(first, "tokens_per_s"))
        return (Columns){metrics, COUNT_OF(metrics), "tokens_per_s", "tokens/s"};
    return (Columns){metrics, COUNT_OF(metrics), "samples_per_s", "sequences/s"};
}

static void show_score(FILE *out, const json_t *row, const json_t *first, const Metric *metric) {
    char change[32] = "";
    double value, before, unit = metric->unit;
    if (!json_has_number(first, metric->key, &before)) return;
    if (!json_has_number(row, metric->key, &value)) {
        fprintf(out, "  %19s", "-");
        return;
    }
    if (row != first) snprintf(change, sizeof change, "%+.4f", unit * (value - before));
    fprintf(out, "  %9.4f %9s", unit * value, change);
}

static void show_head(FILE *out, const json_t *first, int widest, const Columns *columns) {
    fprintf(out, "%-*s  %20s  %20s", widest, "model", "size on disk", "peak memory");
    for (size_t i = 0; i < columns->count; i++)
        if (json_object_get(first, columns->metric[i].key)) fprintf(out, "  %19s", columns->metric[i].title);
    fprintf(out, "  %20s\n", columns->rate_title);
}

void eval_against_show(const json_t *result, FILE *out) {
    const json_t *models = json_object_get(result, "models"), *first = json_array_get(models, 0);
    Columns columns = columns_of(result, first);
    size_t index, widest = strlen("model");
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)models, index, row) {
        size_t length = strlen(json_string_at(row, "model"));
        if (length > widest) widest = length;
    }
    show_head(out, first, (int)widest, &columns);
    json_array_foreach((json_t *)(uintptr_t)models, index, row) {
        fprintf(out, "%-*s", (int)widest, json_string_at(row, "model"));
        show_cell(out, row, first, "size_bytes", true);
        show_cell(out, row, first, "peak_bytes", true);
        for (size_t i = 0; i < columns.count; i++) show_score(out, row, first, &columns.metric[i]);
        show_cell(out, row, first, columns.rate, false);
        fputc('\n', out);
    }
}
