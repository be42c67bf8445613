#include "data/stream.h"

#include <endian.h>
#include <string.h>

#include "base/memory.h"
#include "data/corpus.h"

static size_t token_width(DataFormat format) {
    return format == FORMAT_U32 ? 4 : format == FORMAT_U16 ? 2 : 1;
}

/* Number of tokens in a source, including the end token of a byte file. */
static Status source_tokens(const Source *source, DataFormat format, int64_t *ret_count) {
    size_t width = token_width(format);
    if (source->size % width)
        return FAILED("%s is %zu bytes long; expected a multiple of %zu because its tokens are u%zu",
                      source->name, source->size, width, width * 8);
    *ret_count = (int64_t)(source->size / width) + (format == FORMAT_BYTES);
    return OK;
}

/* Registers one more source with this number of tokens. */
static Status add_tokens(TokenStream *stream, int64_t tokens) {
    size_t need = (size_t)stream->count + 1;
    TRY(mem_grow(&stream->first, &stream->first_capacity, need + 1, sizeof *stream->first));
    stream->first[need] = stream->first[need - 1] + tokens;
    stream->count++;
    return OK;
}

/* Appends `source` and takes ownership. */
static Status add_source(TokenStream *stream, Source *source) {
    int64_t tokens = 0;
    TRY(source_tokens(source, stream->format, &tokens));
    TRY(mem_grow(&stream->source, &stream->capacity, (size_t)stream->count + 1, sizeof *stream->source));
    TRY(add_tokens(stream, tokens));
    stream->source[stream->count - 1] = *source;
    *source = (Source){0};
    return OK;
}

static Status add_corpus(TokenStream *stream) {
    if (stream->format != FORMAT_BYTES)
        return USAGE("the corpus 'self' is text; read it with {format} bytes");
    for (size_t place = 0; !corpus_ends(place);) {
        CLEANUP(source_done) Source source = {0};
        TRY(corpus_next(&source, &place));
        TRY(add_source(stream, &source));
    }
    return OK;
}

Status token_stream_init(TokenStream *ret_stream, const char *const *paths, int path_count, DataFormat format,
                         int64_t vocab) {
    CLEANUP(token_stream_done) TokenStream stream = {.format = format, .vocab = vocab};
    if (format == FORMAT_BYTES && vocab <= BYTE_END)
        return USAGE("byte data needs a vocabulary of at least %d (256 bytes and the end token), but the "
                     "model's has %lld",
                     BYTE_END + 1, (long long)vocab);
    for (int i = 0; i < path_count; i++) {
        CLEANUP(source_done) Source source = {0};
        if (corpus_is_named(paths[i])) {
            TRY(add_corpus(&stream));
        } else {
            TRY(source_init(&source, paths[i], SOURCE_GZ_LIMIT));
            source_advise_random(&source);
            TRY(add_source(&stream, &source));
        }
    }
    return MOVE(ret_stream, stream);
}

static Status check_tokenizer(const TokenStream *stream, const TokenFile *token_file,
                              const TokenizerId *expected, const char *name) {
    const TokenizerId *id = &token_file_info(token_file)->tokenizer;
    if (!expected && stream->count) {
        expected = &token_file_info(stream->token_file[0])->tokenizer;
        name = token_file_path(stream->token_file[0]);
    }
    char has[TOKENIZER_ID_TEXT], wants[TOKENIZER_ID_TEXT];
    if (expected && !tokenizer_id_same(id, expected))
        return USAGE("%s was prepared with a different tokenizer (%s) than %s (%s)",
                     token_file_path(token_file), tokenizer_id_text(id, has), name,
                     tokenizer_id_text(expected, wants));
    if (id->vocab > stream->vocab)
        return USAGE("%s has a vocabulary of %lld tokens, but the model's has %lld",
                     token_file_path(token_file), (long long)id->vocab, (long long)stream->vocab);
    return OK;
}

static Status verify_small(const TokenStream *stream) {
    size_t bytes = 0;
    for (int i = 0; i < stream->count; i++) bytes += token_file_bytes(stream->token_file[i]);
    for (int i = 0; i < stream->count && bytes <= TOKEN_FILES_VERIFIED; i++)
        TRY(token_file_verify(stream->token_file[i]));
    return OK;
}

Status token_stream_init_files(TokenStream *ret_stream, const char *const *paths, int path_count,
                               int64_t vocab, const TokenizerId *expected, const char *name) {
    CLEANUP(token_stream_done) TokenStream stream = {.format = FORMAT_TOKENS, .vocab = vocab};
    CLEANUP(token_file_list_done) TokenFileList list = {0};
    for (int i = 0; i < path_count; i++) TRY(token_file_list_add(&list, paths[i]));
    for (size_t i = 0; i < list.count; i++) {
        CLEANUP(token_file_freep) TokenFile *token_file = NULL;
        TRY(token_file_open(&token_file, list.path[i]));
        TRY(check_tokenizer(&stream, token_file, expected, name));
        TRY(mem_grow(&stream.token_file, &stream.token_file_capacity, i + 1, sizeof *stream.token_file));
        TRY(add_tokens(&stream, token_file_info(token_file)->tokens));
        stream.token_file[i] = token_file;
        token_file = NULL;
    }
    TRY(verify_small(&stream));
    return MOVE(ret_stream, stream);
}

void token_stream_done(TokenStream *stream) {
    for (int i = 0; i < stream->count; i++)
        if (stream->token_file)
            token_file_free(stream->token_file[i]);
        else
            source_done(&stream->source[i]);
    free(stream->token_file);
    free(stream->source);
    free(stream->first);
    *stream = (TokenStream){0};
}

static uint32_t token_at(const Source *source, DataFormat format, int64_t at) {
    if (format == FORMAT_U32) {
        uint32_t wide;
        memcpy(&wide, source->data + at * 4, 4);
        return le32toh(wide);
    }
    uint16_t narrow;
    memcpy(&narrow, source->data + at * 2, 2);
    return le16toh(narrow);
}

static Status read_ids(const TokenStream *stream, const Source *source, int64_t at, int64_t count,
                       int32_t *out) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t token = token_at(source, stream->format, at + i);
        if (token >= (uint64_t)stream->vocab)
            return FAILED("%s: the token at byte %lld is %lu; expected 0 to %lld", source->name,
                          (long long)((at + i) * (int64_t)token_width(stream->format)), (unsigned long)token,
                          (long long)stream->vocab - 1);
        out[i] = (int32_t)token;
    }
    return OK;
}

static void read_bytes(const Source *source, int64_t at, int64_t count, int32_t *out) {
    int64_t bytes = (int64_t)source->size - at < count ? (int64_t)source->size - at : count;
    for (int64_t i = 0; i < bytes; i++) out[i] = source->data[at + i];
    if (bytes < count) out[bytes] = BYTE_END;
}

int token_stream_find(const TokenStream *stream, int64_t at) {
    int low = 0, high = stream->count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (stream->first[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

Status token_stream_read(const TokenStream *stream, int64_t at, int64_t count, int32_t *out) {
    for (int i = token_stream_find(stream, at); count > 0; i++) {
        int64_t inside = at - stream->first[i];
        int64_t here = stream->first[i + 1] - at < count ? stream->first[i + 1] - at : count;
        if (stream->format != FORMAT_TOKENS) TRY(source_check(&stream->source[i]));
        if (stream->format == FORMAT_TOKENS)
            TRY(token_file_read(stream->token_file[i], inside, here, out));
        else if (stream->format == FORMAT_BYTES)
            read_bytes(&stream->source[i], inside, here, out);
        else
            TRY(read_ids(stream, &stream->source[i], inside, here, out));
        at += here;
        out += here;
        count -= here;
    }
    return OK;
}
