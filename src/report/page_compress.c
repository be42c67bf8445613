/* Sections on compressed models: rounds of pruning as a table and curves, and what quantization costs, gains
 * and writes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/load.h"
#include "base/memory.h"
#include "report/page_parts.h"
#include "report/plot.h"

/* *ret_json is NULL if there is no such file. */
static Status read_in(const char *dir, const char *name, json_t **ret_json) {
    CLEANUP(mem_freep) char *path = NULL;
    *ret_json = NULL;
    TRY(path_join(&path, dir, name));
    return path_exists(path) ? json_read_file(path, ret_json) : OK;
}

static void put_number(Page *page, const json_t *row, const char *key, int digits) {
    double number;
    if (json_has_number(row, key, &number))
        page_cell(page, digits == 4 ? "%.4f" : "%.2f", number);
    else
        page_cell(page, "-");
}

/* ---- pruning ---- */

static const char *kind_of(const json_t *rounds) {
    return json_string_or(json_object_get(rounds, "settings"), "kind", "weights");
}

static void put_rounds(Page *page, const json_t *of) {
    const json_t *row;
    size_t i;
    page_put(page, "<h3>By %s</h3>\n", kind_of(of));
    page_table(page, NULL, "pruned", "parameters", "loss pruned", "loss trained", "ms/step", NULL);
    json_array_foreach(json_object_get(of, "rounds"), i, row) {
        char count[FORMAT_SIZE];
        page_row(page, NULL);
        page_put(page, "%.1f%%", 100 * json_number_at(row, "sparsity"));
        page_cell(page, "%s", format_count(count, json_number_at(row, "params_total")));
        put_number(page, row, "val_loss_pruned", 4);
        put_number(page, row, "val_loss", 4);
        put_number(page, row, "step_ms", 2);
    }
    page_table_end(page);
}

static Status add_curve(Plot *plot, const json_t *of, const char *key) {
    const json_t *row;
    size_t i;
    Series look = {.label = kind_of(of), .width = 2, .dots = true};
    series_style(&look, plot->count);
    TRY(plot_series(plot, look));
    json_array_foreach(json_object_get(of, "rounds"), i, row) {
        double sparsity, value;
        if (json_has_number(row, "sparsity", &sparsity) && json_has_number(row, key, &value))
            TRY(plot_point(plot, 100 * sparsity, value, NAN, NULL));
    }
    plot_require(plot, 2);
    return OK;
}

static Status put_curves(Page *page, json_t *const *kinds, size_t count, const char *name, const char *key,
                         const char *label, const char *caption) {
    CLEANUP(plot_done)
    Plot plot = {
        .name = name, .x_label = "pruned", .y_label = label, .x_format = AXIS_PERCENT, .sorted = true};
    for (size_t i = 0; i < count; i++) TRY(add_curve(&plot, kinds[i], key));
    return put_plot(page, &plot, caption, "by share pruned");
}

Status put_pruning(Page *page, const char *dir) {
    CLEANUP(json_decrefp) json_t *result = NULL;
    json_t *kinds[2];
    const json_t *sentence;
    size_t count, i;
    TRY(read_in(dir, "pruning.json", &result));
    if (!result) return OK;
    const json_t *both = json_object_get(result, "kinds");
    for (count = 0; count < json_array_size(both) && count < 2; count++)
        kinds[count] = json_array_get(both, count);
    if (!both) kinds[count++] = result;
    json_array_foreach(json_object_get(json_object_get(result, "conclusion"), "text"), i, sentence)
        page_put(page, "<p>%s</p>\n", json_string_value(sentence));
    for (i = 0; i < count; i++) put_rounds(page, kinds[i]);
    page_group(page, "plots");
    TRY(put_curves(page, kinds, count, "pruning-loss", "val_loss", "validation loss", "Validation loss"));
    TRY(put_curves(page, kinds, count, "pruning-time", "step_ms", "ms per step", "Step time"));
    page_group_end(page);
    return OK;
}

/* ---- quantization ---- */

static bool has_contention(const json_t *row) {
    return load_is_disturbed(json_object_get(row, "load"));
}

static void put_levels(Page *page, const json_t *levels) {
    const json_t *level, *row;
    size_t i, size, sizes = json_array_size(json_object_get(json_array_get(levels, 0), "batches"));
    char time[FORMAT_SIZE];
    page_table(page, NULL, "level", "batch", "time", "speedup", "loss", "weight error", NULL);
    for (size = 0; size < sizes; size++) json_array_foreach(levels, i, level) {
            double noise;
            row = json_array_get(json_object_get(level, "batches"), size);
            page_row(page, NULL);
            page_put(page, "%s", json_string_or(level, "name", "?"));
            if (has_contention(row)) page_put(page, " <span class=\"badge failed\">CPU contention</span>");
            page_cell(page, "%.0f", json_number_at(row, "batch"));
            page_cell(page, "%s", time_text(time, json_number_at(row, "seconds")));
            put_number(page, row, "speedup", 2);
            put_number(page, row, "loss", 4);
            if (json_has_number(level, "weights_noise", &noise))
                page_cell(page, "%.2f%%", 100 * noise);
            else
                page_cell(page, "-");
        }
    page_table_end(page);
}

/* The continuations of a prompt side by side. */
static void put_texts(Page *page, const json_t *evaluation) {
    const json_t *prompt, *level;
    size_t p, i;
    json_array_foreach(json_object_get(evaluation, "prompts"), p, prompt) {
        page_put(page, "<h3>“%s”</h3>\n", json_string_value(prompt));
        page_group(page, "tiles texts");
        json_array_foreach(json_object_get(evaluation, "levels"), i, level) {
            const char *text = json_string_value(json_array_get(json_object_get(level, "texts"), p));
            page_put(page, "<div class=\"tile\"><span>%s</span>%s</div>\n",
                     json_string_or(level, "name", "?"), text ? text : "-");
        }
        page_group_end(page);
    }
}

Status put_quantization(Page *page, const char *dir) {
    CLEANUP(json_decrefp) json_t *result = NULL;
    TRY(read_in(dir, "quantization.json", &result));
    const json_t *evaluation = json_object_get(result, "evaluation");
    if (!evaluation) return OK;
    put_levels(page, json_object_get(evaluation, "levels"));
    put_texts(page, evaluation);
    return OK;
}
