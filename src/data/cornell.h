/* Reads the Cornell Movie-Dialogs Corpus in its original format: movie_lines.txt has one utterance per line,
 * and each line of movie_conversations.txt lists utterances in order. Fields are separated by " +++$+++ ".
 * Lines that are valid UTF-8 are read as such, others as Windows-1252. */
#ifndef WEFT_DATA_CORNELL_H
#define WEFT_DATA_CORNELL_H

#include <stdint.h>

#include "base/status.h"
#include "data/data.h"

typedef struct CornellCounts {
    int64_t conversations, lines;
    int64_t missing; /* utterances that a conversation refers to but no file contains */
    int64_t empty;   /* utterances without text */
} CornellCounts;

/* An utterance and its reply in a conversation, as UTF-8. */
typedef Status (*CornellPair)(void *context, const char *first, size_t first_size, const char *second,
                              size_t second_size);

/* Whether the file name is that of a corpus file: movie_lines..., movie_conversations... */
bool cornell_is_named(const char *path);
/* Calls `func` with each pair of consecutive utterances that are both present, in conversation order. The
 * first line of a file shows which kind it is; there must be at least one of each. */
MUST_USE Status cornell_read(const char *const *paths, int count, CornellPair func, void *context,
                             CornellCounts *ret_counts);

typedef struct DialogueCounts {
    int64_t pairs;
    int64_t empty; /* rows skipped because a text is empty */
    CornellCounts cornell;
} DialogueCounts;

/* Converts files of the format cornell or pairs to JSON lines {"q": ..., "a": ...}, which weft train reads as
 * the format pairs, in the file `out`, which appears complete or not at all. */
MUST_USE Status dialogue_write(const char *const *paths, int count, DataFormat format, const char *out,
                               DialogueCounts *ret_counts);

#endif
