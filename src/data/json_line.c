#include "data/json_line.h"

#include <string.h>

#include "base/memory.h"

void json_line_done(JsonLine *line) {
    free(line->text);
    *line = (JsonLine){0};
}

Status json_line_put(JsonLine *line, const char *text, size_t size) {
    if (size > READER_LINE_LIMIT - line->size)
        return FAILED("longer than %d bytes, the limit for a row", READER_LINE_LIMIT);
    TRY(mem_grow(&line->text, &line->capacity, line->size + size + 1, 1));
    if (size) memcpy(line->text + line->size, text, size);
    line->size += size;
    return OK;
}

static bool is_plain(char c) {
    return (unsigned char)c >= ' ' && c != '"' && c != '\\';
}

static Status put_escape(JsonLine *line, char c) {
    char escape[8];
    const char *at = strchr("\"\"\\\\\nn\tt\rr", c);
    if (c && at)
        snprintf(escape, sizeof escape, "\\%c", at[1]);
    else
        snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unsigned char)c);
    return json_line_put(line, escape, strlen(escape));
}

Status json_line_string(JsonLine *line, const char *text, size_t size) {
    TRY(json_line_put(line, "\"", 1));
    for (size_t at = 0; at < size;) {
        size_t end = at;
        while (end < size && is_plain(text[end])) end++;
        TRY(json_line_put(line, text + at, end - at));
        if (end < size) TRY(put_escape(line, text[end]));
        at = end + 1;
    }
    return json_line_put(line, "\"", 1);
}

Status json_line_name(JsonLine *line, const char *name, size_t size, bool first) {
    if (!first) TRY(json_line_put(line, ",", 1));
    TRY(json_line_string(line, name, size));
    return json_line_put(line, ":", 1);
}
