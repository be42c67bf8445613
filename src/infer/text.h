/* Between tokens and text: the tokenizer of a model, and a sequence's text as its tokens come.
 *
 * A TextStream takes a prompt's tokens and then new ones. Its text is always valid UTF-8, whole characters
 * only, and ends before the first stop text that the new tokens make: wholly new text, whatever tokens it
 * is spread over. Of several, the one that is complete first counts; of those, the longest. As long as the
 * end of the text may become a stop text, it is there but not yet sure.
 */
#ifndef WEFT_INFER_TEXT_H
#define WEFT_INFER_TEXT_H

#include "model/model.h"
#include "tokenizer/tokenizer.h"

/* The tokenizer of the checkpoint `dir`: the one that `name` stands for (a directory, one of its files, or
 * the word "bytes"); without a name the one whose files lie beside the weights, else the bytes where the
 * vocabulary is theirs, else NULL. One that does not go with the model's vocabulary is refused. */
MUST_USE Status text_tokenizer(const char *dir, const ModelConfig *config, const char *name,
                               Tokenizer **ret_tokenizer);

typedef struct StopTexts {
    const char *const *texts;
    int count;
} StopTexts;

/* Refuses texts that are empty, and those that are not UTF-8, which never come. */
MUST_USE Status stop_texts_check(const StopTexts *stops);

typedef struct TextStream {
    Decoder *decoder;
    int64_t vocab; /* the tokenizer's: a padded model may choose more, which have no text */
    StopTexts stops;
    char *text; /* all of it, up to a stop text; not NUL-terminated */
    size_t size, capacity;
    size_t prompt_size; /* bytes before the first new token's */
    size_t sure;        /* bytes that later tokens cannot take back */
    int stop;           /* which stop text ended it; -1: none yet */
} TextStream;

/* The tokenizer and the stop texts must outlive it. */
MUST_USE Status text_stream_init(TextStream *stream, const Tokenizer *tokenizer, const StopTexts *stops,
                                 bool skip_special);
void text_stream_done(TextStream *stream);
/* The tokens of the prompt, before any others. */
MUST_USE Status text_stream_prompt(TextStream *stream, const int32_t *ids, int64_t count);
/* A new token; after a stop text nothing changes any more. */
MUST_USE Status text_stream_push(TextStream *stream, int32_t id);
/* No more tokens come: a character cut short becomes U+FFFD, and all is sure. */
MUST_USE Status text_stream_end(TextStream *stream);

#endif
