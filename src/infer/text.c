/* A stop string is searched for at the end of the text after each byte added, so the earliest match wins. */
#include "infer/text.h"

#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "data/token_file.h"

/* ---- the tokenizer of a model ---- */

static Status check_vocab(const char *dir, const ModelConfig *config, const char *name,
                          const Tokenizer *tokenizer) {
    if (tokenizer_fits(tokenizer_vocab(tokenizer), config->vocab)) return OK;
    return USAGE(
        "the tokenizer %s (%lld tokens) does not match the model %s, whose vocabulary has %lld; a model "
        "may have up to %d extra tokens, for padding",
        name, (long long)tokenizer_vocab(tokenizer), dir, (long long)config->vocab, VOCAB_PADDING - 1);
}

/* A padded byte vocabulary is recognized by its end token. */
static bool is_byte_vocab(const ModelConfig *config) {
    return config->vocab == BYTE_VOCAB_GPT2 ||
           (config->eos_token == BYTE_END && config->vocab > BYTE_VOCAB_GPT2 &&
            config->vocab < BYTE_VOCAB_GPT2 + BYTE_PADDING);
}

Status text_tokenizer(const char *dir, const ModelConfig *config, const char *name,
                      Tokenizer **ret_tokenizer) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    bool asked = name != NULL;
    if (!name && tokenizer_exists(dir)) name = dir;
    bool bytes = name ? !strcmp(name, "bytes") && !path_exists(name) : is_byte_vocab(config);
    if (bytes)
        TRY(tokenizer_new_bytes(&tokenizer, false));
    else if (name)
        TRY(tokenizer_load(&tokenizer, name));
    if (name) TRY(check_vocab(dir, config, name, tokenizer));
    if (asked && tokenizer_exists(dir)) {
        TokenizerId id = tokenizer_id(tokenizer);
        TRY(tokenizer_id_check(&id, name, dir));
    }
    return MOVE(ret_tokenizer, tokenizer);
}

/* ---- stop strings ---- */

Status stop_strings_check(const StopStrings *stops) {
    for (int i = 0; i < stops->count; i++) {
        const char *text = stops->texts[i];
        if (!*text) return USAGE("stop string %d is empty", i + 1);
        CLEANUP(mem_freep) char *utf8 = NULL;
        size_t size;
        TRY(text_to_utf8(text, strlen(text), &utf8, &size));
        if (strcmp(utf8, text))
            return USAGE("stop string %d is not valid UTF-8, so it can never match", i + 1);
    }
    return OK;
}

/* The longest stop string that ends at `end`; -1: no match. */
static int stop_ending_at(const TextStream *stream, size_t end) {
    int found = -1;
    size_t longest = 0;
    for (int i = 0; i < stream->stops.count; i++) {
        size_t size = strlen(stream->stops.texts[i]);
        if (size <= longest || size > end - stream->prompt_size) continue;
        if (memcmp(stream->text + end - size, stream->stops.texts[i], size)) continue;
        longest = size;
        found = i;
    }
    return found;
}

/* Number of bytes at the end of the new text that could be the start of `stop`. */
static size_t partial_match(const TextStream *stream, const char *stop) {
    size_t size = strlen(stop) - 1, fresh = stream->size - stream->prompt_size;
    if (size > fresh) size = fresh;
    while (size && memcmp(stream->text + stream->size - size, stop, size)) size--;
    return size;
}

/* ---- the stream ---- */

Status text_stream_init(TextStream *stream, const Tokenizer *tokenizer, const StopStrings *stops,
                        bool skip_special) {
    *stream = (TextStream){.vocab = tokenizer_vocab(tokenizer), .stops = *stops, .stop = -1};
    return decoder_new(&stream->decoder, tokenizer, skip_special);
}

void text_stream_done(TextStream *stream) {
    decoder_free(stream->decoder);
    free(stream->text);
}

static Status append(TextStream *stream, const char *piece, size_t size) {
    TRY(mem_grow(&stream->text, &stream->capacity, stream->size + size, 1));
    if (size) memcpy(stream->text + stream->size, piece, size);
    stream->size += size;
    return OK;
}

/* Searches for stop strings in the text added since `from`, and updates final_size. */
static void find_stop(TextStream *stream, size_t from) {
    for (size_t end = from + 1; end <= stream->size; end++) {
        stream->stop = stop_ending_at(stream, end);
        if (stream->stop < 0) continue;
        stream->size = stream->final_size = end - strlen(stream->stops.texts[stream->stop]);
        return;
    }
    size_t pending = 0;
    for (int i = 0; i < stream->stops.count; i++) {
        size_t size = partial_match(stream, stream->stops.texts[i]);
        if (size > pending) pending = size;
    }
    stream->final_size = stream->size - pending;
}

Status text_stream_prompt(TextStream *stream, const int32_t *ids, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const char *piece;
        size_t size;
        if (ids[i] >= stream->vocab) continue;
        TRY(decoder_push(stream->decoder, ids[i], &piece, &size));
        TRY(append(stream, piece, size));
    }
    stream->prompt_size = stream->final_size = stream->size;
    return OK;
}

Status text_stream_push(TextStream *stream, int32_t id) {
    if (stream->stop >= 0 || id >= stream->vocab) return OK;
    const char *piece;
    size_t size, from = stream->size;
    TRY(decoder_push(stream->decoder, id, &piece, &size));
    TRY(append(stream, piece, size));
    find_stop(stream, from);
    return OK;
}

Status text_stream_end(TextStream *stream) {
    if (stream->stop >= 0) return OK;
    const char *piece;
    size_t size, from = stream->size;
    TRY(decoder_end(stream->decoder, &piece, &size));
    TRY(append(stream, piece, size));
    find_stop(stream, from);
    stream->final_size = stream->size;
    return OK;
}
