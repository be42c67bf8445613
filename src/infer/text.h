/* Tokens of the byte vocabulary as text. Text is always valid UTF-8: bytes that are none become U+FFFD,
 * one for each longest part of a character that was broken off. */
#ifndef WEFT_INFER_TEXT_H
#define WEFT_INFER_TEXT_H

#include <stdint.h>

#include "base/status.h"

/* A character that is still incomplete; start with zeroes. */
typedef struct TextStream {
    unsigned char held[4];
    int count, need;
} TextStream;

enum { TEXT_PIECE = 8 };

/* Takes one token (bytes are 0 to 255, others give no text) and writes what is complete now to `piece`;
 * returns its size, which may be 0. */
size_t text_push(TextStream *stream, int32_t token, char piece[TEXT_PIECE]);
/* What is left of a broken character at the end. */
size_t text_end(TextStream *stream, char piece[TEXT_PIECE]);

/* All of it at once, with a NUL after it. */
MUST_USE Status text_of_tokens(const int32_t *tokens, int64_t count, char **ret_text, size_t *ret_size);

#endif
