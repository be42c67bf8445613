/* Reads Parquet tables row by row, as JSON objects.
 *
 * Columns of booleans, integers, floating-point numbers and strings, at any depth of lists, structs and maps
 * (a list of objects with "key" and "value"); missing values are null, and numbers that are not finite, too.
 * Dates and times are the integers that the file has. Pages may be of either version, plain, with a
 * dictionary or as differences, and stored, or compressed with Snappy, gzip or zstd. Other columns, encodings
 * and compressions are refused by name.
 *
 * Memory is one page of each column that is read. Files are not trusted: every size is checked before use.
 */
#ifndef WEFT_DATA_PARQUET_H
#define WEFT_DATA_PARQUET_H

#include "data/json_line.h"

typedef struct Parquet Parquet;

/* Whether a file begins like a Parquet table. */
bool parquet_begins(const void *start, size_t size);
/* Opens a table to read the `count` named columns, which must exist; 0: all that weft can read. */
MUST_USE Status parquet_open(Parquet **ret_table, const char *path, const char *const *names, int count);
void parquet_free(Parquet *table);
DEFINE_FREEP(Parquet, parquet)

/* Replaces `line` by the next row; *ret_more is false if there is none. */
MUST_USE Status parquet_next(Parquet *table, JsonLine *line, bool *ret_more);
/* Name of a column of the table, whether it is read or not; NULL past the end. */
const char *parquet_column(const Parquet *table, size_t index);
/* Bytes of the file behind the current row, estimated. */
int64_t parquet_used(const Parquet *table);

#endif
