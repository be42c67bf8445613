/* Reads rows with named fields from comma-separated values (RFC 4180), tab-separated values and JSON lines.
 *
 *   .csv    fields may be quoted; quoted fields may contain commas, newlines and doubled quotes
 *   .tsv    fields are taken literally, without quoting
 *   .jsonl  (.ndjson) each line is an object; a field is a string, a number or a boolean
 * In .csv and .tsv files the first row names the fields, unless all fields are requested by number ("1" is
 * the first); then there is no header row.
 */
#ifndef WEFT_DATA_TABLE_H
#define WEFT_DATA_TABLE_H

#include "data/source.h"

enum { TABLE_FIELDS = 4 /* maximum number of requested fields */, TABLE_LINE_LIMIT = 64 << 20 };

typedef struct TableField {
    const char *text; /* NULL: not requested */
    size_t size;
} TableField;

/* `line` is the first line of the row, from 1. The field texts are valid until the function returns. */
typedef Status (*TableRow)(void *context, int64_t line, const TableField *fields);

/* Calls `func` with the requested fields of each row, in order. NULL names are skipped; all others must
 * exist. An error names the file, the line and what was expected. Field texts are valid UTF-8. */
MUST_USE Status table_read(const Source *source, const char *const *names, int count, TableRow func,
                           void *context);
/* Whether the file name has one of the three suffixes. */
bool path_is_table(const char *path);

#endif
