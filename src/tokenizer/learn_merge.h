/* Training of merges: repeatedly merges the most frequent pair of adjacent symbols into one symbol. */
#ifndef WEFT_TOKENIZER_LEARN_MERGE_H
#define WEFT_TOKENIZER_LEARN_MERGE_H

#include "tokenizer/learn.h"
#include "tokenizer/learn_words.h"

/* A distinct word as a sequence of symbols, or a part of a word of more than PART_SYMBOLS symbols. The cost
 * of a merge grows with the length of the entries that it changes, hence the parts; merges cross them as if
 * the word were one. */
typedef struct SymbolWord {
    size_t at; /* index of its first symbol */
    uint32_t size;
    bool joined;   /* the word continues in the next entry */
    int64_t count; /* occurrences in the text */
} SymbolWord;

enum { PART_SYMBOLS = 512 };

typedef struct LearnedMerge {
    int32_t left, right, result;
} LearnedMerge;

typedef struct MergeSpec {
    WordTable *tokens;        /* spelling of each symbol, indexed by symbol; merges append to it */
    const char *prefix;       /* removed from the right symbol when joining: "##", or "" */
    int64_t vocab, min_count; /* target size; minimum count of a pair to be merged, >= 1 */
    LearnProgress progress;   /* may be NULL */
    void *context;
} MergeSpec;

/* Merges until there are `vocab` tokens or no pair is frequent enough. Modifies `symbols` and `words` in
 * place. The returned merges are in order of rank; the caller frees them. */
MUST_USE Status learn_merges(const MergeSpec *spec, int32_t *symbols, SymbolWord *words, size_t word_count,
                             LearnedMerge **ret_merges, size_t *ret_count);

#endif
