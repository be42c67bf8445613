/* The known name nearest to a mistyped one, for "did you mean". */
#ifndef WEFT_BASE_SUGGEST_H
#define WEFT_BASE_SUGGEST_H

#include <stddef.h>

/* Edits (insert, delete, replace, swap neighbours) that turn one word into the other. Case does not
 * count, and '-', '_' and '.' are the same letter. Words over 64 letters are infinitely far. */
size_t suggest_distance(const char *a, const char *b);

/* The nearest of a NULL-terminated list; NULL when none is near enough to be meant. */
const char *suggest(const char *word, const char *const *names);

/* The same for names that do not lie in a list: start with {.word = ...}, offer each, take best. */
typedef struct Suggestion {
    const char *word;
    const char *best; /* NULL: none is near enough */
    size_t distance;
} Suggestion;

void suggest_offer(Suggestion *suggestion, const char *name);

#endif
