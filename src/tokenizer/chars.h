/* Properties of single characters, as in Hugging Face's tokenizers. unicode.c has the tables, and sets of
 * characters. */
#ifndef WEFT_TOKENIZER_CHARS_H
#define WEFT_TOKENIZER_CHARS_H

#include <stdbool.h>
#include <stdint.h>

enum { CHAR_COUNT = 0x110000 };

/* \p{L}, \p{N}, \s and \w of GPT-2's pre-tokenizer and of added tokens. */
enum { CHAR_LETTER = 1, CHAR_NUMBER = 2, CHAR_SPACE = 4, CHAR_WORD = 8 };

extern unsigned char char_classes[CHAR_COUNT]; /* filled before main, then constant */

/* The set of classes of a code point; 0 if it is invalid. */
static inline unsigned char_class(uint32_t c) {
    return c < CHAR_COUNT ? char_classes[c] : 0;
}

/* Bits of CharKind.bert: what BERT's normalizer and pre-tokenizer do with the character. */
enum {
    BERT_DROP = 1,    /* clean-up removes it */
    BERT_BLANK = 2,   /* clean-up replaces it with a space */
    BERT_WHITE = 4,   /* separates words */
    BERT_PUNCT = 8,   /* separates words and is a word itself */
    BERT_CJK = 16,    /* ideograph */
    BERT_MARK = 32,   /* accent, removed by strip_accents */
    BERT_SPLITS = 64, /* its decomposition without accents differs from it */
    BERT_LOWERS = 128 /* has a lowercase form */
};

typedef struct CharKind {
    uint8_t category, script; /* their numbers in the tables */
    uint8_t combining;        /* canonical combining class, renumbered from 1; 0: not a mark that is sorted */
    uint8_t properties;       /* a bit per CharProperty */
    uint8_t bert;
} CharKind;

CharKind char_kind(uint32_t c);
/* The lowercase form, or the character itself if it has no lowercase form or one of two characters. */
uint32_t char_lower(uint32_t c);
/* What decides between the forms of a sigma: whether a character is a cased letter, and whether it is skipped
 * in the search for one. */
bool char_is_cased(uint32_t c);
bool char_is_case_ignorable(uint32_t c);

#endif
