/* Compressed models on pages: rounds of pruning as a table and curves, and what quantization costs, gains and
 * writes. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/load.h"
#include "base/memory.h"
#include "report/compressed.h"
#include "report/plot.h"

/* ---- pruning ---- */

typedef struct Ordinate {
    const char *name, *key, *label, *caption;
    bool timed;
} Ordinate;

static bool has_contention(const json_t *row) {
    return load_is_disturbed(json_object_get(row, "load"));
}

/* The rounds of a kind; those whose times were disturbed, or all others. */
static Status add_points(Plot *plot, const json_t *curve, const Ordinate *y, bool disturbed) {
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(curve, "rounds"), i, row) {
        double sparsity, value;
        if ((y->timed && has_contention(row)) == disturbed && json_has_number(row, "sparsity", &sparsity) &&
            json_has_number(row, y->key, &value))
            TRY(plot_point(plot, 100 * sparsity, value, NAN, json_string_at(curve, "name")));
    }
    return OK;
}

/* The step time that the share pruned would suggest, as published for rows that are only masked. Zeroed
 * weights have none. */
static Status add_projection(Plot *plot, const json_t *curve, const Ordinate *y) {
    const json_t *rounds = json_object_get(curve, "rounds"), *row, *first = json_array_get(rounds, 0);
    double start = json_number_at(first, "sparsity"), sparsity, step_ms;
    size_t i;
    if (!strcmp(json_string_at(curve, "kind"), "weights") || has_contention(first) ||
        !json_has_number(first, y->key, &step_ms) || !(start < 1))
        return OK;
    CLEANUP(mem_freep) char *label = NULL;
    TRY(str_format(&label, "%s, projected", json_string_at(curve, "name")));
    TRY(plot_series(plot, (Series){.label = label, .color = COLOR_GRAY, .width = 1.5, .gap = 4}));
    json_array_foreach(rounds, i, row) if (json_has_number(row, "sparsity", &sparsity))
        TRY(plot_point(plot, 100 * sparsity, step_ms * (1 - sparsity) / (1 - start), NAN, NULL));
    plot_require(plot, 2);
    return OK;
}

static Status put_curves(Page *page, const Compressed *of, const Ordinate *y) {
    CLEANUP(plot_done)
    Plot plot = {.name = y->name,
                 .x_label = "pruned",
                 .y_label = y->label,
                 .x_format = AXIS_PERCENT,
                 .from_zero = y->timed,
                 .sorted = true,
                 .at_points = true};
    const json_t *curve;
    size_t i;
    json_array_foreach(of->curves, i, curve) {
        Series look = {.label = json_string_at(curve, "name"), .width = 2, .dots = true};
        series_style(&look, i);
        TRY(plot_series(&plot, look));
        TRY(add_points(&plot, curve, y, false));
        plot_require(&plot, 2);
    }
    json_array_foreach(of->curves, i, curve) if (y->timed) TRY(add_projection(&plot, curve, y));
    if (y->timed) TRY(plot_series(&plot, (Series){.label = "CPU contention", .color = COLOR_GRAY}));
    json_array_foreach(of->curves, i, curve) if (y->timed) TRY(add_points(&plot, curve, y, true));
    if (y->timed) plot_require(&plot, 1);
    return put_plot(page, &plot, y->caption, "by share pruned");
}

static Status put_rounds(Page *page, const Compressed *of) {
    static const Ordinate ordinates[] = {
        {"pruning-loss", "val_loss", "validation loss", "Validation loss", false},
        {"pruning-time", "step_ms", "ms per step", "Step time", true}};
    CLEANUP(grid_done) Grid grid = {0};
    TRY(compressed_rounds(of, &grid));
    if (!json_array_size(of->curves)) return OK;
    if (!grid.count) page_put(page, "<p>No round has finished.</p>\n");
    if (!grid.count) return OK;
    page_group(page, "plots");
    for (size_t i = 0; i < 2; i++) TRY(put_curves(page, of, &ordinates[i]));
    page_group_end(page);
    grid_page(page, &grid);
    return OK;
}

/* ---- quantization ---- */

/* The continuations of a prompt side by side. */
static void put_texts(Page *page, const Compressed *of) {
    const json_t *prompts = json_object_get(json_array_get(of->levels, 0), "prompts"), *prompt, *entry;
    size_t p, i;
    json_array_foreach(prompts, p, prompt) {
        page_put(page, "<h3>“%s” continued</h3>\n", json_is_string(prompt) ? json_string_value(prompt) : "?");
        page_group(page, "tiles texts");
        json_array_foreach(of->levels, i, entry) {
            const json_t *texts = json_object_get(json_object_get(entry, "level"), "texts");
            const char *text = json_string_value(json_array_get(texts, p));
            page_put(page, "<div class=\"tile\"><span>%s</span>%s</div>\n", json_string_at(entry, "name"),
                     text ? text : "-");
        }
        page_group_end(page);
    }
}

static Status put_levels(Page *page, const Compressed *of) {
    CLEANUP(grid_done) Grid grid = {0};
    TRY(compressed_levels(of, &grid));
    if (!grid.count) return OK;
    grid_page(page, &grid);
    put_texts(page, of);
    return OK;
}

/* ---- pages ---- */

static void put_sentences(Page *page, const Compressed *of) {
    const json_t *sentence;
    size_t i;
    json_array_foreach(of->sentences, i, sentence) {
        if (i) page_put(page, "<br/>\n");
        page_put(page, "%s", json_string_value(sentence));
    }
}

static void put_verdicts(Page *page, const Compressed *of) {
    if (!json_array_size(of->findings)) return;
    page_put(page, "<h3>Findings</h3>\n");
    page_findings(page, of->findings);
}

static void put_published(Page *page, const Compressed *of) {
    const json_t *study;
    size_t i;
    json_array_foreach(of->studies, i, study) {
        const char *title = json_string_at(study, "title"), *hardware = json_string_at(study, "hardware");
        page_put(page, "<p class=\"note\">Published%s%s%s%s: %s</p>\n", title ? " for " : "",
                 title ? title : "", hardware ? ", on " : "", hardware ? hardware : "",
                 json_string_at(study, "note"));
    }
}

Status put_compressed(Page *page, const Compressed *of) {
    page_put(page, "<p class=\"lead\">");
    put_sentences(page, of);
    page_put(page, "</p>\n");
    TRY(put_rounds(page, of));
    TRY(put_levels(page, of));
    put_verdicts(page, of);
    put_published(page, of);
    return OK;
}

static Status put_page(Page *page, const void *data) {
    const Compressed *of = data;
    size_t curves = json_array_size(of->curves), levels = json_array_size(of->levels);
    page_begin(page, !levels ? "Pruning" : !curves ? "Quantization" : "Compression", of->title, NULL);
    if (curves) put_chip(page, "%zu kind%s of pruning", curves, PLURAL(curves));
    if (levels) put_chip(page, "%zu level%s", levels, PLURAL(levels));
    page_header_end(page);
    if (json_array_size(of->sentences)) {
        page_verdict(page);
        put_sentences(page, of);
        page_put(page, "</p>\n");
    }
    if (curves) page_section(page, "Rounds of pruning", NULL);
    TRY(put_rounds(page, of));
    if (levels) page_section(page, "Levels of quantization", NULL);
    TRY(put_levels(page, of));
    put_verdicts(page, of);
    put_published(page, of);
    page_end(page);
    return OK;
}

Status page_write_compressed(const Compressed *of, const char *path) {
    return page_save(path, put_page, of);
}

Status page_write_in(const char *dir, const char *beside) {
    CLEANUP(compressed_done) Compressed of = {0};
    CLEANUP(mem_freep) char *path = NULL;
    const char *const dirs[] = {dir, beside};
    TRY(compressed_read(&of, dirs, beside ? 2 : 1));
    TRY(path_join(&path, dir, "report.html"));
    return page_write_compressed(&of, path);
}
