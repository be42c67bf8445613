#include "cli/show_results.h"

#include <string.h>

#include "base/memory.h"
#include "base/terminal.h"
#include "report/columns.h"
#include "report/study.h"
#include "report/summary.h"
#include "report/table.h"

/* Wraps text to `width` columns. Replaces typographic quotes if the terminal has no UTF-8. */
static void put_wrapped(FILE *out, const char *text, int width, bool utf8) {
    int used = 0;
    while (*text) {
        size_t length = strcspn(text, " ");
        int columns = 0;
        for (size_t i = 0; i < length; i++) columns += ((unsigned char)text[i] & 0xC0) != 0x80;
        if (used && used + 1 + columns > width) {
            fputc('\n', out);
            used = 0;
        } else if (used) {
            fputc(' ', out);
            used++;
        }
        for (size_t i = 0; i < length; i++) {
            bool quote = !utf8 && (!strncmp(text + i, "“", 3) || !strncmp(text + i, "”", 3));
            fputc(quote ? '"' : text[i], out);
            if (quote) i += 2;
        }
        used += columns;
        text += length + (text[length] == ' ');
    }
    fputc('\n', out);
}

/* The study, then each of its conclusions with the verdict. */
static Status put_findings(FILE *out, const Results *results, TableLook look) {
    CLEANUP(mem_freep) char *text = NULL;
    CLEANUP(json_decrefp) json_t *findings = NULL;
    const json_t *finding;
    size_t i;
    TRY(findings_text(results, &text));
    TRY(findings_json(results, &findings));
    if (!*text) return OK;
    fputc('\n', out);
    put_wrapped(out, text, look.width, look.utf8);
    json_array_foreach(findings, i, finding) {
        CLEANUP(mem_freep) char *line = NULL;
        TRY(str_format(&line, "- %s: %s (%s).", json_string_at(finding, "text"),
                       json_string_at(finding, "verdict"), json_string_at(finding, "detail")));
        terminal_clean(line);
        put_wrapped(out, line, look.width, look.utf8);
    }
    return OK;
}

Status show_results(const Results *results, FILE *out) {
    CLEANUP(mem_freep) char *table = NULL, *summary = NULL, *note = NULL;
    TableLook look = {terminal_width(out), terminal_color(out), terminal_utf8()};
    Columns columns = results_columns(results);
    TRY(columns_note(results, &columns, &note));
    TRY(table_text(results, look, &table));
    TRY(results_summary(results, &summary));
    if (*note) {
        put_wrapped(out, note, look.width, look.utf8);
        fputc('\n', out);
    }
    fprintf(out, "%s\n", table);
    put_wrapped(out, summary, look.width, look.utf8);
    return put_findings(out, results, look);
}
