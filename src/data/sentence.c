/* Rule-based sentence splitting.
 *
 * The text is searched for stops (. ! ? and the ellipsis) and newlines. A blank line always ends a sentence.
 * A single newline ends one unless the text looks wrapped: the next line begins with a lowercase letter, or
 * the previous line has the length of a wrapped line and ends in a lowercase word or a comma. A stop ends a
 * sentence if white space follows it (after closing quotes and brackets) and the next word does not begin
 * with a lowercase letter. After a full stop, the preceding word matters too:
 *   a title (Dr.), a reference (No. 5), an initial (J.), e.g.         the sentence continues
 *   an abbreviation that may end one (Inc., U.S., Jan., 5 p.m.)      it ends if the next word usually
 *                                                                    begins a sentence (The, It, ...)
 *   a number at the start of a line (1. First)                       the sentence continues
 * All rules look at a word or two on either side, so splitting can start anywhere.
 */
#include "data/sentence.h"

#include <stdint.h>
#include <string.h>

enum {
    WORD_LIMIT = 24,  /* buffer size of words that are looked up */
    LOOK_BACK = 120,  /* maximum distance to the start of a word */
    WRAP_LOW = 50,    /* shortest line that counts as wrapped */
    WRAP_HIGH = 100,  /* longest line that counts as wrapped */
    LAST_SPAN = 16384 /* bytes that sentence_last_end searches */
};

/* All lists are sorted by strcmp. */
static const char *const titles[] = {
    "adm", "asst", "brig", "capt", "cmdr",   "col",  "comdr", "cpl",  "dr",   "drs", "fr",  "gen",  "gov",
    "hon", "insp", "lt",   "maj",  "messrs", "mlle", "mme",   "mmes", "mr",   "mrs", "ms",  "msgr", "mx",
    "pfc", "pres", "prof", "pvt",  "rep",    "reps", "rev",   "sen",  "sens", "sgt", "supt"};
/* Never end a sentence. */
static const char *const inner[] = {"approx", "ca", "cf", "e.g", "eg", "i.e", "ie", "viz", "vs"};
/* Do not end a sentence if a number follows. */
static const char *const counted[] = {"app", "art", "arts", "bk",   "ch",   "chap", "cl",  "ed",  "eq",
                                      "eqs", "ex",  "fig",  "figs", "fn",   "lib",  "ll",  "no",  "nos",
                                      "nr",  "op",  "p",    "par",  "para", "pp",   "pt",  "sec", "sect",
                                      "ser", "sig", "tab",  "v",    "ver",  "vol",  "vols"};
/* Abbreviations that may end a sentence: capitalized ones (names), and others. */
static const char *const maybe_names[] = {
    "ala",   "apr",   "ariz", "ark",  "assn", "assoc", "aug",  "ave",  "bd",   "bhd",  "bldg", "blvd", "bros",
    "cal",   "calif", "cie",  "co",   "colo", "conn",  "corp", "ctr",  "dak",  "dec",  "dept", "dist", "div",
    "esq",   "est",   "feb",  "fla",  "fri",  "ft",    "ga",   "govt", "hwy",  "inc",  "inst", "intl", "jan",
    "jr",    "jul",   "jun",  "llc",  "ltd",  "mar",   "md",   "mfg",  "mich", "minn", "mon",  "mont", "mt",
    "mtn",   "mts",   "nat",  "natl", "neb",  "nev",   "nov",  "oct",  "okla", "ore",  "pa",   "ph",   "plc",
    "prov",  "pty",   "rd",   "rte",  "sep",  "sept",  "sq",   "sr",   "st",   "ste",  "tenn", "tex",  "thu",
    "thurs", "tue",   "tues", "univ", "va",   "vt",    "wis"};
static const char *const maybe[] = {"al",  "approx", "avg",   "bros", "corp", "dept", "esp", "est",
                                    "ft",  "hr",     "hrs",   "inc",  "incl", "jr",   "km",  "lbs",
                                    "ltd", "oz",     "pseud", "resp", "ret",  "sp",   "spp", "sq",
                                    "sr",  "subsp",  "temp",  "var",  "yr",   "yrs"};
/* Words that begin sentences far more often than they are names. */
static const char *const starters[] = {
    "a",       "according", "after",   "all",       "also",      "although",  "among",   "an",      "and",
    "another", "as",        "at",      "because",   "before",    "both",      "but",     "by",      "despite",
    "during",  "each",      "every",   "few",       "finally",   "following", "for",     "from",    "he",
    "her",     "here",      "his",     "how",       "however",   "if",        "in",      "instead", "it",
    "its",     "later",     "many",    "meanwhile", "most",      "much",      "my",      "no",      "nor",
    "not",     "of",        "on",      "once",      "one",       "only",      "or",      "other",   "others",
    "our",     "over",      "several", "she",       "since",     "so",        "some",    "such",    "that",
    "the",     "their",     "then",    "there",     "therefore", "these",     "they",    "this",    "those",
    "though",  "through",   "thus",    "to",        "today",     "two",       "under",   "unlike",  "until",
    "upon",    "using",     "was",     "we",        "were",      "what",      "when",    "where",   "whereas",
    "which",   "while",     "who",     "why",       "with",      "within",    "without", "you",     "your"};
/* Verbs of speech. A name before one of them continues the sentence: "Why?" John asked. */
static const char *const speaking[] = {
    "added",    "adds",     "answered", "asked",   "asks", "commented", "cried",   "explained", "noted",
    "recalled", "remarked", "replied",  "replies", "said", "says",      "shouted", "told",      "wrote"};

typedef struct Text {
    const unsigned char *at;
    size_t size;
} Text;

/* ---- characters ---- */

/* Decodes the character at `at`; 0 at the end. Invalid bytes are read as the letter 'x'. */
static uint32_t char_at(Text text, size_t at, size_t *ret_bytes) {
    *ret_bytes = 1;
    if (at >= text.size) return 0;
    const unsigned char *c = text.at + at;
    size_t left = text.size - at;
    if (c[0] < 0x80) return c[0] ? c[0] : 'x';
    if (c[0] >= 0xC2 && c[0] < 0xE0 && left > 1) {
        *ret_bytes = 2;
        return (uint32_t)(c[0] & 0x1F) << 6 | (c[1] & 0x3F);
    }
    if (c[0] >= 0xE0 && c[0] < 0xF0 && left > 2) {
        *ret_bytes = 3;
        return (uint32_t)(c[0] & 0x0F) << 12 | (uint32_t)(c[1] & 0x3F) << 6 | (c[2] & 0x3F);
    }
    return 'x';
}

static bool is_space(unsigned char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(uint32_t c) {
    return c >= '0' && c <= '9';
}

/* Lowercase Latin, Greek and Cyrillic letters. */
static bool is_lower(uint32_t c) {
    if (c < 0x80) return c >= 'a' && c <= 'z';
    if (c >= 0xDF && c <= 0xFF) return c != 0xF7;
    if (c >= 0x100 && c < 0x180) return c & 1;
    return (c >= 0x3AC && c <= 0x3CE) || (c >= 0x430 && c <= 0x45F);
}

static bool is_upper(uint32_t c) {
    if (c < 0x80) return c >= 'A' && c <= 'Z';
    if (c >= 0xC0 && c <= 0xDE) return c != 0xD7;
    if (c >= 0x100 && c < 0x180) return !(c & 1);
    return (c >= 0x391 && c <= 0x3A9) || (c >= 0x400 && c <= 0x42F);
}

static bool is_stop(uint32_t c) {
    return c == '.' || c == '!' || c == '?' || c == 0x2026;
}

static bool is_closer(uint32_t c) {
    return c == '"' || c == '\'' || c == ')' || c == ']' || c == '}' || c == 0xBB || c == 0x2019 ||
           c == 0x201D || c == 0x203A;
}

static bool is_opener(uint32_t c) {
    return c == '"' || c == '\'' || c == '(' || c == '[' || c == '{' || c == '`' || c == '*' || c == '-' ||
           c == 0xAB || c == 0xBF || c == 0xA1 || c == 0x2018 || c == 0x2013 || c == 0x2014 || c == 0x201C ||
           c == 0x2022 || c == 0x2039;
}

static size_t skip_spaces(Text text, size_t at) {
    while (at < text.size && is_space(text.at[at])) at++;
    return at;
}

/* ---- words ---- */

/* A word in lower case, for lookup; empty if it is too long or not ASCII. */
typedef struct Word {
    char text[WORD_LIMIT];
    size_t size;
    bool capital;     /* first letter is a capital */
    bool all_capital; /* all letters are capitals */
} Word;

static bool is_in(const char *const *list, size_t count, const Word *word) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(word->text, list[middle]);
        if (order == 0) return true;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}
#define IS_IN(list, word) is_in(list, sizeof(list) / sizeof *(list), word)

static Word word_of(Text text, size_t begin, size_t end) {
    Word word = {.all_capital = true};
    if (end - begin >= WORD_LIMIT || begin >= end) return (Word){0};
    word.capital = is_upper(text.at[begin]);
    for (size_t i = begin; i < end; i++) {
        unsigned char c = text.at[i];
        if (c >= 0x80) return (Word){.capital = word.capital};
        word.all_capital = word.all_capital && !is_lower(c);
        word.text[word.size++] = (char)(is_upper(c) ? c + 32 : c);
    }
    return word;
}

static bool in_word(unsigned char c) {
    return c >= 0x80 || is_lower(c) || is_upper(c) || is_digit(c);
}

/* The word that begins at `at`. */
static Word word_at(Text text, size_t at) {
    size_t end = at;
    while (end < text.size && end - at < WORD_LIMIT && in_word(text.at[end])) end++;
    return word_of(text, at, end);
}

/* Start of the word that ends at `end`. Full stops are part of a word; other punctuation separates words. */
static size_t word_begin(Text text, size_t end) {
    size_t begin = end;
    while (begin > 0 && end - begin < LOOK_BACK) {
        unsigned char c = text.at[begin - 1];
        if (!in_word(c) && c != '.') break;
        /* quotes and dashes encoded in three bytes */
        if (c >= 0x80 && begin >= 3 && text.at[begin - 3] == 0xE2 && text.at[begin - 2] == 0x80) break;
        begin--;
    }
    return begin;
}

/* ---- full stops ---- */

static bool is_number(const Word *word) {
    for (size_t i = 0; i < word->size; i++)
        if (!is_digit((unsigned char)word->text[i]) && word->text[i] != '.') return false;
    return word->size > 0;
}

static bool begins_line(Text text, size_t at) {
    while (at > 0 && text.at[at - 1] != '\n' && is_space(text.at[at - 1])) at--;
    return at == 0 || text.at[at - 1] == '\n';
}

/* Whether the word is like "u.s", "a.m" or "ph.d": groups of up to three letters separated by full stops. */
static bool is_dotted(const Word *word) {
    size_t run = 0, stops = 0;
    for (size_t i = 0; i < word->size; i++) {
        bool stop = word->text[i] == '.';
        run = stop ? 0 : run + 1;
        stops += stop;
        if (run > 3 || is_digit((unsigned char)word->text[i])) return false;
    }
    return stops > 0;
}

/* Whether the letter before the stop is a complete word rather than an initial: "than I.", "6.6 g." */
static bool is_lone_letter(Text text, size_t begin, const Word *word) {
    size_t at = begin;
    while (at > 0 && is_space(text.at[at - 1])) at--;
    Word before = word_of(text, word_begin(text, at), at);
    if (!word->capital) return is_number(&before);
    return word->text[0] == 'i' && before.size > 0 && !before.capital &&
           !memchr(before.text, '.', before.size);
}

/* Whether the full stop after the word [begin, end) ends the sentence; `next` is the first letter or digit
 * after it. */
static bool full_stop_ends(Text text, size_t begin, size_t end, size_t next, bool closed) {
    Word word = word_of(text, begin, end), after = word_at(text, next);
    if (!word.size) return true;
    bool starter = after.capital && IS_IN(starters, &after);
    bool digit = next < text.size && is_digit(text.at[next]);
    bool number = digit || (after.all_capital && strspn(after.text, "ivxlc") == after.size);
    if (is_number(&word)) return !begins_line(text, begin) || word.size > 3;
    if (IS_IN(inner, &word) || (word.capital && IS_IN(titles, &word))) return false;
    if (IS_IN(counted, &word) && number && (word.size > 1 || !word.capital)) return false;
    if (word.size == 1) return starter || closed || is_lone_letter(text, begin, &word);
    if (!strcmp(word.text, "a.m") || !strcmp(word.text, "p.m"))
        return after.capital && (!after.all_capital || after.size == 1);
    if (is_dotted(&word)) return starter;
    bool short_form = IS_IN(maybe, &word) || (word.capital && IS_IN(maybe_names, &word));
    return !short_form || starter || (closed && !word.capital);
}

/* ---- sentence ends ---- */

/* Skips stops, closing quotes and brackets, and references such as [12]. */
static size_t skip_closers(Text text, size_t at, bool *ret_closed, bool *ret_quoted) {
    size_t bytes;
    for (;;) {
        uint32_t c = char_at(text, at, &bytes);
        size_t digits = at + 1;
        if (c == '[') {
            while (digits < text.size && is_digit(text.at[digits])) digits++;
            if (digits == at + 1 || digits >= text.size || text.at[digits] != ']') return at;
            bytes = digits + 1 - at;
        } else if (is_closer(c)) {
            *ret_closed = true;
            *ret_quoted |= c == '"' || c == 0x201D || c == '\'' || c == 0x2019;
        } else if (!is_stop(c)) {
            return at;
        }
        at += bytes;
    }
}

/* Whether the text continues like: "Why?" John asked. */
static bool continues_speech(Text text, size_t next) {
    size_t at = next;
    while (at < text.size && in_word(text.at[at])) at++;
    size_t second = skip_spaces(text, at);
    Word verb = word_at(text, second);
    return second > at && verb.size && IS_IN(speaking, &verb);
}

static size_t count_newlines(Text text, size_t from, size_t to) {
    size_t count = 0;
    for (size_t i = from; i < to; i++) count += text.at[i] == '\n';
    return count;
}

/* Skips opening quotes and brackets. */
static size_t skip_openers(Text text, size_t at) {
    size_t bytes;
    while (is_opener(char_at(text, at, &bytes))) at = skip_spaces(text, at + bytes);
    return at;
}

/* Whether the stop at `at` ends the sentence; *ret_end is just past the last character that belongs to
 * it. */
static bool stop_ends(Text text, size_t at, size_t *ret_end) {
    size_t bytes;
    bool closed = false, quoted = false;
    uint32_t c = char_at(text, at, &bytes);
    size_t end = skip_closers(text, at + bytes, &closed, &quoted);
    *ret_end = end;
    if (end < text.size && !is_space(text.at[end])) return false;
    size_t space = skip_spaces(text, end);
    if (space >= text.size || count_newlines(text, end, space) > 1) return true;
    size_t next = skip_openers(text, space);
    uint32_t first = char_at(text, next, &bytes), second = char_at(text, next + bytes, &bytes);
    if (is_lower(first)) return is_upper(second); /* "iPhones are sold." */
    if (first < 0x80 && !is_upper(first) && !is_digit(first)) return next > space || first == '$';
    if (c != '.') return !(quoted && continues_speech(text, next));
    if (end > at + 1 && text.at[at + 1] == '.') return true; /* an ellipsis */
    return full_stop_ends(text, word_begin(text, at), at, next, closed);
}

/* Whether the line that ends at `end` ends the sentence; the next line begins at `next`. */
static bool line_ends(Text text, size_t end, size_t next) {
    if (count_newlines(text, end, next) > 1) return true;
    size_t bytes, begin = end;
    if (is_lower(char_at(text, next, &bytes))) return false;
    while (begin > 0 && end - begin <= WRAP_HIGH && text.at[begin - 1] != '\n') begin--;
    size_t length = end - begin;
    if (length < WRAP_LOW || length > WRAP_HIGH) return true;
    unsigned char last = text.at[end - 1];
    if (last == ',' || last == ';' || last == '-') return false;
    size_t word = end;
    while (word > begin && !is_space(text.at[word - 1])) word--;
    return !is_lower(char_at(text, word, &bytes)) || !in_word(last);
}

static bool is_mark(unsigned char c) {
    return c == '.' || c == '!' || c == '?' || c == '\n' || c == 0xE2;
}

/* Next offset at or after `at` where a sentence may end. */
static size_t find_mark(Text text, size_t at) {
    while (at < text.size && !is_mark(text.at[at])) at++;
    return at;
}

size_t sentence_end(const char *bytes, size_t size, size_t from) {
    Text text = {(const unsigned char *)bytes, size};
    size_t begin = skip_spaces(text, from);
    for (size_t at = find_mark(text, begin); at < size; at = find_mark(text, at)) {
        size_t end = at + 1, length;
        bool ends = false;
        if (text.at[at] == '\n') {
            while (at > begin && is_space(text.at[at - 1])) at--;
            end = at;
            at = skip_spaces(text, at);
            ends = at < size && line_ends(text, end, at);
        } else if (is_stop(char_at(text, at, &length))) {
            ends = stop_ends(text, at, &end);
            at = end;
        } else {
            at += length;
        }
        if (ends) return skip_spaces(text, end) < size ? end : size;
    }
    return size;
}

size_t sentence_last_end(const char *text, size_t size) {
    size_t from = size > LAST_SPAN ? size - LAST_SPAN : 0, last = 0;
    for (;;) {
        size_t end = sentence_end(text, size, from);
        if (end == size) break;
        last = from = end;
    }
    Text all = {(const unsigned char *)text, size};
    size_t stop = size > 1 && is_closer(all.at[size - 1]) ? size - 2 : size - 1;
    if (size == 0 || !is_stop(all.at[stop])) return last;
    return full_stop_ends(all, word_begin(all, stop), stop, size, false) ? size : last;
}
