#include "cli/show_results.h"

#include <string.h>

#include "base/memory.h"
#include "base/terminal.h"
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

Status show_results(const Results *results, FILE *out) {
    CLEANUP(mem_freep) char *table = NULL, *summary = NULL;
    TableLook look = {terminal_width(out), terminal_color(out), terminal_utf8()};
    TRY(table_text(results, look, &table));
    TRY(results_summary(results, &summary));
    fprintf(out, "%s\n", table);
    put_wrapped(out, summary, look.width, look.utf8);
    return OK;
}
