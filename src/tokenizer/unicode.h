/* Unicode for regular expressions and normalizers: sets of characters by property, and normalization forms,
 * as in Hugging Face's tokenizers. unicode_tables.py generates the tables. */
#ifndef WEFT_TOKENIZER_UNICODE_H
#define WEFT_TOKENIZER_UNICODE_H

#include "tokenizer/chars.h"
#include "tokenizer/internal.h"

/* One bit per code point, plus one for UTF8_INVALID. */
enum { CHAR_SET_WORDS = UTF8_INVALID / 64 + 1 };

typedef struct CharSet {
    uint64_t bits[CHAR_SET_WORDS];
} CharSet;

static inline bool char_set_has(const CharSet *set, uint32_t c) {
    return set->bits[c >> 6] >> (c & 63) & 1;
}

void char_set_add(CharSet *set, uint32_t first, uint32_t last);
void char_set_invert(CharSet *set); /* UTF8_INVALID included */

/* Properties of characters that have no name in regular expressions. */
typedef enum {
    PROPERTY_SPACE,
    PROPERTY_WORD, /* \w */
    PROPERTY_NUMERIC,
    PROPERTY_CLASS_WORD, /* \w in a class */
    PROPERTY_ALPHABETIC,
    PROPERTY_UPPER,
    PROPERTY_LOWER,
    PROPERTY_ACCENT /* removed by StripAccents: the marks of an earlier Unicode */
} CharProperty;

void char_set_add_property(CharSet *set, CharProperty property);
/* A general category (Lu), a group of them (L), or a script (Han); false if the name is unknown. */
bool char_set_add_named(CharSet *set, const char *name, size_t size);

/* A POSIX class (alpha), which may be capitalized (Alpha). */
bool char_set_add_posix(CharSet *set, const char *name, size_t size);

/* ---- normalization ---- */

typedef enum { FORM_NFD, FORM_NFC, FORM_NFKD, FORM_NFKC } NormalForm;

/* A character in the course of normalization. Its offset is that of the characters it came from, counted as
 * Hugging Face does: `change` is 1 for a character that was inserted, -n if n characters after it were
 * absorbed. */
typedef struct NormalChar {
    uint32_t c;
    uint8_t combining;
    int32_t change;
} NormalChar;

/* The decomposition of the longest character, with room to spare. */
enum { DECOMPOSED_LIMIT = 32 };

/* The characters that the form may change, move or compose with the one before. */
void char_set_add_unstable(CharSet *set, NormalForm form);
/* Decomposes one character; returns the number of results. */
int unicode_decompose(uint32_t c, NormalForm form, NormalChar ret_chars[DECOMPOSED_LIMIT]);
/* Sorts combining marks; then, for the forms that compose, composes. `spare` has room for as many characters.
 * Returns the number of characters that remain. */
size_t unicode_finish(NormalChar *chars, NormalChar *spare, size_t count, NormalForm form);

/* Writes a character as UTF-8; returns its 1 to 4 bytes. */
size_t utf8_put(uint32_t c, char out[4]);

#endif
