/* Between the files of the Parquet reader: parquet_meta.c reads the footer, parquet_column.c the values of a
 * column, with parquet_pages.c, and parquet.c assembles them to rows. */
#ifndef WEFT_DATA_PARQUET_INTERNAL_H
#define WEFT_DATA_PARQUET_INTERNAL_H

#include <stdint.h>

#include "data/parquet_bits.h"
#include "data/thrift.h"
#include "data/zstd.h"

typedef enum ParquetType {
    PARQUET_BOOLEAN,
    PARQUET_INT32,
    PARQUET_INT64,
    PARQUET_INT96,
    PARQUET_FLOAT,
    PARQUET_DOUBLE,
    PARQUET_BYTES,
    PARQUET_FIXED, /* bytes of a fixed length */
    PARQUET_GROUP, /* has children instead of values */
} ParquetType;

typedef enum ParquetMeaning {
    MEANING_NONE,
    MEANING_TEXT,
    MEANING_LIST,
    MEANING_MAP,
    MEANING_UNSIGNED,
    MEANING_DECIMAL,
} ParquetMeaning;

/* An element of the schema. Elements are in preorder: children follow, each with its own descendants. */
typedef struct ParquetNode {
    char *name;
    ParquetType type;
    ParquetMeaning meaning;
    bool optional, repeated;
    int max_def, max_rep;   /* levels of a value that is present */
    size_t children, nodes; /* nodes: this element and all its descendants */
    size_t leaf, leaves;    /* the columns of values below it, or its own */
} ParquetNode;

/* A column's values in a row group. */
typedef struct ParquetChunk {
    int64_t at, size; /* in the file */
    int64_t values;
    int codec;
} ParquetChunk;

typedef struct ParquetFile {
    char *path;
    int fd;
    int64_t size;
    ParquetNode *node; /* [0] is the table */
    size_t nodes, node_capacity;
    size_t *leaf; /* (leaves) the index of each column's node */
    size_t leaves, leaf_capacity;
    int64_t *rows; /* of each row group */
    size_t groups, group_capacity;
    ParquetChunk *chunk; /* (groups, leaves) */
    size_t chunks, chunk_capacity;
    Zstd zstd;
} ParquetFile;

MUST_USE Status parquet_file_open(ParquetFile *ret_file, const char *path);
void parquet_file_done(ParquetFile *file);
/* Reads bytes of the file, which must have them. */
MUST_USE Status parquet_read(const ParquetFile *file, int64_t at, size_t size, void *to);

/* The values of a page, in one of the encodings. */
typedef enum ParquetEncoding {
    ENCODING_PLAIN = 0,
    ENCODING_PLAIN_DICTIONARY = 2,
    ENCODING_RLE = 3,
    ENCODING_BIT_PACKED = 4,
    ENCODING_DELTA = 5,
    ENCODING_DELTA_LENGTH = 6,
    ENCODING_DELTA_BYTES = 7,
    ENCODING_DICTIONARY = 8,
    ENCODING_SPLIT = 9,
} ParquetEncoding;

typedef struct ParquetValue {
    int64_t integer; /* also booleans */
    double real;
    const char *bytes; /* valid until the next value is taken */
    size_t size;
} ParquetValue;

typedef struct ParquetColumn {
    ParquetFile *file;
    const ParquetNode *leaf;
    size_t index;
    ParquetChunk chunk;
    int64_t at;          /* in the file: the next page */
    int64_t values_left; /* in the chunk, after this page */
    unsigned char *raw, *page, *dictionary;
    size_t raw_capacity, page_capacity, dictionary_capacity, dictionary_size;
    size_t *start; /* of each entry in the dictionary, and the end of the last */
    size_t start_capacity;
    uint64_t entries;
    /* the page: levels and values to come */
    int64_t left;
    RunReader rep, def, number; /* number: in the dictionary, or booleans */
    ParquetEncoding encoding;
    const unsigned char *value, *value_end;
    uint64_t bit; /* plain booleans */
    DeltaReader delta, suffix;
    char *text; /* ENCODING_DELTA_BYTES: the last value */
    size_t text_size, text_capacity;
    /* the next value */
    bool loaded, ended;
    int next_rep, next_def;
} ParquetColumn;

void parquet_column_done(ParquetColumn *column);
/* Starts with a row group. */
MUST_USE Status parquet_column_begin(ParquetColumn *column, size_t group);
/* Makes next_rep and next_def those of the next value; `ended`: there is none. */
MUST_USE Status parquet_column_peek(ParquetColumn *column);
/* Takes the value that was peeked at. If its level is that of a value that is present, *ret_value is set. */
MUST_USE Status parquet_column_take(ParquetColumn *column, ParquetValue *ret_value);
/* Reads the next page of the chunk, into `left` and what follows it; `ended`: there is none. */
MUST_USE Status parquet_page_next(ParquetColumn *column);
/* Prepares for values of the encodings ENCODING_DELTA_LENGTH and ENCODING_DELTA_BYTES. */
MUST_USE Status parquet_texts_begin(ParquetColumn *column);
MUST_USE Status parquet_damaged(const ParquetColumn *column, const char *what);

#endif
