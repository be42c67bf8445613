/* Damerau-Levenshtein distance in its optimal string alignment form: three rows of the usual
 * table, the oldest for swaps of adjacent letters.
 *
 * A wrong suggestion is worse than none, so the rules are strict. A name is offered if
 * - it differs by one typing error (two from 7 letters, three from 12) and starts with the same letter,
 *   unless that one was left out, added, swapped or, in a long name, replaced; words and names of up to two
 *   letters must have the same letters; or
 * - the word abbreviates it ("gen", "eval-b"), or it starts the word ("batch-size", "evaluate").
 * Digits are never typing errors: beta3 is not beta1, and fp64 is not fp32. */
#include "base/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { LONGEST = 64, ABBREVIATION = 3, STEM = 4 };

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

static const char *next_digit(const char *text) {
    return text + strcspn(text, "0123456789");
}

static bool same_digits(const char *a, const char *b) {
    for (a = next_digit(a), b = next_digit(b); *a && *a == *b; a = next_digit(a + 1), b = next_digit(b + 1)) {
    }
    return *a == *b;
}

static bool same_letters(const char *a, const char *b) {
    int counts[256] = {0};
    for (; *a; a++) counts[letter(*a) & 255]++;
    for (; *b; b++) counts[letter(*b) & 255]--;
    for (int i = 0; i < 256; i++)
        if (counts[i]) return false;
    return true;
}

static bool mistyped(const char *word, const char *name, size_t distance) {
    size_t a = strlen(word), b = strlen(name), longer = a > b ? a : b;
    if (!same_digits(word, name)) return false;
    if (a <= 2) return same_letters(word, name);
    if (b <= 2) return strspn(word, name) == a;
    if (letter(*word) == letter(*name)) return distance <= (longer < 7 ? 1u : longer < 12 ? 2u : 3u);
    bool replaced = a == b && !same_letters(word, name);
    return longer > (replaced ? 7u : 3u) && distance <= 1;
}

static bool abbreviated(const char *word, const char *name) {
    size_t a = strlen(word), b = strlen(name), same = 0;
    while (word[same] && name[same] && letter(word[same]) == letter(name[same])) same++;
    if (same == a) return a >= ABBREVIATION;
    if (same < b) return false;
    if (letter(word[b]) == '-') return b >= ABBREVIATION && a <= 3 * b;
    return b >= STEM && a <= 2 * b && isalpha((unsigned char)word[b]);
}

void suggest_offer(Suggestion *suggestion, const char *name) {
    size_t distance = suggest_distance(suggestion->word, name);
    if (distance == SIZE_MAX) return;
    bool typo = mistyped(suggestion->word, name, distance);
    if (!typo && !abbreviated(suggestion->word, name)) return;
    if (!typo) distance += LONGEST; /* ranks below any mistyped name */
    if (suggestion->best && distance >= suggestion->distance) return;
    suggestion->best = name;
    suggestion->distance = distance;
}

const char *suggest(const char *word, const char *const *names) {
    Suggestion suggestion = {.word = word};
    for (; *names; names++) suggest_offer(&suggestion, *names);
    return suggestion.best;
}
