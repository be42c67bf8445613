/* Text cut into BERT's words: cleaned, lower-cased, stripped and parted as the settings say. WordPiece is
 * learned from them and applied to them.
 *
 * Bytes that are no UTF-8 count as U+FFFD, one each; clean-up drops that character, so that around them
 * the word goes on. */
#ifndef WEFT_TOKENIZER_BERT_PRETOKENIZE_H
#define WEFT_TOKENIZER_BERT_PRETOKENIZE_H

#include "tokenizer/bert_chars.h"
#include "tokenizer/tokenizer.h"

struct NormalText;

typedef struct BertWord {
    const char *text; /* UTF-8, until the next call; only the first characters of one too long */
    size_t size;
    size_t chars;
    size_t start, end; /* bytes of the text that it came from */
} BertWord;

typedef struct BertPretokenizer {
    const BertChars *chars;
    size_t limit; /* characters of a word that are kept */
    char *buffer;
    TokenPlace *places; /* of the word's characters; NULL: not wanted */
    const char *text;
    size_t size, at;
} BertPretokenizer;

MUST_USE Status bert_pretokenizer_init(BertPretokenizer *words, const BertChars *chars, size_t limit,
                                       bool places);
void bert_pretokenizer_done(BertPretokenizer *words);
/* Begins with a text, which must stay until its last word was taken. */
void bert_pretokenizer_start(BertPretokenizer *words, const char *text, size_t size);
bool bert_pretokenizer_next(BertPretokenizer *words, BertWord *ret_word);
/* The largest n <= size such that a text that starts with these bytes and goes on in any way has the words
 * of the first n and then those of the rest. */
size_t bert_pretokenizer_cut(const BertChars *chars, const char *text, size_t size);

/* Appends the text as the settings change it, words and what lies between them, as BertNormalizer does. Its
 * words are those of the text itself. */
MUST_USE Status bert_normalise(const BertChars *chars, const char *text, size_t size,
                               struct NormalText *normal);

#endif
