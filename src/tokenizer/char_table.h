/* Character classes \p{L}, \p{N}, \s and \w as in Hugging Face's tokenizers, for the patterns of GPT-2's
 * pre-tokenizer and of added tokens. scripts/make-char-classes generates the table. */
#ifndef WEFT_TOKENIZER_CHAR_TABLE_H
#define WEFT_TOKENIZER_CHAR_TABLE_H

#include <stdint.h>

enum { CHAR_LETTER = 1, CHAR_NUMBER = 2, CHAR_SPACE = 4, CHAR_WORD = 8 };

extern const unsigned char char_index[], char_pages[][128];

/* The set of classes of a code point; 0 if it is invalid. */
static inline unsigned char_class(uint32_t c) {
    if (c > 0x10FFFF) return 0;
    return char_pages[char_index[c >> 8]][c >> 1 & 127] >> (c & 1) * 4 & 15;
}

#endif
