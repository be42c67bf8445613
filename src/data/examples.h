/* Independent examples, tokenized and kept in memory.
 *
 *   pairs     rows with a question and its answer (data/table.h), or the Cornell corpus (data/cornell.h), for
 *             pretraining: [CLS] first [SEP] second [SEP]
 *   records   rows with a text, optionally a second text, and a label, arranged by the tokenizer's
 *             post-processor. Without labels, each line of a file that is not a table is a text.
 */
#ifndef WEFT_DATA_EXAMPLES_H
#define WEFT_DATA_EXAMPLES_H

#include "base/rng.h"
#include "data/cornell.h"
#include "data/data.h"

typedef struct Example {
    size_t at;             /* offset in the pool of its tokens, followed by those of the second text */
    int32_t first, second; /* numbers of tokens */
    int32_t label;
    bool paired; /* there is a second text */
    int64_t row; /* number of its row, from 1 */
} Example;

typedef struct ExampleSet {
    Example *example;
    size_t count, capacity;
    float *targets; /* (count, L) if the labels are targets, see data_outputs; else NULL */
    size_t targets_capacity;
    int32_t *pool;
    size_t used, pool_capacity;
    TokenTemplate single, pair;
    json_t *names; /* (count) ids of rows, see DataSpec.named; NULL: none has one */
    int64_t rows;  /* read so far */
    int64_t cut;   /* rows that do not fit in a sequence, */
    bool warns;    /* which is worth a warning */
    int64_t empty; /* rows skipped because a text has no tokens; records only if nothing else has, either */
    CornellCounts cornell;
} ExampleSet;

/* Reads the files of a spec whose format is pairs, cornell or records, using its encoder. */
MUST_USE Status example_set_read(ExampleSet *set, const DataSpec *spec);
void example_set_done(ExampleSet *set);
/* A one-line warning about the files, to be freed by the caller; NULL: nothing to report. */
MUST_USE Status example_set_text(const ExampleSet *set, char **ret_text);

/* Writes a sequence to `tokens` and `types`, truncated to T: the first text of one example and the second
 * text, if any, of another, with special tokens; returns the length. The longer of two texts is truncated
 * first, as transformers does ("longest_first"). */
int64_t example_fill(const ExampleSet *set, const Example *first, const Example *second, int64_t T,
                     int32_t *tokens, int32_t *types);
/* Length of such a sequence of one example. */
int64_t example_length(const ExampleSet *set, size_t index, int64_t T);
/* A random example in [begin, begin + size) other than `index`. A few draws try to find one with a different
 * second text. */
size_t example_other(const ExampleSet *set, size_t begin, size_t size, size_t index, RngKey key,
                     uint64_t position);

#endif
