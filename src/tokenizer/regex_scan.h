/* Reading a pattern from left to right, shared by regex_parse.c and regex_translate.c. */
#ifndef WEFT_TOKENIZER_REGEX_SCAN_H
#define WEFT_TOKENIZER_REGEX_SCAN_H

#include "tokenizer/regex.h"

enum { REGEX_DEPTH_LIMIT = 40 };

typedef struct RegexScan {
    const char *pattern, *from;
    size_t size, at;
    int depth;
    bool fold, dotall; /* inside (?i:...), (?m:...) */
} RegexScan;

/* An error that quotes `length` bytes at an offset of the pattern. */
Status scan_refuse(const RegexScan *scan, size_t at, size_t length, const char *what);
/* The byte after `ahead` others, or -1. */
int scan_peek(const RegexScan *scan, size_t ahead);
/* Reads `text` if it comes next. */
bool scan_accept(RegexScan *scan, const char *text);

/* Whether a class, a dot or an escape for a set comes next, which scan_set reads. */
bool scan_is_set(const RegexScan *scan);
MUST_USE Status scan_set(RegexScan *scan, CharSet *set);
/* Reads one character: one of up to three if case is ignored, unused ones repeat the first. `previous`: the
 * character before it, 0 if that is none. */
MUST_USE Status scan_char(RegexScan *scan, uint32_t previous, uint32_t ret_chars[3]);

typedef struct RegexRepeat {
    bool any; /* there is a quantifier */
    bool braces, possessive, lazy;
    bool again; /* {n,m}+, which repeats the repetition */
    uint32_t low, high;
} RegexRepeat;

/* Reads a quantifier if one comes next. */
MUST_USE Status scan_quantifier(RegexScan *scan, RegexRepeat *ret_repeat);

/* Translates a pattern for PCRE2 (regex_translate.c); the caller frees it. */
MUST_USE Status regex_translate(const char *pattern, size_t size, const char *from, char **ret_pattern);

#endif
