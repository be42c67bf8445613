/* A stream of tokens: the contents of one or more files, one after the other, read at any place. Byte
 * files each end in the end token; files of token ids and shards follow each other as they are. */
#ifndef WEFT_DATA_STREAM_H
#define WEFT_DATA_STREAM_H

#include "data/data.h"
#include "data/source.h"

typedef struct TokenStream {
    DataFormat format; /* BYTES, U16, U32 or SHARDS */
    int64_t vocab;
    int count;
    Source *source;         /* (count) */
    TokenFile **token_file; /* (count) in its stead, for SHARDS */
    int64_t *first;         /* (count + 1) place of each source's first token; the last is the total */
    size_t capacity, token_file_capacity, first_capacity;
} TokenStream;

MUST_USE Status token_stream_init(TokenStream *ret_stream, const char *const *paths, int path_count,
                                  DataFormat format, int64_t vocab);
/* The same from shards or directories of them, which must be of one tokenizer: `expected`, called `name`,
 * where it is not NULL. */
MUST_USE Status token_stream_init_files(TokenStream *ret_stream, const char *const *paths, int path_count,
                                        int64_t vocab, const TokenizerId *expected, const char *name);
void token_stream_done(TokenStream *stream);

static inline int64_t token_stream_size(const TokenStream *stream) {
    return stream->first[stream->count];
}

/* The source that holds a place. */
int token_stream_find(const TokenStream *stream, int64_t at);
/* Tokens `at` .. `at + count - 1`, which must lie in the stream. A token outside the vocabulary is an
 * error that names its file and place. */
MUST_USE Status token_stream_read(const TokenStream *stream, int64_t at, int64_t count, int32_t *out);

/* ---- documents and sentences; data/stream_marks.c ---- */

/* Whether all of it are shards that mark sentences; the rest is for these alone. */
bool token_stream_marked(const TokenStream *stream);

/* Goes from document to document. */
typedef struct DocumentCursor {
    int token_file;
    int64_t index;
} DocumentCursor;
/* At the first that begins at token `at` or after it. */
MUST_USE Status document_cursor_at(const TokenStream *stream, int64_t at, DocumentCursor *ret_cursor);
/* Where that one begins, and on to the next; the stream's size after the last. */
MUST_USE Status document_cursor_next(const TokenStream *stream, DocumentCursor *cursor, int64_t *ret_start);
/* The end of the text of the document before token `next`: without the token that ends it. */
MUST_USE Status token_stream_text_end(const TokenStream *stream, int64_t next, int64_t *ret_end);

/* Adds the places of the sentences that begin at tokens from .. to - 1. */
MUST_USE Status token_stream_sentences(const TokenStream *stream, int64_t from, int64_t to, int64_t **start,
                                       size_t *capacity, size_t *count);
/* The same for a short range, as distances from `from`; `out` takes to - from numbers. */
MUST_USE Status token_stream_sentences_within(const TokenStream *stream, int64_t from, int64_t to,
                                              int32_t *out, int64_t *ret_count);

#endif
