/* Word boundaries by the pattern of GPT-2's pre-tokenizer:
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * A word is a contraction; or a run of letters, of digits or of other characters, with at most one leading
 * space; or a run of whitespace, which leaves its last character to the next word if it has two or more and
 * text follows. Bytes that are not valid UTF-8 are "other characters". Inline, because the encoder spends
 * much of its time here.
 */
#ifndef WEFT_TOKENIZER_BPE_PRETOKENIZE_H
#define WEFT_TOKENIZER_BPE_PRETOKENIZE_H

#include "tokenizer/chars.h"
#include "tokenizer/internal.h"

enum { WORD_CLASSES = CHAR_LETTER | CHAR_NUMBER | CHAR_SPACE, WORD_HIGH = 16 };

/* The class of an ASCII byte; WORD_HIGH for bytes from 0x80 on. */
extern const unsigned char word_class[256];

/* The class of the first character; *ret_bytes is its length. */
static inline unsigned word_char(const unsigned char *text, size_t size, size_t *ret_bytes) {
    unsigned kind = word_class[text[0]];
    *ret_bytes = 1;
    if (__builtin_expect(kind != WORD_HIGH, 1)) return kind;
    uint32_t c;
    *ret_bytes = utf8_next((const char *)text, size, &c);
    return char_class(c) & WORD_CLASSES;
}

/* The end of a run of characters of class `kind` that continues at `at`. */
static inline size_t word_run(const unsigned char *text, size_t size, size_t at, unsigned kind) {
    for (;;) {
        while (at < size && word_class[text[at]] == kind) at++;
        if (at == size || text[at] < 0x80) return at;
        size_t bytes;
        if (word_char(text + at, size - at, &bytes) != kind) return at;
        at += bytes;
    }
}

/* The size of the contraction that starts at an apostrophe, or 0. */
static inline size_t word_contraction(const unsigned char *text, size_t size) {
    if (size < 2) return 0;
    unsigned char a = text[1], b = size > 2 ? text[2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* The size of the first word; size > 0. */
static inline size_t word_size(const unsigned char *text, size_t size) {
    size_t bytes;
    if (text[0] == '\'') {
        size_t contraction = word_contraction(text, size);
        if (contraction) return contraction;
    }
    if (text[0] == ' ' && size > 1) {
        unsigned kind = word_char(text + 1, size - 1, &bytes);
        if (kind != CHAR_SPACE) return word_run(text, size, 1 + bytes, kind);
    }
    unsigned kind = word_char(text, size, &bytes);
    size_t end = word_run(text, size, bytes, kind);
    if (kind != CHAR_SPACE || end == size) return end;
    uint32_t c;
    size_t last = utf8_previous((const char *)text, end, &c);
    return last < end ? end - last : end;
}

#endif
