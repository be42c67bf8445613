/* Damerau-Levenshtein distance in its optimal string alignment form: three rows of the usual
 * table, the oldest for swaps of adjacent letters. A name is close enough if at most a third of the longer
 * word is wrong, or if one is a prefix of the other. */
#include "base/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { LONGEST = 64 };

static int letter(char c) {
    return c == '_' || c == '.' ? '-' : tolower((unsigned char)c);
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t suggest_distance(const char *a, const char *b) {
    size_t rows = strlen(a), columns = strlen(b);
    if (rows > LONGEST || columns > LONGEST) return SIZE_MAX;
    size_t table[3][LONGEST + 1];
    for (size_t j = 0; j <= columns; j++) table[0][j] = j;
    for (size_t i = 1; i <= rows; i++) {
        size_t *row = table[i % 3], *above = table[(i + 2) % 3], *before = table[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            bool same = letter(a[i - 1]) == letter(b[j - 1]);
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + !same);
            if (i > 1 && j > 1 && letter(a[i - 1]) == letter(b[j - 2]) &&
                letter(a[i - 2]) == letter(b[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return table[rows % 3][columns];
}

static bool one_begins_other(const char *a, const char *b) {
    size_t same = 0;
    while (a[same] && b[same] && letter(a[same]) == letter(b[same])) same++;
    return same >= 2 && (!a[same] || !b[same]);
}

void suggest_offer(Suggestion *suggestion, const char *name) {
    size_t distance = suggest_distance(suggestion->word, name);
    if (distance == SIZE_MAX) return;
    size_t a = strlen(suggestion->word), b = strlen(name), longer = a > b ? a : b;
    size_t allowed = longer < 3 ? longer / 2 : (longer + 2) / 3;
    bool near = distance <= allowed;
    /* A prefix match ranks below any match by edit distance. */
    if (!near && one_begins_other(name, suggestion->word)) {
        distance = allowed;
        near = true;
    }
    if (!near || (suggestion->best && distance >= suggestion->distance)) return;
    suggestion->best = name;
    suggestion->distance = distance;
}

const char *suggest(const char *word, const char *const *names) {
    Suggestion suggestion = {.word = word};
    for (; *names; names++) suggest_offer(&suggestion, *names);
    return suggestion.best;
}
