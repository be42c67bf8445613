/* Detokenization for generation: finding a model's tokenizer, and decoding a sequence's text as its tokens
 * arrive.
 *
 * A TextStream receives a prompt's tokens and then new ones. Its text is always valid UTF-8 with complete
 * characters, and ends before the first stop string in the new text. A stop string may span several tokens
 * but must not start in the prompt. If several match, the one completed first wins; among those, the longest.
 * While the end of the text may still become a stop string, it is part of `text` but not of its first
 * `final_size` bytes.
 */
#ifndef WEFT_INFER_TEXT_H
#define WEFT_INFER_TEXT_H

#include "model/model.h"
#include "tokenizer/tokenizer.h"

/* The tokenizer of the checkpoint `dir`. `name` is a directory, one of its files, or "bytes". If it is NULL:
 * the checkpoint's tokenizer files, else bytes if the vocabulary matches, else *ret_tokenizer is NULL. Fails
 * if the tokenizer does not match the model's vocabulary, or differs from the checkpoint's own. */
MUST_USE Status text_tokenizer(const char *dir, const ModelConfig *config, const char *name,
                               Tokenizer **ret_tokenizer);

typedef struct StopStrings {
    const char *const *texts;
    int count;
} StopStrings;

/* Refuses stop strings that are empty, or not UTF-8, since those can never match. */
MUST_USE Status stop_strings_check(const StopStrings *stops);

typedef struct TextStream {
    Decoder *decoder;
    int64_t vocab; /* the tokenizer's; a model with a padded vocabulary may choose larger ids, which have no
                      text */
    StopStrings stops;
    char *text; /* everything up to a stop string; not NUL-terminated */
    size_t size, capacity;
    size_t prompt_size; /* bytes of the prompt */
    size_t final_size;  /* bytes that later tokens cannot change */
    int stop;           /* index of the stop string that ended the text; -1: no match yet */
} TextStream;

/* The tokenizer and the stop strings must outlive the stream. */
MUST_USE Status text_stream_init(TextStream *stream, const Tokenizer *tokenizer, const StopStrings *stops,
                                 bool skip_special);
void text_stream_done(TextStream *stream);
/* Adds the prompt's tokens; call before text_stream_push. */
MUST_USE Status text_stream_prompt(TextStream *stream, const int32_t *ids, int64_t count);
/* Adds a new token; ignored after a stop string. */
MUST_USE Status text_stream_push(TextStream *stream, int32_t id);
/* Ends the text: an incomplete character becomes U+FFFD, and all of the text is final. */
MUST_USE Status text_stream_end(TextStream *stream);

#endif
