/* The rows of a file as JSON objects, in order and in bounded memory, whichever of these formats it has:
 *
 *   JSON lines   .jsonl, .ndjson; each line
 *   JSON array   each element; recognized by content, except in .txt files
 *   .csv, .tsv   each row, as strings that the first row names; the file is read into memory
 *   Parquet      each row (data/parquet.h); recognized by content
 *
 * All but Parquet may be gzip-compressed. A row is one line of JSON; rows_next_json parses it.
 */
#ifndef WEFT_DATA_ROWS_H
#define WEFT_DATA_ROWS_H

#include "base/json.h"

typedef enum RowsKind { ROWS_NONE, ROWS_LINES, ROWS_ARRAY, ROWS_CSV, ROWS_TSV, ROWS_PARQUET } RowsKind;

/* The kind that a file's name and first bytes (after decompression, with a NUL) show. */
RowsKind rows_kind(const char *path, const char *start, size_t size);

typedef struct Rows Rows;

/* Opens a file; one that is none of the kinds is an error. In tables (.csv, .tsv, Parquet), rows have only
 * the `count` named fields, which must exist; 0: all fields that weft can read. */
MUST_USE Status rows_open(Rows **ret_rows, const char *path, const char *const *fields, int count);
void rows_free(Rows *rows);
DEFINE_FREEP(Rows, rows)

/* The next row, without a newline at its end, valid until the next call; NULL: there is none. Rows of JSON
 * files are not validated. */
MUST_USE Status rows_next(Rows *rows, const char **ret_text, size_t *ret_size);
/* The next row, parsed and owned by the caller; NULL: there is none. Anything but an object is an error. */
MUST_USE Status rows_next_json(Rows *rows, json_t **ret_row);
/* What messages call the last row: "row" or, in JSON lines, "line", and its number. */
const char *rows_unit(const Rows *rows);
int64_t rows_number(const Rows *rows);
/* Bytes of the file consumed so far, for progress. */
int64_t rows_used(const Rows *rows);

/* An object that has the file's fields: the columns of a table, with null values, or the first row of a JSON
 * file; NULL if it has no rows. */
MUST_USE Status rows_fields(const char *path, json_t **ret_fields);
/* Adds all remaining rows to a buffer as JSON lines, up to `limit` bytes. */
MUST_USE Status rows_read_all(Rows *rows, size_t limit, char **ret_text, size_t *ret_size);

#endif
