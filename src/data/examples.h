/* Texts by themselves: pairs of an utterance and its answer, and texts with a label, tokenized and kept in
 * memory.
 *
 *   pairs     rows with a question and its answer (data/table.h); or the Cornell corpus (data/cornell.h)
 *   records   rows with a text, perhaps a second one, and a label
 */
#ifndef WEFT_DATA_EXAMPLES_H
#define WEFT_DATA_EXAMPLES_H

#include "base/rng.h"
#include "data/cornell.h"
#include "data/data.h"

typedef struct Example {
    size_t at;             /* in the pool: its tokens, then those of its second text */
    int32_t first, second; /* how many */
    int32_t label;
} Example;

typedef struct ExampleSet {
    Example *example;
    size_t count, capacity;
    int32_t *pool;
    size_t used, pool_capacity;
    int64_t empty; /* rows left out because a text has no tokens */
    CornellCounts cornell;
} ExampleSet;

/* Reads the files of a spec of the formats pairs, cornell or records, with its encoder. */
MUST_USE Status example_set_read(ExampleSet *set, const DataSpec *spec);
void example_set_done(ExampleSet *set);
/* What a user should know of what was read; NULL: nothing. */
MUST_USE Status example_set_text(const ExampleSet *set, char **ret_text);

/* Puts [CLS] first [SEP], and second [SEP] where there is one, cut to T, into tokens and types; returns the
 * length. Of two texts the longer one loses its end until both fit. */
int64_t example_fill(const ExampleSet *set, const Example *first, const Example *second,
                     const SpecialTokens *special, int64_t T, int32_t *tokens, int32_t *types);
/* Any other example among [begin, begin + size), with another second text than `index` has, where a few tries
 * find one. */
size_t example_other(const ExampleSet *set, size_t begin, size_t size, size_t index, RngKey key,
                     uint64_t place);

#endif
