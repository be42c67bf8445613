#include "infer/text.h"

#include <string.h>

#include "base/fs.h"
#include "base/memory.h"

/* ---- the tokenizer of a model ---- */

static Status check_vocab(const char *dir, const ModelConfig *config, const char *name,
                          const Tokenizer *tokenizer) {
    if (tokenizer_fits(tokenizer_vocab(tokenizer), config->vocab)) return OK;
    return USAGE("the tokenizer %s has %lld tokens, which does not go with the model %s, whose vocabulary is "
                 "%lld: expected as many, or up to %d more for padding",
                 name, (long long)tokenizer_vocab(tokenizer), dir, (long long)config->vocab,
                 VOCAB_PADDING - 1);
}

/* A byte vocabulary may be padded; then its end token still tells. */
static bool speaks_bytes(const ModelConfig *config) {
    return config->vocab == BYTE_VOCAB_GPT2 ||
           (config->eos_token == BYTE_END && config->vocab > BYTE_VOCAB_GPT2 &&
            config->vocab < BYTE_VOCAB_GPT2 + BYTE_PADDING);
}

Status text_tokenizer(const char *dir, const ModelConfig *config, const char *name,
                      Tokenizer **ret_tokenizer) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    if (!name && tokenizer_is_there(dir)) name = dir;
    bool bytes = name ? !strcmp(name, "bytes") && !path_exists(name) : speaks_bytes(config);
    if (bytes)
        TRY(tokenizer_new_bytes(&tokenizer, false));
    else if (name)
        TRY(tokenizer_load(&tokenizer, name));
    if (name) TRY(check_vocab(dir, config, name, tokenizer));
    *ret_tokenizer = tokenizer;
    tokenizer = NULL;
    return OK;
}

/* ---- stop texts ---- */

Status stop_texts_check(const StopTexts *stops) {
    for (int i = 0; i < stops->count; i++) {
        const char *text = stops->texts[i];
        if (!*text) return USAGE("stop text %d is empty, expected a text to end at", i + 1);
        CLEANUP(mem_freep) char *whole = NULL;
        size_t size;
        TRY(text_to_utf8(text, strlen(text), &whole, &size));
        if (strcmp(whole, text)) return USAGE("stop text %d is not UTF-8, so it would never come", i + 1);
    }
    return OK;
}

/* The stop text that ends at `end`, the longest of them; -1: none. */
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

/* Bytes at the end of the new text that one stop text may begin with. */
static size_t begun(const TextStream *stream, const char *stop) {
    size_t size = strlen(stop) - 1, fresh = stream->size - stream->prompt_size;
    if (size > fresh) size = fresh;
    while (size && memcmp(stream->text + stream->size - size, stop, size)) size--;
    return size;
}

/* ---- the stream ---- */

Status text_stream_init(TextStream *stream, const Tokenizer *tokenizer, const StopTexts *stops,
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

/* Looks at what was added from `from` on. */
static void settle(TextStream *stream, size_t from) {
    for (size_t end = from + 1; end <= stream->size; end++) {
        stream->stop = stop_ending_at(stream, end);
        if (stream->stop < 0) continue;
        stream->size = stream->sure = end - strlen(stream->stops.texts[stream->stop]);
        return;
    }
    size_t held = 0;
    for (int i = 0; i < stream->stops.count; i++) {
        size_t size = begun(stream, stream->stops.texts[i]);
        if (size > held) held = size;
    }
    stream->sure = stream->size - held;
}

Status text_stream_prompt(TextStream *stream, const int32_t *ids, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const char *piece;
        size_t size;
        if (ids[i] >= stream->vocab) continue;
        TRY(decoder_push(stream->decoder, ids[i], &piece, &size));
        TRY(append(stream, piece, size));
    }
    stream->prompt_size = stream->sure = stream->size;
    return OK;
}

Status text_stream_push(TextStream *stream, int32_t id) {
    if (stream->stop >= 0 || id >= stream->vocab) return OK;
    const char *piece;
    size_t size, from = stream->size;
    TRY(decoder_push(stream->decoder, id, &piece, &size));
    TRY(append(stream, piece, size));
    settle(stream, from);
    return OK;
}

Status text_stream_end(TextStream *stream) {
    if (stream->stop >= 0) return OK;
    const char *piece;
    size_t size, from = stream->size;
    TRY(decoder_end(stream->decoder, &piece, &size));
    TRY(append(stream, piece, size));
    settle(stream, from);
    stream->sure = stream->size;
    return OK;
}
