/* Each column is as wide as its widest cell; columns without any value are omitted. Columns that do not fit
 * the terminal continue in further blocks. Control characters in names and errors are replaced. */
#include "report/table.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "base/terminal.h"

enum { MAX_NAME = 42, MIN_NAME = 12, CELL = 48 };

/* The width of UTF-8 text in columns, counting every character as one. */
static int columns(const char *text) {
    int count = 0;
    for (; *text; text++) count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
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

static const char *percent_text(char *buffer, double difference, bool utf8) {
    buffer[0] = 0;
    if (!isfinite(difference)) return buffer;
    bool same = fabs(difference) < 0.05;
    const char *mark = same ? (utf8 ? "= " : "") : difference > 0 ? (utf8 ? "▲ " : "+") : (utf8 ? "▼ " : "-");
    snprintf(buffer, CELL, "%s%.1f%%", mark, fabs(difference));
    return buffer;
}

static int column_width(const Results *results, size_t figure, bool utf8) {
    char text[CELL];
    int width = columns(figures[figure].heading);
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        int value = columns(run_figure_text(text, run, figure, utf8));
        int below = columns(percent_text(text, run_difference(results, run, figure), utf8));
        if (value > width) width = value;
        if (below > width) width = below;
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

static const char *color_of(const Results *results, const Run *run, size_t figure) {
    double difference = run_difference(results, run, figure);
    if (!isfinite(difference) || fabs(difference) < 0.05 || !figures[figure].better) return "\033[2m";
    return (difference > 0) == (figures[figure].better > 0) ? "\033[32m" : "\033[31m";
}

static void put_name(FILE *out, const char *name, int width) {
    int bytes = fitting(name, width);
    terminal_put(out, name, (size_t)bytes);
    int used = columns(name) < width ? columns(name) : width;
    fprintf(out, "%*s", width - used, "");
}

/* The line below the name: the outcome of an unfinished run, whose figures are partial; for a finished run,
 * whether it is predicted or the baseline. */
static const char *mark_of(char *buffer, const Results *results, const Run *run) {
    bool base = run == results_base(results) && results->count > 1;
    if (run->state != RUN_FINISHED)
        snprintf(buffer, CELL, "  %s", run_outcome(run));
    else
        snprintf(buffer, CELL, "%s%s%s", run_predicted(run) || base ? "  " : "",
                 run_predicted(run) ? base ? "predicted, " : "predicted" : "", base ? "baseline" : "");
    return buffer;
}

static void put_run(FILE *out, const Results *results, const Run *run, const Block *block, TableLook look) {
    char text[CELL];
    put_name(out, run->name, block->name);
    if (!run_shows(run)) {
        fprintf(out, "  %s\n", run_outcome(run));
        return;
    }
    for (int c = 0; c < block->count; c++)
        put_right(out, run_figure_text(text, run, block->figure[c], look.utf8), block->width[c], NULL);
    fputc('\n', out);
    if (results->count == 1 && !run_predicted(run) && run->state == RUN_FINISHED) return;
    if (look.color) fputs("\033[2m", out);
    put_name(out, mark_of(text, results, run), block->name);
    if (look.color) fputs("\033[0m", out);
    for (int c = 0; c < block->count; c++)
        put_right(out, percent_text(text, run_difference(results, run, block->figure[c]), look.utf8),
                  block->width[c], look.color ? color_of(results, run, block->figure[c]) : NULL);
    fputc('\n', out);
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
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
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
    char text[CELL];
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        int width = columns(run->name), below = run_shows(run) ? columns(mark_of(text, results, run)) : 0;
        if (below > width) width = below;
        if (width > block.name) block.name = width < MAX_NAME ? width : MAX_NAME;
    }
    int used = block.name;
    bool first = true;
    for (size_t f = 0; f < FIGURES; f++) {
        if (!results_have(results, f)) continue;
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
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory while writing the table");
    put_blocks(out, results, look);
    bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) return FAILED("out of memory while writing the table");
    *ret_text = text;
    text = NULL;
    return OK;
}
