/* Single-pass parser. Strings are copied in runs, and a string without escapes is not copied at all. Follows
 * RFC 8259: strings are UTF-8 and surrogates come in pairs. In addition, the requested field must not occur
 * twice. */
#include "data/json_text.h"

#include <string.h>

#include "base/memory.h"
#include "tokenizer/unicode.h"

typedef struct Parser {
    const char *begin, *at, *end;
    const char *expected; /* what was expected at `at`; NULL: no error */
    JsonText *text;
} Parser;

/* A string in the line, without its quotes. */
typedef struct Span {
    const char *begin, *end;
    bool escaped;
} Span;

void json_text_done(JsonText *text) {
    free(text->memory);
    *text = (JsonText){0};
}

static bool fail(Parser *p, const char *expected) {
    p->expected = expected;
    return false;
}

static void skip_space(Parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\r' || *p->at == '\n')) p->at++;
}

static bool take(Parser *p, char c) {
    skip_space(p);
    if (p->at == p->end || *p->at != c) return false;
    p->at++;
    return true;
}

/* ---- strings ---- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Parses four hexadecimal digits; -1: invalid. */
static int32_t hex_four(const char *at, const char *end) {
    int32_t code = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0) return -1;
        code = code << 4 | digit;
    }
    return code;
}

/* Code point of the escape "u1234" at `at`, combined with the second half of a surrogate pair; *ret_size is
 * its length in the line. -1: invalid. */
static int32_t unicode_escape(const char *at, const char *end, size_t *ret_size) {
    int32_t code = hex_four(at + 1, end);
    *ret_size = 5;
    if (code < 0xd800 || code > 0xdfff) return code;
    if (code > 0xdbff || end - at < 11 || at[5] != '\\' || at[6] != 'u') return -1;
    int32_t low = hex_four(at + 7, end);
    if (low < 0xdc00 || low > 0xdfff) return -1;
    *ret_size = 11;
    return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
}

/* Whether all of the next eight bytes are ASCII other than quotes, backslashes and control characters. */
static bool plain_eight(const char *at) {
    uint64_t word, ones = 0x0101010101010101u, high = ones << 7;
    memcpy(&word, at, sizeof word);
    uint64_t quote = word ^ ones * '"', slash = word ^ ones * '\\';
    return !(((word - ones * 0x20) | (quote - ones) | (slash - ones) | word) & high);
}

static bool skip_escape(Parser *p, Span *span) {
    span->escaped = true;
    if (p->end - p->at < 2) return fail(p, "the end of a string");
    char c = p->at[1];
    size_t size = 1;
    if (c == 'u') {
        if (unicode_escape(p->at + 1, p->end, &size) < 0)
            return fail(p, "four hexadecimal digits, or two halves of a surrogate pair");
    } else if (!c || !strchr("\"\\/bfnrt", c)) {
        return fail(p, "one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
    }
    p->at += 1 + size;
    return true;
}

/* Skips a string; `at` is just past the opening quote. */
static bool skip_string(Parser *p, Span *ret_span) {
    Span span = {.begin = p->at};
    for (;;) {
        while (p->end - p->at >= 8 && plain_eight(p->at)) p->at += 8;
        if (p->at == p->end) return fail(p, "the end of a string");
        unsigned char c = (unsigned char)*p->at;
        if (c == '"') break;
        if (c < 0x20) return fail(p, "no control character in a string");
        uint32_t code = c;
        size_t size = c < 0x80 ? 1 : utf8_next(p->at, (size_t)(p->end - p->at), &code);
        if (code == UTF8_INVALID) return fail(p, "UTF-8");
        if (c != '\\')
            p->at += size;
        else if (!skip_escape(p, &span))
            return false;
    }
    span.end = p->at++;
    *ret_span = span;
    return true;
}

/* Decodes a validated string; the result is never longer than the input. */
static size_t unescape(const Span *span, char *to) {
    char *out = to;
    for (const char *at = span->begin; at < span->end;) {
        const char *slash = memchr(at, '\\', (size_t)(span->end - at));
        size_t run = (size_t)((slash ? slash : span->end) - at);
        memcpy(out, at, run);
        out += run;
        if (!slash) break;
        size_t size = 1;
        const char *known = strchr("b\bf\fn\nr\rt\t", slash[1]);
        if (slash[1] == 'u')
            out += utf8_put((uint32_t)unicode_escape(slash + 1, span->end, &size), out);
        else
            *out++ = known ? known[1] : slash[1];
        at = slash + 1 + size;
    }
    return (size_t)(out - to);
}

static Status read_span(JsonText *text, const Span *span) {
    size_t spelled = (size_t)(span->end - span->begin);
    text->text = span->begin;
    text->size = spelled;
    if (!span->escaped) return OK;
    TRY(mem_grow(&text->memory, &text->capacity, spelled + 1, 1));
    text->text = text->memory;
    text->size = unescape(span, text->memory);
    return OK;
}

/* ---- other values ---- */

static bool skip_digits(Parser *p) {
    const char *begin = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') p->at++;
    return p->at > begin;
}

static bool skip_number(Parser *p) {
    if (*p->at == '-') p->at++;
    if (p->at < p->end && *p->at == '0')
        p->at++;
    else if (!skip_digits(p))
        return fail(p, "a digit");
    if (p->at < p->end && *p->at == '.') {
        p->at++;
        if (!skip_digits(p)) return fail(p, "a digit");
    }
    if (p->at == p->end || (*p->at != 'e' && *p->at != 'E')) return true;
    p->at++;
    if (p->at < p->end && (*p->at == '+' || *p->at == '-')) p->at++;
    return skip_digits(p) || fail(p, "a digit");
}

static bool skip_word(Parser *p, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length)) return fail(p, "a value");
    p->at += length;
    return true;
}

static bool skip_value(Parser *p, int depth);

static bool skip_array(Parser *p, int depth) {
    if (take(p, ']')) return true;
    do {
        if (!skip_value(p, depth)) return false;
    } while (take(p, ','));
    return take(p, ']') || fail(p, "',' or ']'");
}

static bool skip_name(Parser *p, Span *ret_name) {
    if (!take(p, '"')) return fail(p, "a quoted name");
    if (!skip_string(p, ret_name)) return false;
    return take(p, ':') || fail(p, "':'");
}

static bool skip_object(Parser *p, int depth) {
    Span name;
    if (take(p, '}')) return true;
    do {
        if (!skip_name(p, &name) || !skip_value(p, depth)) return false;
    } while (take(p, ','));
    return take(p, '}') || fail(p, "',' or '}'");
}

static bool skip_value(Parser *p, int depth) {
    Span span;
    skip_space(p);
    if (p->at == p->end) return fail(p, "a value");
    if (depth >= JSON_TEXT_DEPTH) return fail(p, "no deeper nesting");
    switch (*p->at) {
    case '"': p->at++; return skip_string(p, &span);
    case '{': p->at++; return skip_object(p, depth + 1);
    case '[': p->at++; return skip_array(p, depth + 1);
    case 't': return skip_word(p, "true");
    case 'f': return skip_word(p, "false");
    case 'n': return skip_word(p, "null");
    default: return (*p->at == '-' || (*p->at >= '0' && *p->at <= '9')) ? skip_number(p) : fail(p, "a value");
    }
}

/* Type of the value that begins with this character. */
static const char *kind_of(char c) {
    switch (c) {
    case '{': return "an object";
    case '[': return "an array";
    case 't':
    case 'f': return "a boolean";
    case 'n': return "null";
    default: return "a number";
    }
}

/* ---- lines ---- */

static Status is_field(const Span *name, const char *field, bool *ret_is) {
    size_t length = strlen(field);
    if (!name->escaped) {
        *ret_is = (size_t)(name->end - name->begin) == length && !memcmp(name->begin, field, length);
        return OK;
    }
    JsonText read = {0};
    Status status = read_span(&read, name);
    *ret_is = !status && read.size == length && !memcmp(read.text, field, length);
    json_text_done(&read);
    return status;
}

/* Reads the field's value if it is a string, else records its type. */
static Status take_field(Parser *p) {
    JsonText *text = p->text;
    Span span;
    if (text->text || text->found) {
        fail(p, "the field to occur only once");
        return OK;
    }
    skip_space(p);
    if (p->at < p->end && *p->at == '"') {
        p->at++;
        return skip_string(p, &span) ? read_span(text, &span) : OK;
    }
    const char *begin = p->at;
    if (skip_value(p, 1)) text->found = kind_of(*begin);
    return OK;
}

static Status read_members(Parser *p, const char *field) {
    if (!take(p, '{')) {
        fail(p, "an object");
        return OK;
    }
    if (take(p, '}')) return OK;
    do {
        Span name;
        bool is = false;
        if (!skip_name(p, &name)) return OK;
        TRY(is_field(&name, field, &is));
        if (is)
            TRY(take_field(p));
        else
            skip_value(p, 1);
        if (p->expected) return OK;
    } while (take(p, ','));
    if (!take(p, '}')) fail(p, "',' or '}'");
    return OK;
}

Status json_text_read(JsonText *text, const char *line, size_t size, const char *field, const char *file,
                      const char *unit, int64_t number) {
    Parser p = {.begin = line, .at = line, .end = line + size, .text = text};
    text->text = text->found = NULL;
    text->size = 0;
    TRY(read_members(&p, field));
    skip_space(&p);
    if (!p.expected && p.at < p.end) fail(&p, "nothing after the object");
    if (!p.expected) return OK;
    return FAILED("%s: %s %lld, column %lld: not valid JSON: expected %s", file, unit, (long long)number,
                  (long long)(p.at - p.begin) + 1, p.expected);
}
