/* Classes of characters for the regular expressions of GPT-2's tokenizer and of added tokens: \p{L}, \p{N},
 * \s and \w as Hugging Face's tokenizers has them. The table is made by scripts/make-char-classes. */
#ifndef WEFT_TOKENIZER_CHAR_TABLE_H
#define WEFT_TOKENIZER_CHAR_TABLE_H

#include <stdint.h>

enum { CHAR_LETTER = 1, CHAR_NUMBER = 2, CHAR_SPACE = 4, CHAR_WORD = 8 };

extern const unsigned char char_index[], char_pages[][128];

/* A set of the above; none for what is no character. */
static inline unsigned char_class(uint32_t c) {
    if (c > 0x10FFFF) return 0;
    return char_pages[char_index[c >> 8]][c >> 1 & 127] >> (c & 1) * 4 & 15;
}

#endif
