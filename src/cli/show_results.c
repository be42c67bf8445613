#include "cli/show.h"

#include <string.h>

#include "base/memory.h"
#include "base/terminal.h"
#include "report/spread.h"
#include "report/steps.h"
#include "report/study.h"
#include "report/summary.h"
#include "report/table.h"

/* A character without which a terminal that lacks UTF-8 does; NULL: it is shown as it is. */
static const char *plain_text(const char *text, size_t *ret_length) {
    static const char *const known[][2] = {{"“", "\""}, {"”", "\""}, {"±", "+-"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        *ret_length = strlen(known[i][0]);
        if (!strncmp(text, known[i][0], *ret_length)) return known[i][1];
    }
    return NULL;
}

/* Wraps text to `width` columns. */
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
        for (size_t i = 0, size; i < length; i += size) {
            const char *plain = utf8 ? NULL : plain_text(text + i, &size);
            if (!plain) size = 1;
            fprintf(out, "%.*s", plain ? 2 : 1, plain ? plain : text + i);
        }
        used += columns;
        text += length + (text[length] == ' ');
    }
    fputc('\n', out);
}

Status show_findings(const char *summary, const json_t *findings, FILE *out) {
    const json_t *finding;
    size_t i;
    int width = terminal_width(out);
    bool utf8 = terminal_utf8();
    if (!*summary) return OK;
    fputc('\n', out);
    put_wrapped(out, summary, width, utf8);
    json_array_foreach(findings, i, finding) {
        CLEANUP(mem_freep) char *line = NULL;
        const char *part = json_string_at(finding, "part");
        TRY(str_format(&line, "- %s: %s (%s%s%s).", json_string_at(finding, "text"),
                       json_string_at(finding, "verdict"), part ? part : "", part ? ": " : "",
                       json_string_at(finding, "detail")));
        terminal_clean(line);
        put_wrapped(out, line, width, utf8);
    }
    return OK;
}

static Status put_findings(FILE *out, const Results *results) {
    CLEANUP(mem_freep) char *text = NULL;
    CLEANUP(json_decrefp) json_t *findings = NULL;
    TRY(findings_text(results, &text));
    TRY(findings_json(results, &findings));
    return show_findings(text, findings, out);
}

Status show_results(const Results *results, FILE *out) {
    CLEANUP(mem_freep) char *table = NULL, *summary = NULL, *note = NULL, *trust = NULL;
    TableLook look = {terminal_width(out), terminal_color(out), terminal_utf8()};
    Columns columns = results_columns(results);
    CLEANUP(grid_done) Grid steps = {0};
    TRY(columns_note(results, &columns, &note));
    TRY(steps_grid(results, &steps));
    TRY(table_text(results, look, &table));
    TRY(results_summary(results, &summary));
    TRY(spread_note(results, &trust));
    if (*note) {
        put_wrapped(out, note, look.width, look.utf8);
        fputc('\n', out);
    }
    fprintf(out, "%s\n", table);
    if (*trust) {
        put_wrapped(out, trust, look.width, look.utf8);
        fputc('\n', out);
    }
    put_wrapped(out, summary, look.width, look.utf8);
    if (steps.count) {
        fputc('\n', out);
        grid_text(out, &steps);
    }
    return put_findings(out, results);
}
