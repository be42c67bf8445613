/* The rows of comma- or tab-separated values in memory, field by field. Quoted fields (RFC 4180; in values
 * separated by commas only) may contain separators, newlines and doubled quotes. Blank lines are skipped. */
#ifndef WEFT_DATA_SEPARATED_H
#define WEFT_DATA_SEPARATED_H

#include <stdint.h>

#include "base/status.h"

enum { SEPARATED_NAMES = 256 };

/* The fields of a row, unquoted, are in a buffer that is reused for every row. Initialize the first line of
 * members, the others with zeros. */
typedef struct Separated {
    const char *name, *at, *end; /* for messages; the text that is left */
    int64_t line;                /* number of the next line */
    char separator;
    char *text;
    size_t size, capacity;
    size_t *stop; /* end of each field in `text` */
    size_t fields, stop_capacity;
} Separated;

void separated_done(Separated *rows);
/* Reads the next row; *ret_line is its first line, and *ret_more is false at the end. */
MUST_USE Status separated_next(Separated *rows, int64_t *ret_line, bool *ret_more);
/* A field of the current row, valid until the next one is read; not terminated. */
const char *separated_field(const Separated *rows, size_t index, size_t *ret_size);
/* The first field of the current row that equals the name; `fields` if none does. */
size_t separated_find(const Separated *rows, const char *name);
/* The first fields of the current row, for messages. */
void separated_names(const Separated *rows, char names[SEPARATED_NAMES]);

#endif
