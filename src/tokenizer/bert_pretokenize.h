/* BERT's normalizer and pre-tokenizer: splits text into words as the settings require. WordPiece is both
 * trained on these words and applied to them.
 *
 * Each byte that is not valid UTF-8 is treated as U+FFFD. Clean-up removes that character, so the word
 * around it continues. */
#ifndef WEFT_TOKENIZER_BERT_PRETOKENIZE_H
#define WEFT_TOKENIZER_BERT_PRETOKENIZE_H

#include "tokenizer/bert_chars.h"
#include "tokenizer/tokenizer.h"

struct NormalText;

typedef struct BertWord {
    const char *text; /* UTF-8, valid until the next call; at most the first `limit` characters */
    size_t size;
    size_t chars;      /* length of the complete word */
    size_t start, end; /* the bytes of the text it came from */
} BertWord;

typedef struct BertPretokenizer {
    const BertChars *chars;
    size_t limit; /* characters stored per word; further ones are only counted */
    char *buffer;
    TokenOffset *offsets; /* per character of the word; NULL unless requested */
    const char *text;
    size_t size, at;
} BertPretokenizer;

MUST_USE Status bert_pretokenizer_init(BertPretokenizer *pre, const BertChars *chars, size_t limit,
                                       bool offsets);
void bert_pretokenizer_done(BertPretokenizer *pre);
/* Starts on a text, which must stay valid while its words are read. _next returns false after the last
 * word. */
void bert_pretokenizer_start(BertPretokenizer *pre, const char *text, size_t size);
bool bert_pretokenizer_next(BertPretokenizer *pre, BertWord *ret_word);
/* The largest n <= size for which splitting the first n bytes and the remaining text separately yields the
 * same words as splitting them together, whatever follows these `size` bytes. */
size_t bert_pretokenizer_cut(const BertChars *chars, const char *text, size_t size);

/* Appends the normalized text as BertNormalizer produces it. Pre-tokenization yields the same words for it
 * as for the original. */
MUST_USE Status bert_normalize(const BertChars *chars, const char *text, size_t size,
                               struct NormalText *normal);

#endif
