/* Each column is as wide as its widest cell; columns without any value are omitted. Columns that do not fit
 * the terminal continue in further blocks. Control characters in names and errors are replaced. */
#include "report/table.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/terminal.h"
#include "report/comparable.h"
#include "report/spread.h"
#include "report/study.h"
#include "report/text.h"

enum { MAX_NAME = 42, MIN_NAME = 12 };

/* The width of text in columns, counting every character as one. */
static int columns(const char *text) {
    return (int)text_length(text);
}

/* The length in bytes of the first `limit` characters. */
static int fitting(const char *text, int limit) {
    int at = 0;
    for (int count = 0; text[at]; at++) {
        bool starts = ((unsigned char)text[at] & 0xC0) != 0x80;
        if (starts && count++ == limit) break;
    }
    return at;
}

static void widen(int *width, const char *text) {
    if (columns(text) > *width) *width = columns(text);
}

/* The sources that have lines of their own below a run: all but the one of its main line. */
static bool has_lines(const Results *results, const Run *run, FigureSource source) {
    FigureSource own = run_predicted(run) ? SOURCE_PREDICTED : SOURCE_MEASURED;
    if (source == SOURCE_PUBLISHED && !results_published(results)) return false;
    return source != own && run_has_source(run, source);
}

static int column_width(const Results *results, size_t figure, bool utf8) {
    char text[CELL_SIZE];
    int width = columns(figures[figure].heading);
    results_foreach(results, run) {
        widen(&width, cell_text(text, run, figure, utf8));
        change_text(text, run, figure, utf8);
        widen(&width, text);
        for (FigureSource source = 0; source < SOURCES; source++) {
            if (results_published(results))
                widen(&width, percent_text(text, run_from_published(run, source, figure), utf8));
            if (!has_lines(results, run, source)) continue;
            double value = run_source_figure(run, source, figure);
            widen(&width, figure_text(text, figures[figure].unit, value));
        }
    }
    return width;
}

static void put_right(FILE *out, const char *text, int width, const char *color) {
    fprintf(out, "  %*s", width - columns(text), "");
    if (color && *text) fputs(color, out);
    fputs(text, out);
    if (color && *text) fputs("\033[0m", out);
}

typedef struct Block {
    size_t figure[FIGURES];
    int width[FIGURES], count;
    int name; /* width of the name column */
} Block;

/* A name that does not fit ends in an ellipsis. */
static void put_name(FILE *out, const char *name, int width, bool utf8) {
    const char *rest = utf8 ? "…" : "...";
    int length = columns(name);
    if (length <= width) {
        terminal_put(out, name, strlen(name));
        fprintf(out, "%*s", width - length, "");
        return;
    }
    terminal_put(out, name, (size_t)fitting(name, width - columns(rest)));
    fputs(rest, out);
}

/* The line below the name: the outcome of an unfinished run, whose figures are partial; for a finished run,
 * whether it is predicted or the baseline. */
static const char *mark_of(char *buffer, const Results *results, const Run *run) {
    bool base = run == run_base(results, run) && kind_size(results, run) > 1;
    if (run->state != RUN_FINISHED)
        snprintf(buffer, CELL_SIZE, "  %s", run_outcome(run));
    else
        snprintf(buffer, CELL_SIZE, "%s%s%s%s", run_predicted(run) || base || run_contended(run) ? "  " : "",
                 run_predicted(run) ? base ? "predicted, " : "predicted" : "",
                 !base                ? ""
                 : run_contended(run) ? "baseline (memory, loss), "
                                      : "baseline",
                 run_contended(run) ? run_remark(run) : "");
    return buffer;
}

static void put_label(FILE *out, const char *text, const Block *block, TableLook look) {
    if (look.color) fputs("\033[2m", out);
    put_name(out, text, block->name, look.utf8);
    if (look.color) fputs("\033[0m", out);
}

/* A line "vs published" below the values of a source. */
static void put_from_published(FILE *out, const Run *run, FigureSource source, const Block *block,
                               TableLook look) {
    char text[CELL_SIZE];
    bool any = false;
    for (int c = 0; c < block->count; c++) any |= isfinite(run_from_published(run, source, block->figure[c]));
    if (!any) return;
    put_label(out, "    vs published", block, look);
    for (int c = 0; c < block->count; c++)
        put_right(out, percent_text(text, run_from_published(run, source, block->figure[c]), look.utf8),
                  block->width[c], look.color ? "\033[2m" : NULL);
    fputc('\n', out);
}

/* Values of the study, and predictions next to measurements. */
static void put_sources(FILE *out, const Results *results, const Run *run, const Block *block,
                        TableLook look) {
    char text[CELL_SIZE], label[CELL_SIZE];
    FigureSource own = run_predicted(run) ? SOURCE_PREDICTED : SOURCE_MEASURED;
    if (!results_published(results) && !run->prediction.json && !run_has_source(run, SOURCE_WEFT)) return;
    if (results_published(results)) put_from_published(out, run, own, block, look);
    for (FigureSource source = 0; source < SOURCES; source++) {
        if (!has_lines(results, run, source)) continue;
        snprintf(label, sizeof label, "  %s", source_name(source));
        put_label(out, label, block, look);
        for (int c = 0; c < block->count; c++) {
            double value = run_source_figure(run, source, block->figure[c]);
            figure_text(text, figures[block->figure[c]].unit, value);
            put_right(out, isfinite(value) ? text : "", block->width[c], NULL);
        }
        fputc('\n', out);
        if (results_published(results)) put_from_published(out, run, source, block, look);
    }
    if (results_published(results) && published_lacks_memory(run)) {
        put_label(out, "  published", block, look);
        fputs("  out of memory\n", out);
    }
}

static void put_run(FILE *out, const Results *results, const Run *run, const Block *block, TableLook look) {
    static const char *const colors[] = {"\033[2m", "\033[2m", "\033[32m", "\033[31m"}; /* by Change */
    char text[CELL_SIZE];
    put_name(out, run->name, block->name, look.utf8);
    if (!run_shows(run)) {
        fprintf(out, "  %s\n", run_outcome(run));
        put_sources(out, results, run, block, look);
        return;
    }
    for (int c = 0; c < block->count; c++)
        put_right(out, cell_text(text, run, block->figure[c], look.utf8), block->width[c], NULL);
    fputc('\n', out);
    if (results->count == 1 && !run_predicted(run) && run->state == RUN_FINISHED && !run->published) return;
    put_label(out, mark_of(text, results, run), block, look);
    for (int c = 0; c < block->count; c++) {
        const char *color = colors[change_text(text, run, block->figure[c], look.utf8)];
        put_right(out, text, block->width[c], look.color ? color : NULL);
    }
    fputc('\n', out);
    put_sources(out, results, run, block, look);
}

static void put_block(FILE *out, const Results *results, const Block *block, TableLook look) {
    fprintf(out, "%*s", block->name, "");
    for (int c = 0; c < block->count; c++)
        put_right(out, figures[block->figure[c]].heading, block->width[c], look.color ? "\033[1m" : NULL);
    fputc('\n', out);
    for (size_t i = 0; i < results->count; i++) put_run(out, results, &results->runs[i], block, look);
}

static void put_remarks(FILE *out, const Results *results) {
    bool any = false;
    results_foreach(results, run) {
        if (run->state == RUN_FINISHED && !run->error) continue;
        if (!any) fputc('\n', out);
        terminal_put(out, run->name, strlen(run->name));
        fprintf(out, ": %s%s", run_state_name(run->state), run->error ? ": " : "");
        if (run->error) terminal_put(out, run->error, strlen(run->error));
        fputc('\n', out);
        any = true;
    }
}

static void put_blocks(FILE *out, const Results *results, TableLook look) {
    Block block = {.name = MIN_NAME};
    char text[CELL_SIZE];
    results_foreach(results, run) {
        int width = columns(run->name), below = run_shows(run) ? columns(mark_of(text, results, run)) : 0;
        if (below > width) width = below;
        if (results_published(results) && width < 16) width = 16; /* "    vs published" */
        if (width > block.name) block.name = width < MAX_NAME ? width : MAX_NAME;
    }
    int used = block.name;
    bool first = true;
    Columns shown = results_columns(results);
    for (size_t i = 0; i < shown.count; i++) {
        size_t f = shown.shown[i];
        int width = column_width(results, f, look.utf8);
        if (block.count && used + 2 + width > look.width) {
            put_block(out, results, &block, look);
            fputc('\n', out);
            block.count = 0;
            used = block.name;
        }
        block.figure[block.count] = f;
        block.width[block.count++] = width;
        used += 2 + width;
        first = false;
    }
    if (block.count || first) put_block(out, results, &block, look);
    put_remarks(out, results);
}

Status table_text(const Results *results, TableLook look, char **ret_text) {
    CLEANUP(text_done) Text text = {0};
    TRY(text_open(&text));
    put_blocks(text.out, results, look);
    return text_take(&text, ret_text, NULL);
}
