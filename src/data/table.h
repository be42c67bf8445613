/* Rows with named fields, from comma-separated values (RFC 4180), tab-separated values and JSON lines.
 *
 *   .csv    fields may be quoted, and then hold commas, newlines and, doubled, quotes
 *   .tsv    fields as they are, without quoting
 *   .jsonl  (.ndjson) each line is an object; a field is a string, a number or a truth value
 * In .csv and .tsv the first row names the fields. A file whose fields are asked for by number ("1" is the
 * first) has no such row.
 */
#ifndef WEFT_DATA_TABLE_H
#define WEFT_DATA_TABLE_H

#include "data/source.h"

enum { TABLE_FIELDS = 4 /* that can be asked for at once */, TABLE_LINE_LIMIT = 64 << 20 };

typedef struct TableField {
    const char *text; /* NULL: not asked for */
    size_t size;
} TableField;

/* `line` is where the row begins, from 1. The texts are valid until the function returns. */
typedef Status (*TableRow)(void *context, int64_t line, const TableField *fields);

/* Calls `func` with the fields of each row, in order. A name that is NULL is not asked for; one that is must
 * be there. What is wrong is an error that names file, line and what was expected; texts are valid UTF-8. */
MUST_USE Status table_read(const Source *source, const char *const *names, int count, TableRow func,
                           void *context);
/* Whether a name stands for one of the three. */
bool table_is_one(const char *path);

#endif
