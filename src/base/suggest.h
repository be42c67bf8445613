/* "Did you mean": the closest known name to a mistyped one. */
#ifndef WEFT_BASE_SUGGEST_H
#define WEFT_BASE_SUGGEST_H

#include <stddef.h>

/* Edit distance (insert, delete, replace, swap adjacent letters). Ignores case and treats '-', '_' and '.' as
 * equal. SIZE_MAX for words of more than 64 letters. */
size_t suggest_distance(const char *a, const char *b);

/* The closest name of a NULL-terminated list; NULL if no name is close enough. */
const char *suggest(const char *word, const char *const *names);

/* The same without a list: start with {.word = ...}, call suggest_offer for each name, read `best`. */
typedef struct Suggestion {
    const char *word;
    const char *best; /* NULL: no name is close enough */
    size_t distance;
} Suggestion;

void suggest_offer(Suggestion *suggestion, const char *name);

#endif
