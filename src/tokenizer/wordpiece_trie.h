/* A trie over the bytes of the vocabulary's pieces, to find the longest piece that a text starts with. */
#ifndef WEFT_TOKENIZER_WORDPIECE_TRIE_H
#define WEFT_TOKENIZER_WORDPIECE_TRIE_H

#include <stdint.h>

#include "base/status.h"

typedef struct TrieEntry {
    const char *text; /* borrowed during trie_new */
    uint32_t size;    /* > 0 */
    int32_t id;
} TrieEntry;

typedef struct Trie Trie;

/* Sorts `entries` in place; they must be distinct. */
MUST_USE Status trie_new(Trie **ret_trie, TrieEntry *entries, size_t count);
void trie_free(Trie *trie);
DEFINE_FREEP(Trie, trie)

/* The id of the longest entry that is a prefix of the text, and its size; -1 if there is none, with *ret_size
 * untouched. */
int32_t trie_longest(const Trie *trie, const char *text, size_t size, size_t *ret_size);

#endif
