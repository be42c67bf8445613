#include "report/compressed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/load.h"
#include "base/memory.h"
#include "base/terminal.h"

static const char *const files[] = {"pruning.json", "quantization.json"};

void compressed_done(Compressed *of) {
    json_decref(of->curves);
    json_decref(of->levels);
    json_decref(of->sentences);
    json_decref(of->findings);
    json_decref(of->studies);
    json_decref(of->files);
    free(of->title);
}

/* ---- reading ---- */

static Status append(json_t **list, json_t *value) {
    if (!*list) *list = json_array();
    return json_array_append_new(*list, value) ? FAILED("out of memory") : OK;
}

static Status add_study(Compressed *of, const json_t *result) {
    const json_t *study = json_object_get(result, "study");
    if (!of->findings) of->findings = json_array();
    TRY(compressed_judge(result, of->findings));
    if (!json_string_at(study, "note")) return OK;
    return append(&of->studies, json_incref((json_t *)(uintptr_t)study));
}

static Status full_name(const char *prefix, const char *name, char **ret_name) {
    return prefix ? str_format(ret_name, "%s: %s", prefix, name) : str_dup(name, ret_name);
}

static Status add_kind(Compressed *of, const json_t *result, const char *prefix) {
    CLEANUP(mem_freep) char *name = NULL;
    const json_t *settings = json_object_get(result, "settings"), *rounds = json_object_get(result, "rounds");
    const char *kind = json_string_or(settings, "kind", "weights");
    TRY(full_name(prefix, kind, &name));
    return append(&of->curves, json_pack("{s:s, s:s, s:O*}", "name", name, "kind", kind, "rounds", rounds));
}

Status compressed_add_pruning(Compressed *of, const json_t *result, const char *name) {
    const json_t *kinds = json_object_get(result, "kinds"), *kind, *text;
    size_t i;
    if (!kinds) TRY(add_kind(of, result, name));
    json_array_foreach(kinds, i, kind) TRY(add_kind(of, kind, name));
    json_array_foreach(json_object_get(json_object_get(result, "conclusion"), "text"), i, text) {
        CLEANUP(mem_freep) char *sentence = NULL;
        if (!json_is_string(text)) continue;
        TRY(full_name(name, json_string_value(text), &sentence));
        TRY(append(&of->sentences, json_string(sentence)));
    }
    return add_study(of, result);
}

/* "int8: loss 2.3216 instead of 2.3215 in fp32; 2.57x as fast in batches of 32, 2.80x in batches of 64." */
static Status describe_level(Compressed *of, const char *name, const json_t *level, const json_t *original) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0, i, count = 0;
    const json_t *batches = json_object_get(level, "batches"), *row;
    const json_t *first = json_object_get(original, "batches");
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory");
    fprintf(out, "%s: loss %.4f instead of %.4f in %s; ", name,
            json_number_at(json_array_get(batches, json_array_size(batches) - 1), "loss"),
            json_number_at(json_array_get(first, json_array_size(first) - 1), "loss"),
            json_string_or(original, "name", "?"));
    json_array_foreach(batches, i, row) {
        double speedup;
        if (!json_has_number(row, "speedup", &speedup)) continue;
        fprintf(out, count ? ", %.2fx in batches of %.0f" : "%.2fx as fast in batches of %.0f", speedup,
                json_number_at(row, "batch"));
        count++;
    }
    fputs(count ? "." : "no speedup is stated, because of CPU contention.", out);
    if (fclose(out)) return FAILED("out of memory");
    return append(&of->sentences, json_string(text));
}

Status compressed_add_quantization(Compressed *of, const json_t *result, const char *prefix) {
    const json_t *evaluation = json_object_get(result, "evaluation");
    const json_t *levels = json_object_get(evaluation, "levels"), *level;
    size_t i;
    json_array_foreach(levels, i, level) {
        CLEANUP(mem_freep) char *name = NULL;
        TRY(full_name(prefix, json_string_or(level, "name", "?"), &name));
        TRY(append(&of->levels, json_pack("{s:s, s:O, s:O*}", "name", name, "level", level, "prompts",
                                          json_object_get(evaluation, "prompts"))));
        if (i) TRY(describe_level(of, name, level, json_array_get(levels, 0)));
    }
    return add_study(of, result);
}

/* *ret_json is NULL if there is no such file. */
static Status read_in(const char *dir, const char *name, json_t **ret_json) {
    CLEANUP(mem_freep) char *path = NULL;
    *ret_json = NULL;
    TRY(path_join(&path, dir, name));
    return path_exists(path) ? json_read_file(path, ret_json) : OK;
}

/* While two kinds are being pruned, each has a file of its own in a directory of its name. */
static Status add_unfinished(Compressed *of, const char *dir, const char *name) {
    static const char *const kinds[] = {"weights", "rows", "heads", "all-rows"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        CLEANUP(mem_freep) char *own = NULL;
        CLEANUP(json_decrefp) json_t *result = NULL;
        TRY(path_join(&own, dir, kinds[i]));
        TRY(read_in(own, files[0], &result));
        if (result) TRY(compressed_add_pruning(of, result, name));
    }
    return OK;
}

static Status has_file(const char *dir, const char *name, bool *ret_has) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, name));
    *ret_has = path_exists(path);
    return OK;
}

Status compressed_are_in(const char *const *dirs, size_t count, bool *ret_all) {
    *ret_all = true;
    for (size_t i = 0; i < count; i++) {
        bool pruned = false, quantized = false, compared = false;
        TRY(has_file(dirs[i], files[0], &pruned));
        TRY(has_file(dirs[i], files[1], &quantized));
        TRY(has_file(dirs[i], "results.json", &compared));
        *ret_all &= (pruned || quantized) && !compared;
    }
    return OK;
}

static Status add_dir(Compressed *of, const char *dir, const char *pruned_name, const char *quantized_name) {
    CLEANUP(json_decrefp) json_t *pruned = NULL, *quantized = NULL;
    TRY(read_in(dir, files[0], &pruned));
    TRY(read_in(dir, files[1], &quantized));
    const json_t *kinds = json_object_get(pruned, "kinds");
    if (kinds && !json_array_size(kinds))
        TRY(add_unfinished(of, dir, pruned_name));
    else if (pruned)
        TRY(compressed_add_pruning(of, pruned, pruned_name));
    if (quantized) TRY(compressed_add_quantization(of, quantized, quantized_name));
    return append(&of->files,
                  json_pack("{s:s, s:O*, s:O*}", "dir", dir, "pruning", pruned, "quantization", quantized));
}

Status compressed_read(Compressed *of, const char *const *dirs, size_t count) {
    size_t pruned = 0, quantized = 0;
    for (size_t i = 0; i < count; i++) {
        bool has[2] = {false};
        for (size_t f = 0; f < 2; f++) TRY(has_file(dirs[i], files[f], &has[f]));
        pruned += has[0];
        quantized += has[1];
    }
    for (size_t i = 0; i < count; i++) {
        CLEANUP(mem_freep) char *name = NULL;
        TRY(text_of_path(dirs[i], &name));
        TRY(add_dir(of, dirs[i], pruned > 1 ? name : NULL, quantized > 1 ? name : NULL));
        if (!of->title) TRY(str_dup(count > 1 ? "Compressed models" : name, &of->title));
    }
    return OK;
}

/* ---- tables ---- */

static const char *remark_of(const json_t *row) {
    return load_is_disturbed(json_object_get(row, "load")) ? "CPU contention" : NULL;
}

Status compressed_rounds(const Compressed *of, Grid *grid) {
    static const GridColumn columns[] = {{"round", "round", FIGURE_FORMAT_WHOLE},
                                         {"pruned", "sparsity", FIGURE_FORMAT_SHARE},
                                         {"parameters", "params_total", FIGURE_FORMAT_COUNT},
                                         {"loss pruned", "val_loss_pruned", FIGURE_FORMAT_LOSS},
                                         {"loss trained", "val_loss", FIGURE_FORMAT_LOSS},
                                         {"ms/step", "step_ms", FIGURE_FORMAT_MS},
                                         {"tokens/s", "tokens_per_s", FIGURE_FORMAT_RATE},
                                         {0}};
    const json_t *curve, *row;
    size_t i, k;
    *grid = (Grid){.names = "pruned by", .columns = columns};
    json_array_foreach(of->curves, i, curve) json_array_foreach(json_object_get(curve, "rounds"), k, row) {
        double values[GRID_COLUMNS];
        for (size_t c = 0; columns[c].heading; c++) values[c] = json_number_or(row, columns[c].key, NAN);
        values[0] = (double)k;
        TRY(grid_add(grid, json_string_at(curve, "name"), remark_of(row), values));
    }
    return OK;
}

Status compressed_levels(const Compressed *of, Grid *grid) {
    static const GridColumn columns[] = {{"batch", "batch", FIGURE_FORMAT_WHOLE},
                                         {"time", "seconds", FIGURE_FORMAT_SECONDS},
                                         {"speedup", "speedup", FIGURE_FORMAT_RATE},
                                         {"loss", "loss", FIGURE_FORMAT_LOSS},
                                         {"weight error", "weights_noise", FIGURE_FORMAT_SHARE},
                                         {0}};
    enum { WEIGHT_ERROR = 4, SIZES = 8 };
    const json_t *entry;
    size_t i;
    *grid = (Grid){.names = "level", .columns = columns};
    for (size_t size = 0; size < SIZES; size++) json_array_foreach(of->levels, i, entry) {
            const json_t *level = json_object_get(entry, "level");
            const json_t *row = json_array_get(json_object_get(level, "batches"), size);
            double values[GRID_COLUMNS];
            for (size_t c = 0; columns[c].heading; c++)
                values[c] = json_number_or(c == WEIGHT_ERROR ? level : row, columns[c].key, NAN);
            if (row) TRY(grid_add(grid, json_string_at(entry, "name"), remark_of(row), values));
        }
    return OK;
}

Status compressed_format(const Compressed *of, TableFormat format, char **ret_text) {
    CLEANUP(grid_done) Grid rounds = {0}, levels = {0};
    CLEANUP(text_done) Text text = {0};
    const json_t *sentence;
    size_t i;
    TRY(compressed_rounds(of, &rounds));
    TRY(compressed_levels(of, &levels));
    TRY(text_open(&text));
    if (rounds.count) grid_format(text.out, &rounds, format);
    if (rounds.count && levels.count) fputc('\n', text.out);
    if (levels.count) grid_format(text.out, &levels, format);
    json_array_foreach(of->sentences, i, sentence) if (format != FORMAT_CSV)
        format_note(text.out, format, json_string_value(sentence));
    return text_take(&text, ret_text, NULL);
}

/* The continuations of each prompt. */
static void show_texts(const Compressed *of, FILE *out) {
    const json_t *prompts = json_object_get(json_array_get(of->levels, 0), "prompts"), *prompt, *entry;
    size_t p, i;
    json_array_foreach(prompts, p, prompt) {
        fputc('\n', out);
        json_array_foreach(of->levels, i, entry) {
            const json_t *texts = json_object_get(json_object_get(entry, "level"), "texts");
            const char *text = json_string_value(json_array_get(texts, p));
            fprintf(out, "%s: ", json_string_at(entry, "name"));
            if (text) terminal_put(out, text, strlen(text));
            fputc('\n', out);
        }
    }
}

/* A line of text from a file. */
static void put_line(FILE *out, const char *start, const char *text) {
    fputs(start, out);
    terminal_put(out, text, strlen(text));
    fputc('\n', out);
}

Status compressed_show(const Compressed *of, FILE *out) {
    CLEANUP(grid_done) Grid rounds = {0}, levels = {0};
    const json_t *sentence;
    size_t i;
    TRY(compressed_rounds(of, &rounds));
    TRY(compressed_levels(of, &levels));
    if (rounds.count) grid_text(out, &rounds);
    if (rounds.count && levels.count) fputc('\n', out);
    if (levels.count) grid_text(out, &levels);
    show_texts(of, out);
    json_array_foreach(of->sentences, i, sentence) put_line(out, i ? "" : "\n", json_string_value(sentence));
    json_array_foreach(of->findings, i, sentence) {
        CLEANUP(mem_freep) char *line = NULL;
        TRY(str_format(&line, "%s: %s (%s).", json_string_at(sentence, "text"),
                       json_string_at(sentence, "verdict"), json_string_at(sentence, "detail")));
        put_line(out, i ? "- " : "\n- ", line);
    }
    return OK;
}
