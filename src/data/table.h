/* Reads rows with named fields from comma-separated values (RFC 4180), tab-separated values and JSON lines.
 *
 *   .csv    fields may be quoted; quoted fields may contain commas, newlines and doubled quotes
 *   .tsv    fields are taken literally, without quoting
 *   .jsonl  (.ndjson) each line is an object; a field is a string, a number or a boolean, or a list where the
 *           caller accepts lists
 * In .csv and .tsv files the first row names the fields, unless all fields are requested by number ("1" is
 * the first); then there is no header row.
 */
#ifndef WEFT_DATA_TABLE_H
#define WEFT_DATA_TABLE_H

#include "base/json.h"
#include "data/source.h"

enum {
    TABLE_LABELS = 64,               /* maximum number of label fields */
    TABLE_FIELDS = 3 + TABLE_LABELS, /* maximum number of requested fields */
    TABLE_LINE_LIMIT = 64 << 20
};

typedef struct TableField {
    const char *text; /* NULL: not requested, or a list */
    size_t size;
    const json_t *list; /* JSON lines: the value if it is a list; else NULL */
    bool bare;          /* JSON lines: a number or a boolean */
} TableField;

/* `line` is the first line of the row, from 1. The field texts are valid until the function returns. */
typedef Status (*TableRow)(void *context, int64_t line, const TableField *fields);

/* Calls `func` with the requested fields of each row, in order. NULL names are skipped; all others must
 * exist. An error names the file, the line and what was expected. Field texts are valid UTF-8. */
MUST_USE Status table_read(const Source *source, const char *const *names, int count, TableRow func,
                           void *context);

typedef struct TableSpec {
    const char *const *names;
    int count;
    int lists_from;          /* in JSON lines, fields from this one on may be lists */
    bool json;               /* JSON lines, whatever the file's name is */
    int optional;            /* number of fields at the end of `names` that a table may lack */
    const char *settings[3]; /* that choose the first, the second and all other names; NULL: none does */
} TableSpec;
/* Like table_read, for fields that may be lists. */
MUST_USE Status table_read_lists(const Source *source, const TableSpec *spec, TableRow func, void *context);
/* The list in a field, or NULL. In .csv and .tsv files it is JSON text, such as [0, 1]; *ret_parsed then owns
 * it, and the caller releases it. */
const json_t *table_list(TableField field, json_t **ret_parsed);
/* Whether the file name has one of the three suffixes. */
bool path_is_table(const char *path);

#endif
