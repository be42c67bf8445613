/* A growing line of JSON, for readers that turn rows of other formats into JSON lines. Initialize with zeros.
 */
#ifndef WEFT_DATA_JSON_LINE_H
#define WEFT_DATA_JSON_LINE_H

#include "base/status.h"
#include "data/reader.h"

typedef struct JsonLine {
    char *text;
    size_t size, capacity;
} JsonLine;

void json_line_done(JsonLine *line);
/* Appends bytes of JSON. Fails if the line exceeds READER_LINE_LIMIT, whatever a hostile file asks for. */
MUST_USE Status json_line_put(JsonLine *line, const char *text, size_t size);
/* Appends a string, quoted. The bytes must be valid UTF-8. */
MUST_USE Status json_line_string(JsonLine *line, const char *text, size_t size);
/* Appends `"name":`, after a comma unless `first`. */
MUST_USE Status json_line_name(JsonLine *line, const char *name, size_t size, bool first);

#endif
