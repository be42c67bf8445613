/* What BERT's tokenizer makes of each character: the settings of a vocabulary (BertNormalizer's in a
 * tokenizer.json) and, made from them once, a table that answers for a character at a time. */
#ifndef WEFT_TOKENIZER_BERT_CHARS_H
#define WEFT_TOKENIZER_BERT_CHARS_H

#include <stdint.h>

#include "base/status.h"

typedef struct BertSettings {
    bool clean_text;           /* drop control characters, make every kind of white space a space */
    bool handle_chinese_chars; /* each ideograph is a word of its own */
    bool strip_accents;        /* decompose (NFD), drop the marks */
    bool lowercase;
} BertSettings;

typedef enum {
    BERT_LETTER, /* goes on with the word, as one character */
    BERT_SPACE,  /* ends the word before it */
    BERT_ALONE,  /* ends the word before it and is one itself, as one character */
    BERT_GONE,   /* is not there: the word goes on */
    BERT_OTHER   /* ask bert_char_parts */
} BertClass;

enum { BERT_CLASS_BITS = 3, BERT_PARTS = 3, BERT_TABLE = 0x10000 };

typedef struct BertChars {
    BertSettings settings;
    uint8_t ascii[128];         /* the class of each */
    uint32_t table[BERT_TABLE]; /* the character it becomes << BERT_CLASS_BITS | class */
} BertChars;

/* One of the characters that a character becomes. */
typedef struct BertPart {
    uint32_t c;
    uint8_t level; /* not 0: a mark that is sorted by it among the marks around it */
} BertPart;

MUST_USE Status bert_chars_new(BertChars **ret_chars, const BertSettings *settings);
void bert_chars_free(BertChars *chars);
DEFINE_FREEP(BertChars, bert_chars)

/* An entry as in the table, for any character. */
uint32_t bert_char_entry(const BertChars *chars, uint32_t c);
static inline uint32_t bert_char(const BertChars *chars, uint32_t c) {
    return c < BERT_TABLE ? chars->table[c] : bert_char_entry(chars, c);
}
/* How many characters a BERT_OTHER becomes, all of them letters. None: it is gone, and marks are not sorted
 * across it. */
int bert_char_parts(const BertChars *chars, uint32_t c, BertPart ret_parts[BERT_PARTS]);
/* The level by which a mark is sorted among others, 0 for all that are none. */
uint8_t bert_char_level(uint32_t c);
/* An ideograph that gets a space before and after it. */
bool bert_char_is_spaced(const BertChars *chars, uint32_t c);
/* The lower case of a character that has one of a single character, else itself. */
uint32_t bert_char_lower(uint32_t c);
/* An upper-case letter of the Latin, Greek or Cyrillic script. */
bool bert_char_is_upper(uint32_t c);

#endif
