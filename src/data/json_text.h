/* The text of one field of a line of JSON, fast: the line is checked from end to end, but nothing is built
 * from it beside that text. */
#ifndef WEFT_DATA_JSON_TEXT_H
#define WEFT_DATA_JSON_TEXT_H

#include <stdint.h>

#include "base/status.h"

enum { JSON_TEXT_DEPTH = 1000 /* of values in values */ };

/* Memory that is used again from line to line; start with zeroes. */
typedef struct JsonText {
    const char *text; /* the field's, NULL: the object has none; in the line, or in `memory` */
    size_t size;
    const char *found; /* not NULL: the field holds no text but this ("a number") */
    char *memory;
    size_t capacity;
} JsonText;

void json_text_done(JsonText *text);

/* Reads the object that the line must be. What is wrong with it is an error that names `file`, the line's
 * number, the column (in bytes, from 1) and what was expected. */
MUST_USE Status json_text_read(JsonText *text, const char *line, size_t size, const char *field,
                               const char *file, int64_t number);

#endif
