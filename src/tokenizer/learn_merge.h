/* Learning merges from words: the most frequent pair of neighbours becomes one symbol, over and over. */
#ifndef WEFT_TOKENIZER_LEARN_MERGE_H
#define WEFT_TOKENIZER_LEARN_MERGE_H

#include "tokenizer/learn.h"
#include "tokenizer/learn_words.h"

/* A distinct word as symbols. */
typedef struct SymbolWord {
    size_t at; /* in the symbols */
    uint32_t size;
    int64_t count;
} SymbolWord;

typedef struct LearnedMerge {
    int32_t left, right, result;
} LearnedMerge;

typedef struct MergeSpec {
    WordTable *tokens;        /* what symbols are called; new ones are added, the number is the symbol */
    const char *prefix;       /* cut from the right part's name when the two are joined: "##"; "" for none */
    int64_t vocab, min_count; /* min_count: 1 or more */
    LearnProgress progress;   /* may be NULL */
    void *context;
} MergeSpec;

/* Merges until there are `vocab` tokens or no pair is frequent enough. `symbols` and `words` are worked
 * on in place. The merges, for the caller to free, are in the order in which they apply. */
MUST_USE Status learn_merges(const MergeSpec *spec, int32_t *symbols, SymbolWord *words, size_t word_count,
                             LearnedMerge **ret_merges, size_t *ret_count);

#endif
