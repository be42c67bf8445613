/* Normalizes answers like the official scorer, matching Python character by character:
 *   lower()             simple case mapping per character, except that U+0130 (I with dot) becomes two
 *                       characters and a capital sigma takes its final form at the end of a word
 *   punctuation         the 32 ASCII punctuation characters are removed
 *   \b(a|an|the)\b      whole words, where a word is a run of letters and numbers; combining marks end it
 *   ' '.join(split())   white space as defined by str.split
 * The input is valid UTF-8; jansson has checked it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/squad.h"
#include "tokenizer/unicode.h"

enum { CAPITAL_I_DOT = 0x130, DOT_ABOVE = 0x307, CAPITAL_SIGMA = 0x3A3, SIGMA = 0x3C3, FINAL_SIGMA = 0x3C2 };

void normal_answer_done(NormalAnswer *answer) {
    free(answer->chars);
    free(answer->word);
    *answer = (NormalAnswer){0};
}

static size_t decode(const char *text, size_t size, uint32_t *chars) {
    size_t count = 0;
    for (size_t at = 0; at < size;) at += utf8_next(text + at, size - at, &chars[count++]);
    return count;
}

/* ---- lower case ---- */

/* The final form is used after a cased character if no cased character follows, skipping
 * case-ignorable ones. */
static uint32_t lower_sigma(const uint32_t *chars, size_t count, size_t at) {
    size_t before = at, after = at + 1;
    while (before > 0 && char_is_case_ignorable(chars[before - 1])) before--;
    if (before == 0 || !char_is_cased(chars[before - 1])) return SIGMA;
    while (after < count && char_is_case_ignorable(chars[after])) after++;
    return after < count && char_is_cased(chars[after]) ? SIGMA : FINAL_SIGMA;
}

/* `to` must have space for 2 * count characters. */
static size_t lower(const uint32_t *chars, size_t count, uint32_t *to) {
    size_t made = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t c = chars[i];
        if (c == CAPITAL_SIGMA) {
            to[made++] = lower_sigma(chars, count, i);
        } else if (c == CAPITAL_I_DOT) {
            to[made++] = 'i';
            to[made++] = DOT_ABOVE;
        } else {
            to[made++] = char_lower(c);
        }
    }
    return made;
}

/* ---- words ---- */

static bool is_punctuation(uint32_t c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

static bool is_word(uint32_t c) {
    return c == '_' || char_class(c) & (CHAR_LETTER | CHAR_NUMBER);
}

static bool is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
           c == 0x3000;
}

static bool is_article(const uint32_t *word, size_t size) {
    if (size < 1 || size > 3) return false;
    if (size == 3) return word[0] == 't' && word[1] == 'h' && word[2] == 'e';
    return word[0] == 'a' && (size == 1 || word[1] == 'n');
}

static void blank_articles(uint32_t *chars, size_t count) {
    for (size_t at = 0; at < count;) {
        size_t end = at;
        while (end < count && is_word(chars[end])) end++;
        if (is_article(chars + at, end - at))
            for (size_t i = at; i < end; i++) chars[i] = ' ';
        at = end + 1;
    }
}

/* Joins the words with single spaces, in place, and records their positions. */
static Status join_words(NormalAnswer *answer) {
    size_t to = 0;
    answer->words = 0;
    for (size_t at = 0; at < answer->count;) {
        size_t end = at;
        while (end < answer->count && !is_space(answer->chars[end])) end++;
        if (end > at) {
            if (to) answer->chars[to++] = ' ';
            TRY(mem_grow(&answer->word, &answer->word_capacity, answer->words + 1, sizeof *answer->word));
            answer->word[answer->words++] = (struct NormalWord){to, end - at};
            memmove(answer->chars + to, answer->chars + at, (end - at) * sizeof *answer->chars);
            to += end - at;
        }
        at = end + 1;
    }
    answer->count = to;
    return OK;
}

Status normal_answer_set(NormalAnswer *answer, const char *text, size_t size) {
    /* lower case at the start of the buffer, the original text after it */
    TRY(mem_grow(&answer->chars, &answer->capacity, 3 * size + 1, sizeof *answer->chars));
    uint32_t *chars = answer->chars, *original = chars + 2 * size;
    size_t count = lower(original, decode(text, size, original), chars), kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!is_punctuation(chars[i])) chars[kept++] = chars[i];
    blank_articles(chars, kept);
    answer->count = kept;
    return join_words(answer);
}

/* ---- comparison ---- */

bool normal_answer_same(const NormalAnswer *a, const NormalAnswer *b) {
    return a->count == b->count && !memcmp(a->chars, b->chars, a->count * sizeof *a->chars);
}

static int compare_words(const uint32_t *chars_a, struct NormalWord a, const uint32_t *chars_b,
                         struct NormalWord b) {
    if (a.size != b.size) return a.size < b.size ? -1 : 1;
    return memcmp(chars_a + a.start, chars_b + b.start, a.size * sizeof *chars_a);
}

static int by_word(const void *a, const void *b, void *chars) {
    return compare_words(chars, *(const struct NormalWord *)a, chars, *(const struct NormalWord *)b);
}

static void sort_words(NormalAnswer *answer) {
    if (answer->words > 1) qsort_r(answer->word, answer->words, sizeof *answer->word, by_word, answer->chars);
}

/* Number of common words, counted with multiplicity. */
static size_t count_same(const NormalAnswer *a, const NormalAnswer *b) {
    size_t same = 0;
    for (size_t i = 0, k = 0; i < a->words && k < b->words;) {
        int order = compare_words(a->chars, a->word[i], b->chars, b->word[k]);
        same += order == 0;
        i += order <= 0;
        k += order >= 0;
    }
    return same;
}

double normal_answer_f1(NormalAnswer *gold, NormalAnswer *found) {
    if (gold->words == 0 || found->words == 0) return gold->words == found->words;
    sort_words(gold);
    sort_words(found);
    size_t same = count_same(gold, found);
    if (same == 0) return 0;
    double precision = (double)same / (double)found->words, recall = (double)same / (double)gold->words;
    return (2 * precision * recall) / (precision + recall);
}
