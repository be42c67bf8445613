/* A table of byte strings, each with an index and a count: the words or characters of a text, or a
 * vocabulary. */
#ifndef WEFT_TOKENIZER_LEARN_WORDS_H
#define WEFT_TOKENIZER_LEARN_WORDS_H

#include <stdint.h>

#include "base/status.h"
#include "tokenizer/learn.h"

typedef struct Word {
    size_t at; /* offset in the table's bytes */
    uint32_t size;
    uint32_t tag; /* upper half of its hash */
    int64_t count;
} Word;

/* Initialize with {0}. */
typedef struct WordTable {
    Word *words;
    size_t count, capacity;
    char *bytes;
    size_t used, byte_capacity;
    struct WordSlot *slots;
    size_t slot_count; /* a power of two, or 0 */
} WordTable;

void word_table_done(WordTable *table);

/* Adds `count` to a word's count. A new word gets the next index, starting at 0. ret_number receives the
 * index and may be NULL. */
MUST_USE Status word_table_add(WordTable *table, const char *bytes, size_t size, int64_t count,
                               uint32_t *ret_number);
/* The index of a word, or UINT32_MAX if not found. */
uint32_t word_table_find(const WordTable *table, const char *bytes, size_t size);
/* Adds the words and counts of another table. */
MUST_USE Status word_table_merge(WordTable *table, const WordTable *other);

static inline const char *word_bytes(const WordTable *table, size_t number) {
    return table->bytes + table->words[number].at;
}

/* Training from word counts (learn_vocab.c). Words are not empty; bytes for BPE, UTF-8 for WordPiece. The
 * table is emptied to free memory for the merges. `progress` may be NULL. */
MUST_USE Status learn_bpe(const LearnSpec *spec, WordTable *words, LearnProgress progress, void *context,
                          Tokenizer **ret_tokenizer);
MUST_USE Status learn_wordpiece(const LearnSpec *spec, WordTable *words, LearnProgress progress,
                                void *context, Tokenizer **ret_tokenizer);

#endif
