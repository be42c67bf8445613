/* How BERT's tokenizer treats each character: the normalizer settings of a tokenizer (BertNormalizer in
 * tokenizer.json) and a table of character properties computed from them once. */
#ifndef WEFT_TOKENIZER_BERT_CHARS_H
#define WEFT_TOKENIZER_BERT_CHARS_H

#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

typedef struct BertSettings {
    bool clean_text;           /* remove control characters, replace all whitespace with spaces */
    bool handle_chinese_chars; /* make each ideograph a separate word */
    bool strip_accents;        /* decompose (NFD) and remove combining marks */
    bool lowercase;
} BertSettings;

typedef enum {
    BERT_LETTER,   /* becomes one character of the current word */
    BERT_SPACE,    /* ends the current word */
    BERT_ISOLATED, /* ends the current word and becomes a word of one character */
    BERT_DROPPED,  /* removed; the current word continues */
    BERT_OTHER     /* see bert_char_parts */
} BertClass;

enum { BERT_CLASS_BITS = 3, BERT_PARTS = 3, BERT_TABLE = 0x10000 };

typedef struct BertChars {
    BertSettings settings;
    uint8_t ascii[128];         /* BertClass of each ASCII character */
    uint32_t table[BERT_TABLE]; /* resulting character << BERT_CLASS_BITS | BertClass */
} BertChars;

/* One of the characters that a BERT_OTHER character becomes. */
typedef struct BertPart {
    uint32_t c;
    uint8_t ccc; /* canonical combining class, if marks are sorted; 0: not a mark */
} BertPart;

/* Changes the settings that a BertNormalizer of tokenizer.json gives. */
MUST_USE Status bert_settings_read(const json_t *json, const char *from, BertSettings *settings);
MUST_USE Status bert_chars_new(BertChars **ret_chars, const BertSettings *settings);
void bert_chars_free(BertChars *chars);
DEFINE_FREEP(BertChars, bert_chars)

/* Computes the table entry of any character; bert_char looks it up if it is in the table. */
uint32_t bert_char_entry(const BertChars *chars, uint32_t c);
static inline uint32_t bert_char(const BertChars *chars, uint32_t c) {
    return c < BERT_TABLE ? chars->table[c] : bert_char_entry(chars, c);
}
/* The characters that a BERT_OTHER becomes, all of them letters; returns their number. 0: it is removed, and
 * marks are not sorted across it. */
int bert_char_parts(const BertChars *chars, uint32_t c, BertPart ret_parts[BERT_PARTS]);
/* Whether the normalizer puts spaces around the character (an ideograph). */
bool bert_char_is_spaced(const BertChars *chars, uint32_t c);
/* Whether BERT's pre-tokenizer, and the one of type Punctuation, take it for punctuation. */
bool bert_char_is_punctuation(uint32_t c);
/* Whether it is an uppercase Latin, Greek or Cyrillic letter. */
bool bert_char_is_upper(uint32_t c);

#endif
