#include "data/separated.h"

#include <string.h>

#include "base/memory.h"

void separated_done(Separated *rows) {
    free(rows->text);
    free(rows->stop);
}

static Status put(Separated *rows, const char *text, size_t size) {
    TRY(mem_grow(&rows->text, &rows->capacity, rows->size + size + 1, 1));
    memcpy(rows->text + rows->size, text, size);
    rows->size += size;
    return OK;
}

static Status end_field(Separated *rows) {
    TRY(mem_grow(&rows->stop, &rows->stop_capacity, rows->fields + 1, sizeof *rows->stop));
    rows->stop[rows->fields++] = rows->size;
    return OK;
}

/* Reads a quoted field; `at` is just past the opening quote and moves just past the closing one. */
static Status read_quoted(Separated *rows, int64_t row) {
    for (;;) {
        const char *quote = memchr(rows->at, '"', (size_t)(rows->end - rows->at));
        if (!quote)
            return FAILED("%s: line %lld: a quoted field has no closing quote", rows->name, (long long)row);
        TRY(put(rows, rows->at, (size_t)(quote - rows->at)));
        for (const char *c = rows->at; c < quote; c++) rows->line += *c == '\n';
        rows->at = quote + 1;
        if (rows->at == rows->end || *rows->at != '"') break;
        TRY(put(rows, "\"", 1));
        rows->at++;
    }
    if (rows->at < rows->end && !strchr("\r\n", *rows->at) && *rows->at != rows->separator)
        return FAILED("%s: line %lld: '%c' after a quoted field; expected a comma or the end of the line",
                      rows->name, (long long)rows->line, *rows->at);
    return OK;
}

static Status read_plain(Separated *rows) {
    const char *from = rows->at;
    while (rows->at < rows->end && *rows->at != rows->separator && *rows->at != '\n') rows->at++;
    size_t size = (size_t)(rows->at - from);
    bool ends = rows->at == rows->end || *rows->at == '\n';
    if (ends && size && from[size - 1] == '\r') size--;
    return put(rows, from, size);
}

Status separated_next(Separated *rows, int64_t *ret_line, bool *ret_more) {
    rows->size = rows->fields = 0;
    for (; rows->at < rows->end && (*rows->at == '\n' || *rows->at == '\r'); rows->at++)
        rows->line += *rows->at == '\n';
    *ret_line = rows->line;
    *ret_more = rows->at < rows->end;
    while (rows->at < rows->end) {
        bool quoted = rows->separator == ',' && *rows->at == '"';
        if (quoted) rows->at++;
        TRY(quoted ? read_quoted(rows, *ret_line) : read_plain(rows));
        TRY(end_field(rows));
        if (quoted && rows->at < rows->end && *rows->at == '\r') rows->at++;
        if (rows->at == rows->end) break;
        char c = *rows->at++;
        rows->line += c == '\n';
        if (c == '\n') break;
        if (rows->at == rows->end) TRY(end_field(rows)); /* an empty last field */
    }
    return OK;
}

const char *separated_field(const Separated *rows, size_t index, size_t *ret_size) {
    size_t from = index ? rows->stop[index - 1] : 0;
    *ret_size = rows->stop[index] - from;
    return rows->text + from;
}

size_t separated_find(const Separated *rows, const char *name) {
    size_t at = 0, size;
    for (; at < rows->fields; at++) {
        const char *field = separated_field(rows, at, &size);
        if (size == strlen(name) && !memcmp(field, name, size)) break;
    }
    return at;
}

void separated_names(const Separated *rows, char names[SEPARATED_NAMES]) {
    enum { SHOWN = 8, WIDTH = 24 };
    size_t used = 0;
    names[0] = 0;
    for (size_t i = 0; i < rows->fields && i < SHOWN; i++) {
        size_t size;
        const char *field = separated_field(rows, i, &size);
        used += (size_t)snprintf(names + used, SEPARATED_NAMES - used, "%s%.*s", i ? ", " : "",
                                 size < WIDTH ? (int)size : WIDTH, field);
    }
    if (rows->fields > SHOWN) snprintf(names + used, SEPARATED_NAMES - used, ", ...");
}
