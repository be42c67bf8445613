/* Words of a corpus, as perplexity per word counts them: what spaces and newlines separate, and the end of
 * each line, which WikiText's authors count as a word (<eos>) too. */
#ifndef WEFT_DATA_WORD_COUNT_H
#define WEFT_DATA_WORD_COUNT_H

#include "data/reader.h"

typedef struct WordCounts {
    int64_t words, lines; /* a document's last line counts, with a newline after it or without */
    int64_t bytes;        /* of text */
} WordCounts;

MUST_USE Status corpus_count_words(const ReaderSpec *spec, WordCounts *ret_counts);

#endif
