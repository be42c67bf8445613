/* Between rows.c and the readers of its kinds. */
#ifndef WEFT_DATA_ROWS_INTERNAL_H
#define WEFT_DATA_ROWS_INTERNAL_H

#include "data/input.h"
#include "data/json_line.h"

/* Scans a JSON file for its values. Bytes before `at` are consumed. */
typedef struct JsonScan {
    const char *path;
    Input *input;
    char *text;
    size_t at, size;
    bool array;     /* else lines */
    bool begun;     /* the array's opening bracket is behind */
    bool ended;     /* so is its closing one */
    int64_t number; /* of the last row */
} JsonScan;

MUST_USE Status json_scan_open(JsonScan *scan, const char *path, bool array);
void json_scan_done(JsonScan *scan);
/* Replaces `line` by the next value; *ret_more is false if there is none. */
MUST_USE Status json_scan_next(JsonScan *scan, JsonLine *line, bool *ret_more);

#endif
