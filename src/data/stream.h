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
    Source *source; /* (count) */
    Shard **shard;  /* (count) in its stead, for SHARDS */
    int64_t *first; /* (count + 1) place of each source's first token; the last is the total */
    size_t capacity, shard_capacity, first_capacity;
} TokenStream;

MUST_USE Status token_stream_init(TokenStream *ret_stream, const char *const *paths, int path_count,
                                  DataFormat format, int64_t vocab);
/* The same from shards or directories of them, which must be of one tokenizer: `expected`, called `name`,
 * where it is not NULL. */
MUST_USE Status token_stream_init_shards(TokenStream *ret_stream, const char *const *paths, int path_count,
                                         int64_t vocab, const TokenizerId *expected, const char *name);
void token_stream_done(TokenStream *stream);

static inline int64_t token_stream_size(const TokenStream *stream) {
    return stream->first[stream->count];
}

/* Tokens `at` .. `at + count - 1`, which must lie in the stream. A token outside the vocabulary is an
 * error that names its file and place. */
MUST_USE Status token_stream_read(const TokenStream *stream, int64_t at, int64_t count, int32_t *out);

#endif
