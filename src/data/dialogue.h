/* Dialogues as pairs of texts in JSON lines, {"q": ..., "a": ...}: what train reads as the format pairs. */
#ifndef WEFT_DATA_DIALOGUE_H
#define WEFT_DATA_DIALOGUE_H

#include "data/cornell.h"
#include "data/data.h"

typedef struct DialogueCounts {
    int64_t pairs;
    int64_t empty; /* rows left out because a text is empty */
    CornellCounts cornell;
} DialogueCounts;

/* Writes the pairs of files of the format cornell or pairs as the file `out`: all of it or nothing. */
MUST_USE Status dialogue_write(const char *const *paths, int count, DataFormat format, const char *out,
                               DialogueCounts *ret_counts);

#endif
