#include "data/reader.h"

#include <string.h>

bool text_is_blank(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r' && text[i] != '\n') return false;
    return true;
}

static bool blank_before(const char *text, size_t at, bool starts) {
    const char *newline = at > 1 ? memrchr(text, '\n', at - 1) : NULL;
    if (!newline && !starts) return false;
    size_t from = newline ? (size_t)(newline - text) + 1 : 0;
    return text_is_blank(text + from, at - from);
}

static bool blank_after(const char *text, size_t size) {
    const char *newline = memchr(text, '\n', size);
    return newline && text_is_blank(text, (size_t)(newline - text));
}

bool title_at(const char *text, size_t size, size_t at, bool starts) {
    const char *line = text + at, *newline = NULL;
    if (size - at < 8 || memcmp(line, " = ", 3) || line[3] == '=') return false;
    newline = memchr(line, '\n', size - at);
    if (!newline) return false;
    size_t length = (size_t)(newline - line);
    if (length && line[length - 1] == '\r') length--;
    if (length < 7 || memcmp(line + length - 3, " = ", 3) || line[length - 4] == '=') return false;
    return blank_before(text, at, starts) && blank_after(newline + 1, size - (size_t)(newline + 1 - text));
}
