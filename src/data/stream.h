/* A token stream: the concatenated tokens of one or more files, with random access. Every byte file is
 * followed by the end token; files of token ids and token files are concatenated as they are. */
#ifndef WEFT_DATA_STREAM_H
#define WEFT_DATA_STREAM_H

#include "data/data.h"
#include "data/source.h"

typedef struct TokenStream {
    DataFormat format; /* BYTES, U16, U32 or TOKENS */
    int64_t vocab;
    int count;
    Source *source;         /* (count) unless the format is TOKENS */
    TokenFile **token_file; /* (count) if the format is TOKENS */
    int64_t *first; /* (count + 1) stream offset of each file's first token; the last entry is the total */
    size_t capacity, token_file_capacity, first_capacity;
} TokenStream;

MUST_USE Status token_stream_init(TokenStream *ret_stream, const char *const *paths, int path_count,
                                  DataFormat format, int64_t vocab);
/* Like token_stream_init, from token files or directories of them. They must all come from one tokenizer
 * and, if `expected` is not NULL, from that one, which messages call `name`. */
MUST_USE Status token_stream_init_files(TokenStream *ret_stream, const char *const *paths, int path_count,
                                        int64_t vocab, const TokenizerId *expected, const char *name);
void token_stream_done(TokenStream *stream);

static inline int64_t token_stream_size(const TokenStream *stream) {
    return stream->first[stream->count];
}

/* Index of the file that contains token `at`. */
int token_stream_find(const TokenStream *stream, int64_t at);
/* Reads tokens `at` .. `at + count - 1`, which must be in the stream. A token outside the vocabulary is an
 * error that names its file and offset. */
MUST_USE Status token_stream_read(const TokenStream *stream, int64_t at, int64_t count, int32_t *out);

/* ---- documents and sentences; data/stream_marks.c ---- */

/* Whether the stream consists of token files that all mark sentences. The functions below require this. */
bool token_stream_marked(const TokenStream *stream);

/* Iterates over documents. */
typedef struct DocumentCursor {
    int token_file;
    int64_t index;
} DocumentCursor;
/* Positions the cursor at the first document that begins at or after token `at`. */
MUST_USE Status document_cursor_at(const TokenStream *stream, int64_t at, DocumentCursor *ret_cursor);
/* Returns where the cursor's document begins and advances to the next; returns the stream size after the last
 * one. */
MUST_USE Status document_cursor_next(const TokenStream *stream, DocumentCursor *cursor, int64_t *ret_start);
/* End of the text of the document that precedes token `next`, without its end token. */
MUST_USE Status token_stream_text_end(const TokenStream *stream, int64_t next, int64_t *ret_end);

/* Appends the offsets of the sentences that begin at tokens from .. to - 1 to the growing array *start. */
MUST_USE Status token_stream_sentences(const TokenStream *stream, int64_t from, int64_t to, int64_t **start,
                                       size_t *capacity, size_t *count);
/* The same for a short range, as offsets relative to `from`; `out` has space for to - from entries. */
MUST_USE Status token_stream_sentences_within(const TokenStream *stream, int64_t from, int64_t to,
                                              int32_t *out, int64_t *ret_count);

#endif
