#include "report/formats.h"

#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "report/columns.h"
#include "report/comparable.h"
#include "report/spread.h"

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
    if (run->state != RUN_FINISHED)
        fprintf(out, " (%s)", run_outcome(run));
    else if (run_predicted(run))
        fputs(" (predicted)", out);
    else if (run_contended(run))
        fputs(" (CPU contention)", out);
    else if (run == run_base(results, run) && kind_size(results, run) > 1)
        fputs(" (baseline)", out);
}

static void put_cell(FILE *out, const Run *run, size_t figure, Escape escape) {
    char value[FORMAT_SIZE], spread[FORMAT_SIZE];
    put(out, run_figure_text(value, run, figure, true), escape);
    if (!*spread_text(spread, run, figure, true)) return;
    fputc(' ', out);
    put(out, spread, escape);
}

/* ---- tables ---- */

static void put_markdown(FILE *out, const Results *results, const Columns *columns) {
    fputs("| run |", out);
    for (size_t i = 0; i < columns->count; i++) fprintf(out, " %s |", figures[columns->shown[i]].heading);
    fputs("\n| --- |", out);
    for (size_t i = 0; i < columns->count; i++) fputs(" ---: |", out);
    for (size_t r = 0; r < results->count; r++) {
        fputs("\n| ", out);
        put_name(out, results, &results->runs[r], markdown_escape);
        for (size_t i = 0; i < columns->count; i++) {
            fputs(" | ", out);
            put_cell(out, &results->runs[r], columns->shown[i], markdown_escape);
        }
        fputs(" |", out);
    }
    fputc('\n', out);
}

#define TABULAR "tabular" /* not a setting in braces, see base/setting.h */

/* Whether pdflatex has all characters of a text: those of Latin alphabets, dashes, quotation marks and the
 * ellipsis. */
static bool is_latin(const char *text) {
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

static void put_latex(FILE *out, const Results *results, const Columns *columns) {
    bool latin = true;
    for (size_t r = 0; r < results->count; r++) latin &= is_latin(results->runs[r].name);
    fputs("% needs the package booktabs\n", out);
    if (!latin)
        fputs("% needs lualatex or xelatex, and a font with all letters of the names: pdflatex lacks some\n",
              out);
    fputs("\\begin{" TABULAR "}{l", out);
    for (size_t i = 0; i < columns->count; i++) fputc('r', out);
    fputs("}\n\\toprule\nrun", out);
    for (size_t i = 0; i < columns->count; i++) {
        fputs(" & ", out);
        put(out, figures[columns->shown[i]].heading, latex_escape);
    }
    fputs(" \\\\\n\\midrule\n", out);
    for (size_t r = 0; r < results->count; r++) {
        put_name(out, results, &results->runs[r], latex_escape);
        for (size_t i = 0; i < columns->count; i++) {
            fputs(" & ", out);
            put_cell(out, &results->runs[r], columns->shown[i], latex_escape);
        }
        fputs(" \\\\\n", out);
    }
    fputs("\\bottomrule\n\\end{" TABULAR "}\n", out);
}

/* The sentences around the table; in LaTeX as comments, for a caption. */
static Status put_notes(FILE *out, const Results *results, const Columns *columns, TableFormat format) {
    CLEANUP(mem_freep) char *note = NULL, *trust = NULL;
    const char *start = format == FORMAT_LATEX ? "% " : "\n";
    TRY(columns_note(results, columns, &note));
    TRY(spread_note(results, &trust));
    const char *const texts[] = {note, trust};
    for (size_t i = 0; i < 2; i++) {
        if (!*texts[i]) continue;
        fputs(start, out);
        put(out, texts[i], format == FORMAT_LATEX ? latex_escape : markdown_escape);
        fputc('\n', out);
    }
    return OK;
}

static Status put_table(FILE *out, const Results *results, TableFormat format) {
    Columns columns = results_own_columns(results);
    if (format == FORMAT_CSV) {
        results_csv(out, results);
        return OK;
    }
    (format == FORMAT_LATEX ? put_latex : put_markdown)(out, results, &columns);
    return put_notes(out, results, &columns, format);
}

Status table_format(const Results *results, TableFormat format, char **ret_text) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory while writing the table");
    Status status = put_table(out, results, format);
    bool bad = ferror(out) != 0;
    bad |= fclose(out) != 0;
    TRY(status);
    if (bad) return FAILED("out of memory while writing the table");
    *ret_text = text;
    text = NULL;
    return OK;
}
