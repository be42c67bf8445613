/* Divides a template into data and the tokens of its tags.
 *
 * As in jinja2 with trim_blocks and lstrip_blocks: the newline after a block or comment is dropped, and so is
 * the space before one from the start of its line. A sign inside a tag overrides that: "-" strips all space,
 * "+" keeps it. */
#include <errno.h>
#include <stdlib.h>

#include "chat/jinja_internal.h"

typedef struct Lexer {
    Region *region;
    const char *name;
    Text text;
    size_t at;
    int line;
    bool line_starts; /* data that follows begins a line */
    TokenArray tokens;
} Lexer;

#define LEX_FAILED(lexer, ...) TEMPLATE_FAILED((lexer)->name, (lexer)->line, __VA_ARGS__)

static Status add_token(Lexer *lexer, Token token) {
    TokenArray *tokens = &lexer->tokens;
    if (tokens->count == tokens->capacity) {
        Token *grown = NULL;
        tokens->capacity = 2 * tokens->capacity + 64;
        TRY(region_take(lexer->region, tokens->capacity, sizeof *grown, &grown));
        if (tokens->count) memcpy(grown, tokens->token, tokens->count * sizeof *grown);
        tokens->token = grown;
    }
    token.line = lexer->line;
    tokens->token[tokens->count++] = token;
    return OK;
}

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' ||
           (unsigned char)c >= 0x80;
}

static bool looking_at(const Lexer *lexer, size_t at, const char *string) {
    size_t size = strlen(string);
    return lexer->text.size - at >= size && !memcmp(lexer->text.data + at, string, size);
}

static void advance(Lexer *lexer, size_t to) {
    for (; lexer->at < to; lexer->at++) lexer->line += lexer->text.data[lexer->at] == '\n';
}

static void skip_blank(Lexer *lexer) {
    size_t at = lexer->at;
    while (at < lexer->text.size && is_blank(lexer->text.data[at])) at++;
    advance(lexer, at);
}

/* ---- data ---- */

/* Adds the data before a tag, which begins at `end` and continues with `sign`. */
static Status add_data(Lexer *lexer, size_t end, char sign, bool block) {
    size_t start = lexer->at, kept = end;
    const char *data = lexer->text.data;
    if (sign == '-') {
        while (kept > start && is_blank(data[kept - 1])) kept--;
    } else if (sign != '+' && block) {
        size_t line = end;
        while (line > start && is_blank(data[line - 1]) && data[line - 1] != '\n') line--;
        bool starts = line > start ? data[line - 1] == '\n' : lexer->line_starts;
        if (starts) kept = line;
    }
    if (kept > start)
        TRY(add_token(lexer, (Token){.kind = TOKEN_DATA, .text = {data + start, kept - start}}));
    advance(lexer, end);
    return OK;
}

/* After a tag that ended with `sign`: what is dropped of the data that follows. */
static void end_tag(Lexer *lexer, char sign, bool block) {
    size_t before = lexer->at;
    if (sign == '-')
        skip_blank(lexer);
    else if (sign != '+' && block && lexer->at < lexer->text.size && lexer->text.data[lexer->at] == '\n')
        advance(lexer, lexer->at + 1);
    lexer->line_starts = lexer->at > before && lexer->text.data[lexer->at - 1] == '\n';
}

static char sign_at(const Lexer *lexer, size_t at) {
    char c = at < lexer->text.size ? lexer->text.data[at] : 0;
    return c == '-' || c == '+' ? c : 0;
}

/* The next {{, {% or {#, or the end. */
static size_t find_tag(const Lexer *lexer) {
    size_t at = lexer->at;
    while (at < lexer->text.size) {
        const char *brace = memchr(lexer->text.data + at, '{', lexer->text.size - at);
        if (!brace) return lexer->text.size;
        at = (size_t)(brace - lexer->text.data);
        if (looking_at(lexer, at, "{{") || looking_at(lexer, at, "{%") || looking_at(lexer, at, "{#"))
            return at;
        at++;
    }
    return lexer->text.size;
}

static Status lex_comment(Lexer *lexer) {
    size_t start = lexer->at + 2 + (sign_at(lexer, lexer->at + 2) != 0), at = start;
    while (at < lexer->text.size && !looking_at(lexer, at, "#}")) at++;
    if (at >= lexer->text.size) return LEX_FAILED(lexer, "a comment is not closed");
    char sign = at > start ? sign_at(lexer, at - 1) : 0;
    advance(lexer, at + 2);
    end_tag(lexer, sign, true);
    return OK;
}

/* ---- raw blocks ---- */

/* Whether a block tag at `at` consists of this name alone; *ret_end is its end. */
static bool is_bare_tag(const Lexer *lexer, size_t at, const char *name, size_t *ret_end, char *ret_sign) {
    size_t size = lexer->text.size;
    const char *data = lexer->text.data;
    at += 2 + (sign_at(lexer, at + 2) != 0);
    while (at < size && is_blank(data[at])) at++;
    if (!looking_at(lexer, at, name)) return false;
    at += strlen(name);
    while (at < size && is_blank(data[at])) at++;
    *ret_sign = sign_at(lexer, at);
    at += *ret_sign != 0;
    *ret_end = at + 2;
    return looking_at(lexer, at, "%}");
}

/* Only "-" strips the data at the start of a raw block. */
static Status lex_raw(Lexer *lexer, size_t end, char sign) {
    advance(lexer, end);
    end_tag(lexer, sign, false);
    for (size_t at = lexer->at; at < lexer->text.size; at++) {
        if (!looking_at(lexer, at, "{%") || !is_bare_tag(lexer, at, "endraw", &end, &sign)) continue;
        TRY(add_data(lexer, at, sign_at(lexer, at + 2), true));
        advance(lexer, end);
        end_tag(lexer, sign, true);
        return OK;
    }
    return LEX_FAILED(lexer, "a raw block is not closed");
}

/* ---- literals ---- */

static bool read_number(Text digits, int base, uint64_t high, uint64_t *ret_number) {
    uint64_t number = 0;
    for (size_t i = 0; i < digits.size; i++) {
        char c = digits.data[i];
        int digit = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : 99;
        if (c == '_') continue;
        if (digit >= base || number > (high - (uint64_t)digit) / (uint64_t)base) return false;
        number = number * (uint64_t)base + (uint64_t)digit;
    }
    *ret_number = number;
    return digits.size > 0;
}

/* Reads an escape after its backslash; *size is the number of bytes after the backslash. */
static Status read_escape(Lexer *lexer, Writer *out, Text rest, size_t *ret_size) {
    static const char names[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char *found = rest.size && rest.data[0] ? strchr(names, rest.data[0]) : NULL;
    size_t digits = rest.size == 0        ? 0
                    : rest.data[0] == 'x' ? 2
                    : rest.data[0] == 'u' ? 4
                    : rest.data[0] == 'U' ? 8
                                          : 0;
    uint64_t c = 0;
    *ret_size = 1;
    if (found) return writer_char(out, (uint32_t)values[found - names]);
    if (rest.size && rest.data[0] == '\n') return OK;
    if (rest.size && rest.data[0] >= '0' && rest.data[0] <= '7') {
        size_t count = 1;
        while (count < 3 && count < rest.size && rest.data[count] >= '0' && rest.data[count] <= '7') count++;
        *ret_size = count;
        read_number((Text){rest.data, count}, 8, 0x1ff, &c);
        return writer_char(out, (uint32_t)c);
    }
    if (!digits) { /* as in Python, other escapes stand for themselves */
        *ret_size = 0;
        return writer_char(out, '\\');
    }
    *ret_size = 1 + digits;
    if (rest.size < 1 + digits || memchr(rest.data + 1, '_', digits) ||
        !read_number((Text){rest.data + 1, digits}, 16, 0x10ffff, &c) || (c >= 0xd800 && c < 0xe000))
        return LEX_FAILED(lexer, "a string has the invalid escape \\%.*s",
                          (int)(rest.size < 9 ? rest.size : 9), rest.data);
    return writer_char(out, (uint32_t)c);
}

static Status lex_text(Lexer *lexer) {
    const char *data = lexer->text.data, quote = data[lexer->at];
    size_t start = lexer->at + 1, end = start;
    bool escapes = false;
    while (end < lexer->text.size && data[end] != quote) {
        escapes |= data[end] == '\\';
        end += data[end] == '\\' ? 2 : 1;
    }
    if (end >= lexer->text.size) return LEX_FAILED(lexer, "a string is not closed");
    Text text = {data + start, end - start};
    Writer out = {.region = lexer->region};
    for (size_t at = 0; escapes && at < text.size;) {
        const char *slash = memchr(text.data + at, '\\', text.size - at);
        size_t stop = slash ? (size_t)(slash - text.data) : text.size, size = 0;
        TRY(writer_add(&out, (Text){text.data + at, stop - at}));
        at = stop;
        if (!slash) break;
        TRY(read_escape(lexer, &out, (Text){text.data + at + 1, text.size - at - 1}, &size));
        at += 1 + size;
    }
    Token token = {
        .kind = TOKEN_TEXT, .text = text, .value = escapes ? writer_value(&out) : value_text(text)};
    TRY(add_token(lexer, token));
    advance(lexer, end + 1);
    return OK;
}

static Status lex_number(Lexer *lexer) {
    const char *data = lexer->text.data;
    size_t start = lexer->at, end = start;
    int base = looking_at(lexer, start, "0x") || looking_at(lexer, start, "0X")   ? 16
               : looking_at(lexer, start, "0o") || looking_at(lexer, start, "0O") ? 8
               : looking_at(lexer, start, "0b") || looking_at(lexer, start, "0B") ? 2
                                                                                  : 10;
    bool real = false;
    size_t first = base == 10 ? start : start + 2;
    for (end = first; end < lexer->text.size; end++) {
        char c = data[end], next = end + 1 < lexer->text.size ? data[end + 1] : 0;
        bool point = base == 10 && c == '.' && !real && is_digit(next);
        bool exponent =
            base == 10 && (c == 'e' || c == 'E') && (is_digit(next) || next == '-' || next == '+');
        real |= point || exponent;
        if (exponent) end++;
        if (!point && !exponent && !is_digit(c) && c != '_' && !(base == 16 && is_word(c))) break;
    }
    Token token = {.kind = TOKEN_INTEGER, .text = {data + start, end - start}};
    uint64_t number = 0;
    char copy[64];
    if (end - start >= sizeof copy ||
        (!real && !read_number((Text){data + first, end - first}, base, INT64_MAX, &number)))
        return LEX_FAILED(lexer, "the number %.*s is too large", (int)(end - start < 40 ? end - start : 40),
                          data + start);
    token.value = value_int((int64_t)number);
    if (real) {
        memcpy(copy, data + start, end - start);
        copy[end - start] = 0;
        token.kind = TOKEN_REAL;
        token.value = value_real(strtod(copy, NULL));
    }
    TRY(add_token(lexer, token));
    advance(lexer, end);
    return OK;
}

/* ---- tags ---- */

static Status lex_operator(Lexer *lexer, int *depth) {
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*",
                                            "/",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  ",",  ";", "|", NULL};
    const char *data = lexer->text.data + lexer->at;
    for (int i = 0; operators[i]; i++) {
        if (!looking_at(lexer, lexer->at, operators[i])) continue;
        if (strchr("[({", data[0])) ++*depth;
        if (strchr("])}", data[0])) --*depth;
        TRY(add_token(lexer, (Token){.kind = TOKEN_OPERATOR, .text = {data, strlen(operators[i])}}));
        lexer->at += strlen(operators[i]);
        return OK;
    }
    return LEX_FAILED(lexer, "unexpected character '%.*s'", (int)char_size(data), data);
}

/* The tokens of a tag up to `close`, after its beginning. */
static Status lex_inside(Lexer *lexer, const char *close, TokenKind end) {
    int depth = 0;
    for (;;) {
        skip_blank(lexer);
        if (lexer->at >= lexer->text.size) return LEX_FAILED(lexer, "a tag is not closed");
        char c = lexer->text.data[lexer->at], sign = sign_at(lexer, lexer->at);
        bool block = end == TOKEN_BLOCK_END;
        bool sign_closes = (sign == '-' || (sign == '+' && block)) && looking_at(lexer, lexer->at + 1, close);
        if (depth <= 0 && (sign_closes || looking_at(lexer, lexer->at, close))) {
            TRY(add_token(lexer, (Token){.kind = end}));
            lexer->at += sign_closes ? 3 : 2;
            end_tag(lexer, sign_closes ? sign : 0, block);
            return OK;
        }
        if (c == '"' || c == '\'') {
            TRY(lex_text(lexer));
        } else if (is_digit(c)) {
            TRY(lex_number(lexer));
        } else if (is_word(c)) {
            size_t size = 1;
            while (lexer->at + size < lexer->text.size && is_word(lexer->text.data[lexer->at + size])) size++;
            TRY(add_token(lexer, (Token){.kind = TOKEN_NAME, .text = {lexer->text.data + lexer->at, size}}));
            lexer->at += size;
        } else {
            TRY(lex_operator(lexer, &depth));
        }
    }
}

static Status lex_tag(Lexer *lexer, size_t at) {
    char kind = lexer->text.data[at + 1], sign = sign_at(lexer, at + 2), raw_sign;
    bool block = kind != '{';
    size_t end;
    bool raw = kind == '%' && is_bare_tag(lexer, at, "raw", &end, &raw_sign);
    TRY(add_data(lexer, at, block || sign == '-' ? sign : 0, block));
    if (raw) return lex_raw(lexer, end, raw_sign);
    if (kind == '#') return lex_comment(lexer);
    TRY(add_token(lexer, (Token){.kind = block ? TOKEN_BLOCK_BEGIN : TOKEN_OUTPUT_BEGIN}));
    advance(lexer, at + 2 + (sign == '-' || (sign == '+' && block)));
    return lex_inside(lexer, block ? "%}" : "}}", block ? TOKEN_BLOCK_END : TOKEN_OUTPUT_END);
}

/* Newlines are \n, and the last one does not count. */
static Status normalize(Region *region, Text text, Text *ret_text) {
    char *copy = NULL;
    size_t size = 0;
    TRY(region_take(region, text.size + 1, 1, &copy));
    for (size_t i = 0; i < text.size; i++) {
        bool pair = text.data[i] == '\r' && i + 1 < text.size && text.data[i + 1] == '\n';
        if (!pair) copy[size++] = text.data[i] == '\r' ? '\n' : text.data[i];
    }
    if (size && copy[size - 1] == '\n') size--;
    *ret_text = (Text){copy, size};
    return OK;
}

Status jinja_lex(Region *region, Text text, const char *name, TokenArray *ret_tokens) {
    Lexer lexer = {.region = region, .name = name, .line = 1, .line_starts = true};
    TRY(normalize(region, text, &lexer.text));
    while (lexer.at < lexer.text.size) {
        size_t at = find_tag(&lexer);
        if (at < lexer.text.size)
            TRY(lex_tag(&lexer, at));
        else
            TRY(add_data(&lexer, at, 0, false));
    }
    TRY(add_token(&lexer, (Token){.kind = TOKEN_EOF}));
    *ret_tokens = lexer.tokens;
    return OK;
}
