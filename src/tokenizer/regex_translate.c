/* Translates a pattern from Oniguruma's syntax to PCRE2's. Sets of characters are written out, so that they
 * are those of unicode.h whatever version of Unicode PCRE2 has, and so are words for \b and letters whose
 * case is ignored. What means something else in PCRE2, or has no counterpart, is written differently or
 * refused:
 *
 *   (?m:...)   lets . match a newline, and ^ and $ are always at lines
 *   a(?i)b|c   is a(?i:b|c)
 *   a{1,3}+    is (?:a{1,3})+, not possessive
 */
#include "tokenizer/regex_scan.h"

enum { NONE = -1 };

typedef struct Translation {
    RegexScan scan;
    Bytes out;
} Translation;

static Status put(Translation *translation, const char *text) {
    return bytes_add(&translation->out, text, strlen(text));
}

/* ---- sets ---- */

enum { SURROGATES = 0xD800, AFTER_SURROGATES = 0xE000 };

/* PCRE2 rejects surrogates as ends of a range. */
static Status put_range(Translation *translation, uint32_t first, uint32_t last) {
    char text[40];
    if (first >= SURROGATES && first < AFTER_SURROGATES) first = AFTER_SURROGATES;
    if (last >= SURROGATES && last < AFTER_SURROGATES) last = SURROGATES - 1;
    if (first > last) return OK;
    snprintf(text, sizeof text, first < last ? "\\x{%x}-\\x{%x}" : "\\x{%x}", first, last);
    return put(translation, text);
}

static Status put_set(Translation *translation, const CharSet *set) {
    bool negative = char_set_has(set, UTF8_INVALID), empty = true;
    TRY(put(translation, negative ? "[^" : "["));
    for (uint32_t c = 0, end; c < UTF8_INVALID; c = end) {
        for (end = c + 1; end < UTF8_INVALID && char_set_has(set, end) == char_set_has(set, c);) end++;
        if (char_set_has(set, c) == negative) continue;
        size_t before = translation->out.size;
        TRY(put_range(translation, c, end - 1));
        empty &= translation->out.size == before;
    }
    if (!empty) return put(translation, "]");
    translation->out.size -= negative ? 2 : 1;
    return put(translation, negative ? "(?s:.)" : "(?!)");
}

static Status put_next_set(Translation *translation) {
    CLEANUP(mem_freep) CharSet *set = NULL;
    TRY(mem_new(1, sizeof *set, &set));
    TRY(scan_set(&translation->scan, set));
    return put_set(translation, set);
}

/* \b: a word character on one side only; \B: on both or neither. */
static Status put_boundary(Translation *translation, bool is) {
    CLEANUP(mem_freep) CharSet *word = NULL;
    TRY(mem_new(1, sizeof *word, &word));
    char_set_add_property(word, PROPERTY_WORD);
    TRY(put(translation, "(?(?<="));
    TRY(put_set(translation, word));
    TRY(put(translation, is ? ")(?!" : ")(?="));
    TRY(put_set(translation, word));
    TRY(put(translation, is ? ")|(?=" : ")|(?!"));
    TRY(put_set(translation, word));
    return put(translation, "))");
}

static Status put_char(Translation *translation, const uint32_t chars[3]) {
    TRY(put(translation, "["));
    for (int i = 0; i < 3; i++)
        if (i == 0 || chars[i] != chars[i - 1]) TRY(put_range(translation, chars[i], chars[i]));
    return put(translation, "]");
}

/* ---- groups ---- */

/* *ret_empty: whether it can match the empty string. */
static Status put_any(Translation *translation, bool *ret_empty);

/* The letters of (?i: or (?m-i) */
static bool read_options(RegexScan *scan) {
    bool on = true;
    size_t ahead = 0;
    bool fold = scan->fold, dotall = scan->dotall;
    for (;; ahead++) {
        int c = scan_peek(scan, ahead);
        if (c == '-')
            on = false;
        else if (c == 'i')
            fold = on;
        else if (c == 'm')
            dotall = on;
        else if ((c == ':' || c == ')') && ahead > 0)
            break;
        else
            return false;
    }
    scan->at += ahead;
    scan->fold = fold;
    scan->dotall = dotall;
    return true;
}

static bool skip_name(RegexScan *scan) {
    size_t ahead = 0;
    if (scan_peek(scan, 0) != '?' || scan_peek(scan, 1) != '<') return false;
    for (ahead = 2; scan_peek(scan, ahead) != '>'; ahead++) {
        int c = scan_peek(scan, ahead);
        bool letter = c == '_' || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
        if (!letter && (ahead == 2 || c < '0' || c > '9')) return false;
    }
    scan->at += ahead + 1;
    return ahead > 2;
}

/* Reads the start of a group and writes what it is in PCRE2. *ret_rest: (?i), whose group is the rest of this
 * one. */
static Status put_group_start(Translation *translation, size_t start, bool *ret_rest, bool *ret_asserts) {
    static const char *const same[] = {"?:", "?>", "?=", "?!", "?<=", "?<!"};
    RegexScan *scan = &translation->scan;
    TRY(put(translation, "("));
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        if (!scan_accept(scan, same[i])) continue;
        *ret_asserts = i >= 2;
        return put(translation, same[i]);
    }
    TRY(put(translation, "?:"));
    if (skip_name(scan)) return OK;
    if (scan_peek(scan, 0) != '?')
        return scan_peek(scan, 0) == '*' ? scan_refuse(scan, start, 2, "the group") : OK;
    scan->at++;
    if (!read_options(scan)) return scan_refuse(scan, start, 4, "the group");
    *ret_rest = scan_accept(scan, ")");
    scan->at += !*ret_rest;
    return OK;
}

static Status put_group(Translation *translation, bool *ret_empty) {
    RegexScan *scan = &translation->scan;
    size_t start = scan->at++;
    bool fold = scan->fold, dotall = scan->dotall, rest = false, asserts = false;
    if (scan_accept(scan, "?#")) {
        *ret_empty = true;
        while (scan_peek(scan, 0) != ')')
            if (scan_peek(scan, 0) == NONE || scan_peek(scan, 0) == '\\')
                return scan_refuse(scan, start, 3, "an unfinished comment");
            else
                scan->at++;
        scan->at++;
        return OK;
    }
    if (++scan->depth > REGEX_DEPTH_LIMIT) return scan_refuse(scan, start, 1, "too deep a group");
    TRY(put_group_start(translation, start, &rest, &asserts));
    TRY(put_any(translation, ret_empty));
    TRY(put(translation, ")"));
    *ret_empty |= asserts;
    if (!rest && !scan_accept(scan, ")")) return scan_refuse(scan, start, 1, "an unfinished group");
    scan->depth--;
    if (rest) return OK; /* the options hold until the end of the group around it */
    scan->fold = fold;
    scan->dotall = dotall;
    return OK;
}

/* ---- atoms and quantifiers ---- */

/* Anchors, \b and \R; *ret_found is false if none comes next. */
static Status put_special(Translation *translation, bool *ret_found, bool *ret_empty) {
    static const char *const anchors[] = {"^", "$", "\\A", "\\z", "\\Z"};
    RegexScan *scan = &translation->scan;
    *ret_found = *ret_empty = true;
    for (size_t i = 0; i < sizeof anchors / sizeof *anchors; i++)
        if (scan_accept(scan, anchors[i])) return put(translation, anchors[i]);
    if (scan_accept(scan, "\\b")) return put_boundary(translation, true);
    if (scan_accept(scan, "\\B")) return put_boundary(translation, false);
    *ret_empty = false;
    if (scan_accept(scan, "\\R")) return put(translation, "\\R");
    *ret_found = false;
    return OK;
}

/* *previous is the character that this atom is, or 0. */
static Status put_atom(Translation *translation, uint32_t *previous, bool *ret_empty) {
    RegexScan *scan = &translation->scan;
    uint32_t before = *previous, chars[3];
    bool special = false;
    *previous = 0;
    TRY(put_special(translation, &special, ret_empty));
    if (special) return OK;
    int c = scan_peek(scan, 0);
    if (c == '(') return put_group(translation, ret_empty);
    if (scan_is_set(scan)) return put_next_set(translation);
    if (strchr("*+?", c)) return scan_refuse(scan, scan->at, 1, "nothing to repeat before");
    TRY(scan_char(scan, before, chars));
    *previous = chars[0];
    return put_char(translation, chars);
}

/* Makes a group of what was written from `start` on. */
static Status put_around(Translation *translation, size_t start) {
    Bytes *out = &translation->out;
    TRY(put(translation, "(?:)"));
    memmove(out->data + start + 3, out->data + start, out->size - start - 4);
    memcpy(out->data + start, "(?:", 3);
    return OK;
}

static Status put_quantifier(Translation *translation, size_t start, bool *empty, uint32_t *previous) {
    RegexScan *scan = &translation->scan;
    size_t at = scan->at;
    RegexRepeat repeat = {0};
    char text[40];
    TRY(scan_quantifier(scan, &repeat));
    if (!repeat.any) return OK;
    *previous = 0;
    if (*empty)
        return scan_refuse(scan, at, scan->at - at, "after something that can be empty the quantifier");
    *empty = repeat.low == 0;
    if (repeat.high == REGEX_UNLIMITED)
        snprintf(text, sizeof text, "{%u,}", repeat.low);
    else
        snprintf(text, sizeof text, "{%u,%u}", repeat.low, repeat.high);
    /* Without the group, just-in-time code of PCRE2 10.42 takes a lazy loop in (?>...) for a greedy one. */
    if (repeat.lazy) TRY(put_around(translation, start));
    TRY(put(translation, text));
    if (repeat.again) TRY(put_around(translation, start));
    return put(translation, repeat.again || repeat.possessive ? "+" : repeat.lazy ? "?" : "");
}

static Status put_all(Translation *translation, bool *ret_empty) {
    RegexScan *scan = &translation->scan;
    uint32_t previous = 0;
    *ret_empty = true;
    for (int c; (c = scan_peek(scan, 0)) != NONE && c != '|' && c != ')';) {
        size_t start = translation->out.size;
        bool empty = false;
        TRY(put_atom(translation, &previous, &empty));
        TRY(put_quantifier(translation, start, &empty, &previous));
        *ret_empty &= empty;
    }
    return OK;
}

static Status put_any(Translation *translation, bool *ret_empty) {
    bool empty = false;
    TRY(put_all(translation, ret_empty));
    while (scan_accept(&translation->scan, "|")) {
        TRY(put(translation, "|"));
        TRY(put_all(translation, &empty));
        *ret_empty |= empty;
    }
    return OK;
}

static void translation_done(Translation *translation) {
    bytes_done(&translation->out);
}

Status regex_translate(const char *pattern, size_t size, const char *from, char **ret_pattern) {
    CLEANUP(translation_done)
    Translation translation = {.scan = {.pattern = pattern, .from = from, .size = size}};
    bool empty;
    TRY(put_any(&translation, &empty));
    RegexScan *scan = &translation.scan;
    if (scan->at < size) return scan_refuse(scan, scan->at, 1, "an unmatched");
    TRY(bytes_add(&translation.out, "", 1));
    *ret_pattern = translation.out.data;
    translation.out = (Bytes){0};
    return OK;
}
