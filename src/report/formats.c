/* The results table for papers and wikis. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "report/comparable.h"
#include "report/spread.h"
#include "report/steps.h"
#include "report/study.h"
#include "report/table.h"
#include "report/text.h"

/* ---- escaping ---- */

/* What replaces a character; NULL: nothing does. *ret_length: bytes of the character. */
typedef const char *(*Escape)(const char *text, size_t *ret_length);

typedef struct Replacement {
    const char *from, *to;
} Replacement;

static const char *find(const Replacement *table, size_t count, const char *text, size_t *ret_length) {
    for (size_t i = 0; i < count; i++) {
        *ret_length = strlen(table[i].from);
        if (!strncmp(text, table[i].from, *ret_length)) return table[i].to;
    }
    return NULL;
}

static const char *latex_escape(const char *text, size_t *ret_length) {
    static const Replacement table[] = {{"\\", "\\textbackslash{}"},
                                        {"&", "\\&"},
                                        {"%", "\\%"},
                                        {"$", "\\$"},
                                        {"#", "\\#"},
                                        {"_", "\\_"},
                                        {"{", "\\{"},
                                        {"}", "\\}"},
                                        {"±", "$\\pm$"},
                                        {"<", "\\textless{}"},
                                        {">", "\\textgreater{}"},
                                        {"|", "\\textbar{}"},
                                        {"[", "{[}"},     /* the argument of a line break or rule before it */
                                        {"*", "{*}"},     /* likewise */
                                        {"--", "-{}-{}"}, /* a dash */
                                        {"~", "\\textasciitilde{}"},
                                        {"^", "\\textasciicircum{}"},
                                        {"`", "\\textasciigrave{}"},  /* with ? or !, a Spanish mark */
                                        {"'", "\\textquotesingle{}"}, /* two of them are one mark */
                                        {"\"", "\\texttt{\"}"},       /* otherwise a closing mark */
                                        {"“", "``"},
                                        {"”", "''"}};
    return find(table, sizeof table / sizeof *table, text, ret_length);
}

static const char *markdown_escape(const char *text, size_t *ret_length) {
    static const Replacement table[] = {{"|", "\\|"},  {"*", "\\*"}, {"_", "\\_"},   {"`", "\\`"},
                                        {"<", "&lt;"}, {"[", "\\["}, {"\\", "\\\\"}, {"&", "&amp;"},
                                        {">", "&gt;"}, {"~", "\\~"}, {"$", "\\$"}};
    return find(table, sizeof table / sizeof *table, text, ret_length);
}

static void put(FILE *out, const char *text, Escape escape) {
    for (size_t length; *text; text += length) {
        int control = terminal_control(text);
        const char *other = control ? "?" : escape(text, &length);
        if (control) length = (size_t)control;
        if (!other) length = 1;
        fprintf(out, "%.*s", other ? (int)strlen(other) : 1, other ? other : text);
    }
}

/* ---- cells ---- */

static void put_name(FILE *out, const Results *results, const Run *run, Escape escape) {
    put(out, run->name, escape);
    const char *mark = run->state == RUN_FINISHED && run_predicted(run) ? "predicted" : run_remark(run);
    if (!mark && run == run_base(results, run) && kind_size(results, run) > 1) mark = "baseline";
    if (mark) fprintf(out, " (%s)", mark);
}

/* ---- tables ---- */

typedef struct Style {
    Escape escape;
    const char *begin, *next, *end; /* of a row, and between its cells */
} Style;

static const Style styles[] = {[FORMAT_MARKDOWN] = {markdown_escape, "| ", " | ", " |\n"},
                               [FORMAT_LATEX] = {latex_escape, "", " & ", " \\\\\n"}};

static void put_head(FILE *out, const Columns *columns, const Style *style) {
    fprintf(out, "%srun", style->begin);
    for (size_t i = 0; i < columns->count; i++) {
        fputs(style->next, out);
        put(out, figures[columns->shown[i]].heading, style->escape);
    }
    fputs(style->end, out);
}

/* A row of a run's values from another source, or of the differences of this source from what was published.
 */
static void put_source(FILE *out, const Run *run, const char *label, FigureSource source, bool differences,
                       const Columns *columns, const Style *style) {
    char text[FORMAT_SIZE];
    fputs(style->begin, out);
    put(out, run->name, style->escape);
    fprintf(out, " (%s)", label);
    for (size_t i = 0; i < columns->count; i++) {
        size_t f = columns->shown[i];
        double value = run_source_figure(run, source, f);
        fputs(style->next, out);
        if (differences)
            put(out, percent_text(text, run_from_published(run, source, f), false), style->escape);
        else if (isfinite(value))
            put(out, figure_text(text, figures[f].unit, value), style->escape);
        else if (i == 0 && source == SOURCE_PUBLISHED && published_lacks_memory(run))
            fputs("out of memory", out);
    }
    fputs(style->end, out);
}

static bool has_differences(const Run *run, FigureSource source, const Columns *columns) {
    for (size_t i = 0; i < columns->count; i++)
        if (isfinite(run_from_published(run, source, columns->shown[i]))) return true;
    return false;
}

/* The study's figures, and the prediction for weft next to one for another program. */
static void put_sources(FILE *out, const Results *results, const Run *run, const Columns *columns,
                        const Style *style) {
    FigureSource own = run_predicted(run) ? SOURCE_PREDICTED : SOURCE_MEASURED;
    bool published = run->published && results_published(results);
    if (published)
        put_source(out, run, source_name(SOURCE_PUBLISHED), SOURCE_PUBLISHED, false, columns, style);
    if (published && has_differences(run, own, columns))
        put_source(out, run, "vs published", own, true, columns, style);
    if (run_has_source(run, SOURCE_WEFT))
        put_source(out, run, source_name(SOURCE_WEFT), SOURCE_WEFT, false, columns, style);
}

static void put_rows(FILE *out, const Results *results, const Columns *columns, const Style *style) {
    char text[CELL_SIZE];
    results_foreach(results, run) {
        fputs(style->begin, out);
        put_name(out, results, run, style->escape);
        for (size_t i = 0; i < columns->count; i++) {
            fputs(style->next, out);
            put(out, cell_text(text, run, columns->shown[i], true), style->escape);
        }
        fputs(style->end, out);
        put_sources(out, results, run, columns, style);
    }
}

#define TABULAR "tabular" /* not a setting in braces, see base/setting.h */

bool format_is_latin(const char *text) {
    enum { LATIN_END = 0x180, MARKS = 0x2010, MARKS_END = 0x2027 };
    for (size_t i = 0; text[i];) {
        unsigned char lead = (unsigned char)text[i++];
        unsigned code = lead < 0x80   ? lead
                        : lead < 0xE0 ? lead & 0x1Fu
                        : lead < 0xF0 ? lead & 0xFu
                                      : lead & 7u;
        for (; ((unsigned char)text[i] & 0xC0) == 0x80; i++)
            code = code << 6 | ((unsigned char)text[i] & 0x3Fu);
        if (code >= LATIN_END && !(code >= MARKS && code < MARKS_END)) return false;
    }
    return true;
}

void format_begin(FILE *out, TableFormat format, size_t columns, bool latin) {
    if (format != FORMAT_LATEX) return;
    fputs("% needs the package booktabs\n", out);
    if (!latin)
        fputs("% needs lualatex or xelatex, and a font with all letters of the names: pdflatex lacks some\n",
              out);
    fputs("\\begin{" TABULAR "}{l", out);
    for (size_t i = 0; i < columns; i++) fputc('r', out);
    fputs("}\n\\toprule\n", out);
}

void format_head_end(FILE *out, TableFormat format, size_t columns) {
    if (format == FORMAT_LATEX) fputs("\\midrule\n", out);
    if (format != FORMAT_MARKDOWN) return;
    fputs("| ---", out);
    for (size_t i = 0; i < columns; i++) fputs(" | ---:", out);
    fputs(" |\n", out);
}

void format_end(FILE *out, TableFormat format) {
    if (format == FORMAT_LATEX) fputs("\\bottomrule\n\\end{" TABULAR "}\n", out);
}

void format_row(FILE *out, TableFormat format, const char *const *cells, size_t count) {
    const Style *style = &styles[format];
    fputs(style->begin, out);
    for (size_t i = 0; i < count; i++) {
        if (i) fputs(style->next, out);
        put(out, cells[i], style->escape);
    }
    fputs(style->end, out);
}

static void put_runs(FILE *out, const Results *results, const Columns *columns, TableFormat format) {
    bool latin = true;
    for (size_t r = 0; r < results->count; r++) latin &= format_is_latin(results->runs[r].name);
    format_begin(out, format, columns->count, latin);
    put_head(out, columns, &styles[format]);
    format_head_end(out, format, columns->count);
    put_rows(out, results, columns, &styles[format]);
    format_end(out, format);
}

void format_note(FILE *out, TableFormat format, const char *text) {
    fputs(format == FORMAT_LATEX ? "% " : "\n", out);
    put(out, text, styles[format].escape);
    fputc('\n', out);
}

/* The sentences around the table. */
static Status put_notes(FILE *out, const Results *results, const Columns *columns, TableFormat format) {
    CLEANUP(mem_freep) char *note = NULL, *trust = NULL;
    TRY(columns_note(results, columns, &note));
    TRY(spread_note(results, &trust));
    const char *const texts[] = {note, trust};
    for (size_t i = 0; i < 2; i++)
        if (*texts[i]) format_note(out, format, texts[i]);
    return OK;
}

/* Published losses by step, in a table of their own. */
static Status put_steps(FILE *out, const Results *results, TableFormat format) {
    CLEANUP(grid_done) Grid grid = {0};
    TRY(steps_grid(results, &grid));
    if (!grid.count) return OK;
    fputc('\n', out);
    grid_format(out, &grid, format);
    return OK;
}

static Status put_whole(FILE *out, const Results *results, TableFormat format) {
    Columns columns = results_published(results) ? results_columns(results) : results_own_columns(results);
    if (format == FORMAT_CSV) {
        results_csv(out, results);
        return OK;
    }
    put_runs(out, results, &columns, format);
    TRY(put_notes(out, results, &columns, format));
    return put_steps(out, results, format);
}

Status table_format(const Results *results, TableFormat format, char **ret_text) {
    CLEANUP(text_done) Text text = {0};
    TRY(text_open(&text));
    TRY(put_whole(text.out, results, format));
    return text_take(&text, ret_text, NULL);
}
