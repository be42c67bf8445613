/* Finds the values of JSON lines, and the elements of a JSON array without parsing them: by brackets outside
 * strings. Line breaks between the tokens of an element become spaces. */
#include <string.h>

#include "base/memory.h"
#include "data/rows_internal.h"

enum { CHUNK = 1 << 16 };

Status json_scan_open(JsonScan *scan, const char *path, bool array) {
    scan->path = path;
    scan->array = array;
    TRY(mem_new(CHUNK, 1, &scan->text));
    TRY(input_open(&scan->input, path));
    TRY(input_read(scan->input, scan->text, CHUNK, &scan->size));
    if (scan->size >= 3 && !memcmp(scan->text, "\xef\xbb\xbf", 3)) scan->at = 3;
    return OK;
}

void json_scan_done(JsonScan *scan) {
    input_free(scan->input);
    free(scan->text);
}

/* Makes the next byte available; false at the end of the file. */
static Status refill(JsonScan *scan, bool *ret_more) {
    if (scan->at == scan->size) {
        scan->at = 0;
        TRY(input_read(scan->input, scan->text, CHUNK, &scan->size));
    }
    *ret_more = scan->at < scan->size;
    return OK;
}

static Status put(const JsonScan *scan, JsonLine *line, const char *text, size_t size) {
    return status_wrap(json_line_put(line, text, size), "%s: %s %lld", scan->path,
                       scan->array ? "row" : "line", (long long)scan->number);
}

/* ---- lines ---- */

static Status next_line(JsonScan *scan, JsonLine *line, bool *ret_more) {
    bool more = true;
    for (;;) {
        line->size = 0;
        scan->number++;
        TRY(refill(scan, &more));
        if (!more) break;
        for (bool ends = false; more && !ends;) {
            const char *from = scan->text + scan->at;
            const char *newline = memchr(from, '\n', scan->size - scan->at);
            size_t size = newline ? (size_t)(newline - from) : scan->size - scan->at;
            TRY(put(scan, line, from, size));
            scan->at += size + (newline != NULL);
            ends = newline;
            if (!ends) TRY(refill(scan, &more));
        }
        if (!text_is_blank(line->text, line->size)) break;
        more = true;
    }
    *ret_more = more || line->size > 0;
    return OK;
}

/* ---- arrays ---- */

/* The next byte that is not white space, not consumed; 0 at the end of the file. */
static Status peek(JsonScan *scan, char *ret_byte) {
    for (bool more;; scan->at++) {
        TRY(refill(scan, &more));
        *ret_byte = more ? scan->text[scan->at] : 0;
        if (!more || !memchr(" \t\r\n", *ret_byte, 4)) return OK;
    }
}

static Status unexpected(const JsonScan *scan, const char *expected) {
    return FAILED("%s: row %lld: not a valid JSON array: expected %s", scan->path, (long long)scan->number,
                  expected);
}

/* Where a scan within an element is. */
typedef struct Inside {
    int64_t depth; /* of brackets and braces */
    bool string, escape;
} Inside;

/* Advances past one byte; whether the element ends before it. */
static bool ends_at(Inside *in, char c) {
    if (in->escape) {
        in->escape = false;
    } else if (in->string) {
        in->escape = c == '\\';
        in->string = c != '"';
    } else if (c == '"') {
        in->string = true;
    } else if (c == '{' || c == '[') {
        in->depth++;
    } else if (c == '}' || c == ']' || c == ',') {
        if (in->depth == 0) return true;
        in->depth -= c != ',';
    }
    return false;
}

static Status take_element(JsonScan *scan, JsonLine *line) {
    Inside in = {0};
    for (bool more;;) {
        TRY(refill(scan, &more));
        if (!more) return unexpected(scan, "',' or ']', but the file ends");
        size_t from = scan->at;
        bool ends = false;
        for (; scan->at < scan->size; scan->at++) {
            char *c = &scan->text[scan->at];
            ends = ends_at(&in, *c);
            if (ends) break;
            if (*c != '\n' && *c != '\r') continue;
            if (in.string) return unexpected(scan, "no line break in a string");
            *c = ' ';
        }
        TRY(put(scan, line, scan->text + from, scan->at - from));
        if (ends) return OK;
    }
}

static Status end_array(JsonScan *scan, bool *ret_more) {
    char c;
    scan->ended = true;
    *ret_more = false;
    TRY(peek(scan, &c));
    return c ? unexpected(scan, "nothing after the array") : OK;
}

static Status next_element(JsonScan *scan, JsonLine *line, bool *ret_more) {
    char c;
    bool first = !scan->begun;
    line->size = 0;
    scan->number++;
    if (scan->ended) return end_array(scan, ret_more);
    TRY(peek(scan, &c));
    if (first ? c != '[' : c != ',' && c != ']') return unexpected(scan, first ? "'['" : "',' or ']'");
    scan->begun = true;
    scan->at++;
    if (c == ']') return end_array(scan, ret_more);
    TRY(peek(scan, &c));
    if (first && c == ']') {
        scan->at++;
        return end_array(scan, ret_more);
    }
    if (c != '{') return unexpected(scan, "an object with fields");
    *ret_more = true;
    return take_element(scan, line);
}

Status json_scan_next(JsonScan *scan, JsonLine *line, bool *ret_more) {
    return scan->array ? next_element(scan, line, ret_more) : next_line(scan, line, ret_more);
}
