/* The Cornell Movie-Dialogs Corpus in its own format: movie_lines.txt, an utterance a line, and
 * movie_conversations.txt, whose lines name utterances in their order. Fields are separated by " +++$+++ ".
 * The files are of ISO-8859-1 (with what Windows puts into its unused places); lines that are UTF-8 are taken
 * as that. */
#ifndef WEFT_DATA_CORNELL_H
#define WEFT_DATA_CORNELL_H

#include <stdint.h>

#include "base/status.h"

typedef struct CornellCounts {
    int64_t conversations, lines;
    int64_t missing; /* utterances that conversations name and no file holds */
    int64_t empty;   /* utterances without text */
} CornellCounts;

/* An utterance and the one that follows it in a conversation, as UTF-8. */
typedef Status (*CornellPair)(void *context, const char *first, size_t first_size, const char *second,
                              size_t second_size);

/* Whether a file is of the corpus by its name: movie_lines..., movie_conversations... */
bool cornell_is_named(const char *path);
/* Calls `func` with each pair that has both utterances, in the order of the conversations. Which file is
 * which shows in its first line; there must be one of both at least. */
MUST_USE Status cornell_read(const char *const *paths, int count, CornellPair func, void *context,
                             CornellCounts *ret_counts);

#endif
