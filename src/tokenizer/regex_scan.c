/* Characters, escapes and classes of a pattern. */
#include "tokenizer/regex_scan.h"

enum { REPEAT_LIMIT = 1000, NONE = -1 };

/* ---- errors and characters ---- */

Status scan_refuse(const RegexScan *scan, size_t at, size_t length, const char *what) {
    if (length > scan->size - at) length = scan->size - at;
    while (at + length < scan->size && length && (scan->pattern[at + length] & 0xC0) == 0x80) length++;
    return FAILED("%s: the pattern '%.200s' has %s%s%.*s%s at offset %zu, which is not supported", scan->from,
                  scan->pattern, what, length ? " '" : "", (int)length, scan->pattern + at, length ? "'" : "",
                  at);
}

int scan_peek(const RegexScan *scan, size_t ahead) {
    size_t at = scan->at + ahead;
    return at < scan->size ? (unsigned char)scan->pattern[at] : NONE;
}

bool scan_accept(RegexScan *scan, const char *text) {
    size_t size = strlen(text);
    if (scan->size - scan->at < size || memcmp(scan->pattern + scan->at, text, size) != 0) return false;
    scan->at += size;
    return true;
}

/* ---- escapes ---- */

static int hex_value(int c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : NONE;
}

/* Up to `digits` hexadecimal digits, at least one. */
static Status parse_hex(RegexScan *scan, size_t start, int digits, uint32_t *ret_char) {
    uint32_t value = 0;
    int count = 0;
    for (; count < digits && hex_value(scan_peek(scan, 0)) != NONE; count++)
        value = value << 4 | (uint32_t)hex_value((unsigned char)scan->pattern[scan->at++]);
    if (count == 0 || value >= UTF8_INVALID) return scan_refuse(scan, start, 3, "the escape");
    *ret_char = value;
    return OK;
}

/* The character that an escape stands for, with the backslash already read. */
static Status parse_escaped_char(RegexScan *scan, uint32_t *ret_char) {
    size_t start = scan->at - 1;
    int c = scan_peek(scan, 0);
    if (c == NONE) return scan_refuse(scan, start, 1, "an unfinished escape");
    static const char names[] = "rntfvae", values[] = "\r\n\t\f\v\a\x1B";
    const char *found = strchr(names, c);
    if (found) {
        scan->at++;
        *ret_char = (unsigned char)values[found - names];
        return OK;
    }
    if (scan_accept(scan, "x{")) {
        TRY(parse_hex(scan, start, 6, ret_char));
        return scan_accept(scan, "}") ? OK : scan_refuse(scan, start, 3, "the escape");
    }
    if (scan_accept(scan, "x")) return parse_hex(scan, start, 2, ret_char);
    if (scan_accept(scan, "u")) return parse_hex(scan, start, 4, ret_char);
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return scan_refuse(scan, start, 2, "the escape");
    if (c >= '0' && c <= '9') return scan_refuse(scan, start, 2, "the escape");
    scan->at += utf8_next(scan->pattern + scan->at, scan->size - scan->at, ret_char);
    return OK;
}

/* \p{Name}, \P{Name} or \p{^Name}, with \p already read. */
static Status parse_property(RegexScan *scan, bool negative, CharSet *set) {
    size_t start = scan->at - 2;
    const char *close =
        scan->size > scan->at ? memchr(scan->pattern + scan->at, '}', scan->size - scan->at) : NULL;
    if (scan_peek(scan, 0) != '{' || !close) return scan_refuse(scan, start, 2, "a property without {...}:");
    const char *name = scan->pattern + scan->at + 1;
    scan->at = (size_t)(close - scan->pattern) + 1;
    if (*name == '^') negative = !negative, name++;
    size_t size = (size_t)(close - name);
    /* Oniguruma has two properties that differ from the classes of their names. */
    bool word = size == 4 && !strncasecmp(name, "word", 4),
         punct = size == 5 && !strncasecmp(name, "punct", 5);
    if (word) char_set_add_property(set, PROPERTY_WORD);
    if (punct) char_set_add_named(set, "P", 1);
    if (!word && !punct && !char_set_add_named(set, name, size) && !char_set_add_posix(set, name, size))
        return scan_refuse(scan, start, scan->at - start, "the property");
    if (negative) char_set_invert(set);
    return OK;
}

/* An escape that stands for a set: fills it and sets *ret_is_set. Otherwise reads nothing. `inside`: in a
 * class. */
static Status parse_escaped_set(RegexScan *scan, bool inside, CharSet *set, bool *ret_is_set) {
    int c = scan_peek(scan, 1);
    *ret_is_set = c != NONE && strchr("sSdDwWhHpP", c);
    if (!*ret_is_set) return OK;
    scan->at += 2;
    bool negative = c < 'a';
    switch (c | 0x20) {
    case 's': char_set_add_property(set, PROPERTY_SPACE); break;
    case 'w': char_set_add_property(set, inside ? PROPERTY_CLASS_WORD : PROPERTY_WORD); break;
    case 'd': char_set_add_named(set, "Nd", 2); break;
    case 'h':
        char_set_add(set, '0', '9');
        char_set_add(set, 'a', 'f');
        char_set_add(set, 'A', 'F');
        break;
    default: return parse_property(scan, negative, set);
    }
    if (negative) char_set_invert(set);
    return OK;
}

/* ---- character classes ---- */

static Status parse_class(RegexScan *scan, CharSet *set);

static Status parse_class_char(RegexScan *scan, uint32_t *ret_char) {
    if (scan_accept(scan, "\\")) return parse_escaped_char(scan, ret_char);
    scan->at += utf8_next(scan->pattern + scan->at, scan->size - scan->at, ret_char);
    return OK;
}

/* [:name:] or [:^name:] */
static Status parse_posix(RegexScan *scan, CharSet *set) {
    CLEANUP(mem_freep) CharSet *named = NULL;
    size_t start = scan->at;
    TRY(mem_new(1, sizeof *named, &named));
    scan->at += 2;
    bool negative = scan_accept(scan, "^");
    const char *name = scan->pattern + scan->at, *end = memmem(name, scan->size - scan->at, ":]", 2);
    size_t size = end ? (size_t)(end - name) : 0;
    if (!char_set_add_posix(named, name, size)) return scan_refuse(scan, start, size + 4, "the POSIX class");
    if (negative) char_set_invert(named);
    for (size_t i = 0; i < CHAR_SET_WORDS; i++) set->bits[i] |= named->bits[i];
    scan->at += size + 2;
    return OK;
}

/* A character, range, escape or nested class. */
static Status parse_class_item(RegexScan *scan, CharSet *set) {
    CLEANUP(mem_freep) CharSet *inner = NULL;
    size_t start = scan->at;
    TRY(mem_new(1, sizeof *inner, &inner));
    if (scan_peek(scan, 0) == '[') {
        if (scan_peek(scan, 1) == ':') return parse_posix(scan, set);
        scan->at++;
        TRY(parse_class(scan, inner));
        for (size_t i = 0; i < CHAR_SET_WORDS; i++) set->bits[i] |= inner->bits[i];
        return OK;
    }
    bool is_set = false;
    if (scan_peek(scan, 0) == '\\') TRY(parse_escaped_set(scan, true, inner, &is_set));
    if (is_set) {
        for (size_t i = 0; i < CHAR_SET_WORDS; i++) set->bits[i] |= inner->bits[i];
        return OK;
    }
    uint32_t first = 0, last = 0;
    TRY(parse_class_char(scan, &first));
    last = first;
    if (scan_peek(scan, 0) == '-' && scan_peek(scan, 1) != ']' && scan_peek(scan, 1) != NONE) {
        scan->at++;
        bool next_is_set = scan_peek(scan, 0) == '\\' && scan_peek(scan, 1) != NONE &&
                           strchr("sSdDwWhHpP", scan_peek(scan, 1));
        if (scan_peek(scan, 0) == '[' || next_is_set)
            return scan_refuse(scan, start, scan->at + 1 - start, "the range");
        TRY(parse_class_char(scan, &last));
    }
    if (last < first || first >= UTF8_INVALID || last >= UTF8_INVALID)
        return scan_refuse(scan, start, scan->at - start, "the range");
    char_set_add(set, first, last);
    return OK;
}

/* The rest of a class, whose [ has been read. */
static Status parse_class(RegexScan *scan, CharSet *set) {
    size_t start = scan->at - 1;
    if (++scan->depth > REGEX_DEPTH_LIMIT) return scan_refuse(scan, start, 1, "too deep a class");
    bool negative = scan_accept(scan, "^"), empty = true, bounded = false;
    CLEANUP(mem_freep) CharSet *bound = NULL;
    TRY(mem_new(1, sizeof *bound, &bound));
    char_set_invert(bound);
    while (!scan_accept(scan, "]")) {
        if (scan_peek(scan, 0) == NONE) return scan_refuse(scan, start, 1, "an unfinished class");
        if (scan_accept(scan, "&&")) {
            for (size_t i = 0; i < CHAR_SET_WORDS; i++) bound->bits[i] &= set->bits[i];
            memset(set, 0, sizeof *set);
            bounded = true;
            continue;
        }
        TRY(parse_class_item(scan, set));
        empty = false;
    }
    if (empty) return scan_refuse(scan, start, scan->at - start, "an empty class");
    for (size_t i = 0; bounded && i < CHAR_SET_WORDS; i++) set->bits[i] &= bound->bits[i];
    if (negative) char_set_invert(set);
    scan->depth--;
    return OK;
}

/* Oniguruma folds case by Unicode: the long s and the kelvin sign match s and k. */
static uint32_t folded_beyond_ascii(uint32_t lower) {
    return lower == 's' ? 0x17F : lower == 'k' ? 0x212A : lower;
}

static Status fold_set(const RegexScan *scan, size_t start, CharSet *set) {
    CLEANUP(mem_freep) CharSet *letters = NULL;
    TRY(mem_new(1, sizeof *letters, &letters));
    char_set_add_property(letters, PROPERTY_ALPHABETIC);
    for (size_t i = 2; i < CHAR_SET_WORDS; i++)
        if (set->bits[i] & letters->bits[i])
            return scan_refuse(scan, start, scan->at - start, "ignored case for the class");
    for (uint32_t c = 'a'; c <= 'z'; c++) {
        if (!char_set_has(set, c) && !char_set_has(set, c - 32)) continue;
        uint32_t other = folded_beyond_ascii(c);
        char_set_add(set, c, c);
        char_set_add(set, c - 32, c - 32);
        char_set_add(set, other, other);
    }
    return OK;
}

bool scan_is_set(const RegexScan *scan) {
    int c = scan_peek(scan, 0), after = scan_peek(scan, 1);
    return c == '[' || c == '.' || (c == '\\' && after != NONE && strchr("sSdDwWhHpP", after));
}

Status scan_set(RegexScan *scan, CharSet *set) {
    size_t start = scan->at;
    bool is_set = true;
    if (scan_accept(scan, "[")) {
        TRY(parse_class(scan, set));
    } else if (scan_accept(scan, ".")) {
        if (!scan->dotall) char_set_add(set, '\n', '\n');
        char_set_invert(set);
    } else {
        TRY(parse_escaped_set(scan, false, set, &is_set));
    }
    return scan->fold ? fold_set(scan, start, set) : OK;
}

/* With case ignored, these pairs would also match one character: ß, ﬀ, ﬁ, ﬂ, ﬆ. */
static bool folds_to_one(uint32_t previous, uint32_t lower) {
    static const char *const pairs[] = {"ss", "ff", "fi", "fl", "st"};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if ((previous | 0x20) == (uint32_t)pairs[i][0] && lower == (uint32_t)pairs[i][1]) return true;
    return false;
}

Status scan_char(RegexScan *scan, uint32_t previous, uint32_t ret_chars[3]) {
    size_t start = scan->at;
    uint32_t c = 0;
    TRY(parse_class_char(scan, &c));
    if (c >= UTF8_INVALID) return scan_refuse(scan, start, 0, "a byte that is not UTF-8");
    ret_chars[0] = ret_chars[1] = ret_chars[2] = c;
    if (!scan->fold) return OK;
    if (c >= 0x80) return scan_refuse(scan, start, scan->at - start, "ignored case for");
    uint32_t lower = c | 0x20;
    if (lower < 'a' || lower > 'z') return OK;
    if (folds_to_one(previous, lower))
        return scan_refuse(scan, start, 1, "ignored case for a pair that ends in");
    ret_chars[0] = lower;
    ret_chars[1] = lower - 32;
    ret_chars[2] = folded_beyond_ascii(lower);
    return OK;
}

/* {n}, {n,}, {,m} or {n,m}; otherwise the brace is a literal, as in Oniguruma, and nothing is read. */
static bool read_braces(RegexScan *scan, uint32_t *ret_low, uint32_t *ret_high) {
    uint32_t number[2] = {0, 0};
    bool given[2] = {false, false}, comma = false;
    size_t ahead = 1;
    for (int i = 0; i < 2; i++) {
        for (int c; (c = scan_peek(scan, ahead)) >= '0' && c <= '9' && number[i] <= REPEAT_LIMIT; ahead++) {
            number[i] = number[i] * 10 + (uint32_t)(c - '0');
            given[i] = true;
        }
        if (i == 0 && scan_peek(scan, ahead) == ',') comma = true, ahead++;
        if (!comma) break;
    }
    if (scan_peek(scan, ahead) != '}' || !(given[0] || given[1])) return false;
    scan->at += ahead + 1;
    *ret_low = number[0];
    *ret_high = !comma ? number[0] : given[1] ? number[1] : REGEX_UNLIMITED;
    return true;
}

Status scan_quantifier(RegexScan *scan, RegexRepeat *ret_repeat) {
    size_t start = scan->at;
    RegexRepeat repeat = {.low = 0, .high = REGEX_UNLIMITED, .any = true};
    if (scan_accept(scan, "+"))
        repeat.low = 1;
    else if (scan_accept(scan, "?"))
        repeat.high = 1;
    else if (!scan_accept(scan, "*")) {
        *ret_repeat = (RegexRepeat){0};
        if (scan_peek(scan, 0) != '{' || !read_braces(scan, &repeat.low, &repeat.high)) return OK;
        repeat.braces = true;
    }
    repeat.possessive = !repeat.braces && scan_accept(scan, "+");
    repeat.again = repeat.braces && scan_accept(scan, "+");
    repeat.lazy = !repeat.possessive && !repeat.again && scan_accept(scan, "?");
    int next = scan_peek(scan, 0);
    uint32_t low, high;
    size_t end = scan->at;
    bool twice = next == '+' || next == '?' || next == '*' || (next == '{' && read_braces(scan, &low, &high));
    scan->at = end;
    bool fixed = repeat.lazy && repeat.braces && repeat.low == repeat.high;
    if (twice || fixed) return scan_refuse(scan, start, scan->at + !fixed - start, "the quantifier");
    if (repeat.low > REPEAT_LIMIT || (repeat.high > REPEAT_LIMIT && repeat.high != REGEX_UNLIMITED) ||
        repeat.high < repeat.low || repeat.high == 0)
        return scan_refuse(scan, start, scan->at - start, "the quantifier");
    *ret_repeat = repeat;
    return OK;
}
