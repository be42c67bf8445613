/* Byte strings with a number and a count each: the words of a text, its characters, a vocabulary. */
#ifndef WEFT_TOKENIZER_LEARN_WORDS_H
#define WEFT_TOKENIZER_LEARN_WORDS_H

#include <stdint.h>

#include "base/status.h"

typedef struct Word {
    size_t at; /* in the table's bytes */
    uint32_t size;
    uint32_t tag; /* of its hash */
    int64_t count;
} Word;

/* Starts with zeroes. */
typedef struct WordTable {
    Word *words;
    size_t count, capacity;
    char *bytes;
    size_t used, byte_capacity;
    struct WordSlot *slots;
    size_t slot_count; /* a power of two, or 0 */
} WordTable;

void word_table_done(WordTable *table);

/* Adds to a word's count; one that is new gets the next number, from 0 on. NULL: the number is of no
 * interest. */
MUST_USE Status word_table_add(WordTable *table, const char *bytes, size_t size, int64_t count,
                               uint32_t *ret_number);
/* UINT32_MAX: it is not there. */
uint32_t word_table_find(const WordTable *table, const char *bytes, size_t size);
/* Adds another table's words with their counts. */
MUST_USE Status word_table_merge(WordTable *table, const WordTable *other);

static inline const char *word_bytes(const WordTable *table, size_t number) {
    return table->bytes + table->words[number].at;
}

#endif
