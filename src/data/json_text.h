/* Extracts the string in one field of a JSON line. The whole line is validated, but no other value
 * is built. */
#ifndef WEFT_DATA_JSON_TEXT_H
#define WEFT_DATA_JSON_TEXT_H

#include <stdint.h>

#include "base/status.h"

enum { JSON_TEXT_DEPTH = 1000 /* maximum nesting depth */ };

/* Result of a line; the buffer is reused. Initialize with zeros. */
typedef struct JsonText {
    const char *text; /* the string, in the line or in `memory`; NULL: the field is absent or not a string */
    size_t size;
    const char *found; /* not NULL: the field has this type ("a number") instead of a string */
    char *memory;
    size_t capacity;
} JsonText;

void json_text_done(JsonText *text);

/* Parses a line that must be an object. A syntax error names `file`, the `number` of the line, which messages
 * call a `unit`, the column (in bytes, from 1) and what was expected. */
MUST_USE Status json_text_read(JsonText *text, const char *line, size_t size, const char *field,
                               const char *file, const char *unit, int64_t number);

#endif
