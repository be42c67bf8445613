/* Writes dialogues as JSON lines {"q": ..., "a": ...}, which weft train reads as the format pairs. */
#ifndef WEFT_DATA_DIALOGUE_H
#define WEFT_DATA_DIALOGUE_H

#include "data/cornell.h"
#include "data/data.h"

typedef struct DialogueCounts {
    int64_t pairs;
    int64_t empty; /* rows skipped because a text is empty */
    CornellCounts cornell;
} DialogueCounts;

/* Converts files of the format cornell or pairs to the file `out`, which appears complete or not at all. */
MUST_USE Status dialogue_write(const char *const *paths, int count, DataFormat format, const char *out,
                               DialogueCounts *ret_counts);

#endif
