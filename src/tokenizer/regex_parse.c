/* Parses a pattern into a tree, which is then compiled into operations. */
#include "tokenizer/regex.h"

enum { NODE_LIMIT = 2000, OP_LIMIT = 20000, DEPTH_LIMIT = 40, REPEAT_LIMIT = 1000, NONE = -1 };

typedef enum { NODE_CHAR, NODE_SET, NODE_ALL, NODE_ANY, NODE_REPEAT, NODE_AHEAD, NODE_LINE_END } NodeKind;

/* NODE_ALL has its children one after the other, NODE_ANY one of them, the others have at most one child. */
typedef struct Node {
    NodeKind kind;
    bool possessive, negative;
    const CharSet *set;
    uint32_t chars[3], low, high;
    int child, sibling;
} Node;

typedef struct Parser {
    const char *pattern, *from;
    size_t size, at;
    Node nodes[NODE_LIMIT];
    int count, depth;
    bool fold; /* inside (?i:...) */
    Regex *regex;
} Parser;

/* ---- errors and characters ---- */

static Status refuse(const Parser *parser, size_t at, size_t length, const char *what) {
    if (length > parser->size - at) length = parser->size - at;
    return FAILED("%s: the pattern '%.200s' has %s%s%.*s%s at offset %zu, which is not supported",
                  parser->from, parser->pattern, what, length ? " '" : "", (int)length, parser->pattern + at,
                  length ? "'" : "", at);
}

static int peek(const Parser *parser, size_t ahead) {
    size_t at = parser->at + ahead;
    return at < parser->size ? (unsigned char)parser->pattern[at] : NONE;
}

static bool accept(Parser *parser, const char *text) {
    size_t size = strlen(text);
    if (parser->size - parser->at < size || memcmp(parser->pattern + parser->at, text, size) != 0)
        return false;
    parser->at += size;
    return true;
}

static Status new_node(Parser *parser, NodeKind kind, int *ret_node) {
    if (parser->count == NODE_LIMIT)
        return FAILED("%s: the pattern '%.200s...' is too long", parser->from, parser->pattern);
    *ret_node = parser->count++;
    parser->nodes[*ret_node] = (Node){.kind = kind, .child = NONE, .sibling = NONE};
    return OK;
}

/* Gives the set to the expression, which keeps equal sets once. */
static Status keep_set(Parser *parser, CharSet **set, const CharSet **ret_set) {
    Regex *regex = parser->regex;
    for (size_t i = 0; i < regex->set_count; i++) {
        if (memcmp(regex->sets[i], *set, sizeof **set) != 0) continue;
        *ret_set = regex->sets[i];
        return OK;
    }
    TRY(mem_grow(&regex->sets, &regex->set_capacity, regex->set_count + 1, sizeof *regex->sets));
    *ret_set = regex->sets[regex->set_count++] = *set;
    *set = NULL;
    return OK;
}

/* ---- escapes ---- */

static int hex_value(int c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : NONE;
}

/* Up to `digits` hexadecimal digits, at least one. */
static Status parse_hex(Parser *parser, size_t start, int digits, uint32_t *ret_char) {
    uint32_t value = 0;
    int count = 0;
    for (; count < digits && hex_value(peek(parser, 0)) != NONE; count++)
        value = value << 4 | (uint32_t)hex_value((unsigned char)parser->pattern[parser->at++]);
    if (count == 0 || value >= UTF8_INVALID) return refuse(parser, start, 3, "the escape");
    *ret_char = value;
    return OK;
}

/* The character that an escape stands for, with the backslash already read. */
static Status parse_escaped_char(Parser *parser, uint32_t *ret_char) {
    size_t start = parser->at - 1;
    int c = peek(parser, 0);
    if (c == NONE) return refuse(parser, start, 1, "an unfinished escape");
    static const char names[] = "rntfvae", values[] = "\r\n\t\f\v\a\x1B";
    const char *found = strchr(names, c);
    if (found) {
        parser->at++;
        *ret_char = (unsigned char)values[found - names];
        return OK;
    }
    if (accept(parser, "x{")) {
        TRY(parse_hex(parser, start, 6, ret_char));
        return accept(parser, "}") ? OK : refuse(parser, start, 3, "the escape");
    }
    if (accept(parser, "x")) return parse_hex(parser, start, 2, ret_char);
    if (accept(parser, "u")) return parse_hex(parser, start, 4, ret_char);
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return refuse(parser, start, 2, "the escape");
    if (c >= '0' && c <= '9') return refuse(parser, start, 2, "the escape");
    parser->at += utf8_next(parser->pattern + parser->at, parser->size - parser->at, ret_char);
    return OK;
}

/* \p{Name}, \P{Name} or \p{^Name}, with \p already read. */
static Status parse_property(Parser *parser, bool negative, CharSet *set) {
    size_t start = parser->at - 2;
    const char *close = parser->size > parser->at
                            ? memchr(parser->pattern + parser->at, '}', parser->size - parser->at)
                            : NULL;
    if (peek(parser, 0) != '{' || !close) return refuse(parser, start, 2, "a property without {...}:");
    const char *name = parser->pattern + parser->at + 1;
    parser->at = (size_t)(close - parser->pattern) + 1;
    if (*name == '^') negative = !negative, name++;
    if (!char_set_add_named(set, name, (size_t)(close - name)))
        return refuse(parser, start, parser->at - start, "the property");
    if (negative) char_set_invert(set);
    return OK;
}

/* An escape that stands for a set: fills it and sets *ret_is_set. Otherwise reads nothing. */
static Status parse_escaped_set(Parser *parser, CharSet *set, bool *ret_is_set) {
    int c = peek(parser, 1);
    *ret_is_set = c != NONE && strchr("sSdDwWhHpP", c);
    if (!*ret_is_set) return OK;
    parser->at += 2;
    bool negative = c < 'a';
    switch (c | 0x20) {
    case 's': char_set_add_property(set, PROPERTY_SPACE); break;
    case 'w': char_set_add_property(set, PROPERTY_WORD); break;
    case 'd': char_set_add_named(set, "Nd", 2); break;
    case 'h':
        char_set_add(set, '0', '9');
        char_set_add(set, 'a', 'f');
        char_set_add(set, 'A', 'F');
        break;
    default: return parse_property(parser, negative, set);
    }
    if (negative) char_set_invert(set);
    return OK;
}

/* ---- character classes ---- */

static Status parse_class(Parser *parser, CharSet *set);

static Status parse_class_char(Parser *parser, uint32_t *ret_char) {
    if (accept(parser, "\\")) return parse_escaped_char(parser, ret_char);
    parser->at += utf8_next(parser->pattern + parser->at, parser->size - parser->at, ret_char);
    return OK;
}

/* A character, range, escape or nested class. */
static Status parse_class_item(Parser *parser, CharSet *set) {
    CLEANUP(mem_freep) CharSet *inner = NULL;
    size_t start = parser->at;
    TRY(mem_new(1, sizeof *inner, &inner));
    if (peek(parser, 0) == '[') {
        if (peek(parser, 1) == ':') return refuse(parser, start, 2, "a POSIX class:");
        parser->at++;
        TRY(parse_class(parser, inner));
        for (size_t i = 0; i < CHAR_SET_WORDS; i++) set->bits[i] |= inner->bits[i];
        return OK;
    }
    bool is_set = false;
    if (peek(parser, 0) == '\\') TRY(parse_escaped_set(parser, inner, &is_set));
    if (is_set) {
        for (size_t i = 0; i < CHAR_SET_WORDS; i++) set->bits[i] |= inner->bits[i];
        return OK;
    }
    uint32_t first = 0, last = 0;
    TRY(parse_class_char(parser, &first));
    last = first;
    if (peek(parser, 0) == '-' && peek(parser, 1) != ']' && peek(parser, 1) != NONE) {
        parser->at++;
        bool next_is_set =
            peek(parser, 0) == '\\' && peek(parser, 1) != NONE && strchr("sSdDwWhHpP", peek(parser, 1));
        if (peek(parser, 0) == '[' || next_is_set)
            return refuse(parser, start, parser->at + 1 - start, "the range");
        TRY(parse_class_char(parser, &last));
    }
    if (last < first || first >= UTF8_INVALID || last >= UTF8_INVALID)
        return refuse(parser, start, parser->at - start, "the range");
    char_set_add(set, first, last);
    return OK;
}

/* The rest of a class, whose [ has been read. */
static Status parse_class(Parser *parser, CharSet *set) {
    size_t start = parser->at - 1;
    if (++parser->depth > DEPTH_LIMIT) return refuse(parser, start, 1, "too deep a class");
    bool negative = accept(parser, "^"), empty = true, bounded = false;
    CLEANUP(mem_freep) CharSet *bound = NULL;
    TRY(mem_new(1, sizeof *bound, &bound));
    char_set_invert(bound);
    while (!accept(parser, "]")) {
        if (peek(parser, 0) == NONE) return refuse(parser, start, 1, "an unfinished class");
        if (accept(parser, "&&")) {
            for (size_t i = 0; i < CHAR_SET_WORDS; i++) bound->bits[i] &= set->bits[i];
            memset(set, 0, sizeof *set);
            bounded = true;
            continue;
        }
        TRY(parse_class_item(parser, set));
        empty = false;
    }
    if (empty) return refuse(parser, start, parser->at - start, "an empty class");
    for (size_t i = 0; bounded && i < CHAR_SET_WORDS; i++) set->bits[i] &= bound->bits[i];
    if (negative) char_set_invert(set);
    parser->depth--;
    return OK;
}

/* Oniguruma folds case by Unicode: the long s and the kelvin sign match s and k. */
static uint32_t folded_beyond_ascii(uint32_t lower) {
    return lower == 's' ? 0x17F : lower == 'k' ? 0x212A : lower;
}

static Status fold_set(const Parser *parser, size_t start, CharSet *set) {
    for (size_t i = 2; i < CHAR_SET_WORDS; i++)
        if (set->bits[i]) return refuse(parser, start, parser->at - start, "ignored case for the class");
    for (uint32_t c = 'a'; c <= 'z'; c++) {
        if (!char_set_has(set, c) && !char_set_has(set, c - 32)) continue;
        uint32_t other = folded_beyond_ascii(c);
        char_set_add(set, c, c);
        char_set_add(set, c - 32, c - 32);
        char_set_add(set, other, other);
    }
    return OK;
}

static Status parse_set_node(Parser *parser, int *ret_node) {
    CLEANUP(mem_freep) CharSet *set = NULL;
    size_t start = parser->at;
    bool is_set = true;
    TRY(mem_new(1, sizeof *set, &set));
    if (accept(parser, "[")) {
        TRY(parse_class(parser, set));
    } else if (accept(parser, ".")) {
        char_set_add(set, '\n', '\n');
        char_set_invert(set);
    } else {
        TRY(parse_escaped_set(parser, set, &is_set));
    }
    if (parser->fold) TRY(fold_set(parser, start, set));
    TRY(new_node(parser, NODE_SET, ret_node));
    parser->nodes[*ret_node].low = parser->nodes[*ret_node].high = 1;
    return keep_set(parser, &set, &parser->nodes[*ret_node].set);
}

/* ---- atoms, quantifiers, groups ---- */

/* With case ignored, these pairs would also match one character: ß, ﬀ, ﬁ, ﬂ, ﬆ. */
static bool folds_to_one(const Parser *parser, int previous, uint32_t lower) {
    static const char *const pairs[] = {"ss", "ff", "fi", "fl", "st"};
    if (previous == NONE || parser->nodes[previous].kind != NODE_CHAR) return false;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if ((parser->nodes[previous].chars[0] | 0x20) == (uint32_t)pairs[i][0] &&
            lower == (uint32_t)pairs[i][1])
            return true;
    return false;
}

static Status parse_char_node(Parser *parser, int previous, int *ret_node) {
    size_t start = parser->at;
    uint32_t c = 0;
    TRY(parse_class_char(parser, &c));
    if (c >= UTF8_INVALID) return refuse(parser, start, 0, "a byte that is not UTF-8");
    TRY(new_node(parser, NODE_CHAR, ret_node));
    Node *node = &parser->nodes[*ret_node];
    node->chars[0] = node->chars[1] = node->chars[2] = c;
    if (!parser->fold) return OK;
    if (c >= 0x80) return refuse(parser, start, parser->at - start, "ignored case for");
    uint32_t lower = c | 0x20;
    if (lower < 'a' || lower > 'z') return OK;
    if (folds_to_one(parser, previous, lower))
        return refuse(parser, start, 1, "ignored case for a pair that ends in");
    node->chars[0] = lower;
    node->chars[1] = lower - 32;
    node->chars[2] = folded_beyond_ascii(lower);
    return OK;
}

static Status parse_any(Parser *parser, int *ret_node);

static Status parse_group(Parser *parser, int *ret_node) {
    size_t start = parser->at;
    bool fold = parser->fold, ahead = false, negative = false;
    parser->at++;
    if (accept(parser, "?i:"))
        parser->fold = true;
    else if (accept(parser, "?="))
        ahead = true;
    else if (accept(parser, "?!"))
        ahead = negative = true;
    else if (!accept(parser, "?:") && peek(parser, 0) == '?')
        return refuse(parser, start, 4, "the group");
    if (++parser->depth > DEPTH_LIMIT) return refuse(parser, start, 1, "too deep a group");
    int inside = NONE;
    TRY(parse_any(parser, &inside));
    if (!accept(parser, ")")) return refuse(parser, start, 1, "an unfinished group");
    parser->depth--;
    parser->fold = fold;
    *ret_node = inside;
    if (!ahead) return OK;
    TRY(new_node(parser, NODE_AHEAD, ret_node));
    parser->nodes[*ret_node].child = inside;
    parser->nodes[*ret_node].negative = negative;
    return OK;
}

static Status parse_atom(Parser *parser, int previous, int *ret_node) {
    int c = peek(parser, 0), after = peek(parser, 1);
    if (c == '(') return parse_group(parser, ret_node);
    if (c == '[' || c == '.' || (c == '\\' && after != NONE && strchr("sSdDwWhHpP", after)))
        return parse_set_node(parser, ret_node);
    if (c == '$') {
        parser->at++;
        return new_node(parser, NODE_LINE_END, ret_node);
    }
    if (strchr("^*+?", c))
        return refuse(parser, parser->at, 1, c == '^' ? "the anchor" : "nothing to repeat before");
    return parse_char_node(parser, previous, ret_node);
}

/* {n}, {n,}, {,m} or {n,m}; otherwise the brace is a literal, as in Oniguruma, and nothing is read. */
static bool parse_braces(Parser *parser, uint32_t *ret_low, uint32_t *ret_high) {
    uint32_t number[2] = {0, 0};
    bool given[2] = {false, false}, comma = false;
    size_t ahead = 1;
    for (int i = 0; i < 2; i++) {
        for (int c; (c = peek(parser, ahead)) >= '0' && c <= '9' && number[i] <= REPEAT_LIMIT; ahead++) {
            number[i] = number[i] * 10 + (uint32_t)(c - '0');
            given[i] = true;
        }
        if (i == 0 && peek(parser, ahead) == ',') comma = true, ahead++;
        if (!comma) break;
    }
    if (peek(parser, ahead) != '}' || !(given[0] || given[1])) return false;
    parser->at += ahead + 1;
    *ret_low = number[0];
    *ret_high = !comma ? number[0] : given[1] ? number[1] : REGEX_UNLIMITED;
    return true;
}

static bool can_be_empty(const Parser *parser, int node);

static Status parse_quantifier(Parser *parser, int *node) {
    size_t start = parser->at;
    uint32_t low = 0, high = REGEX_UNLIMITED;
    bool braces = false;
    if (accept(parser, "+"))
        low = 1;
    else if (accept(parser, "?"))
        high = 1;
    else if (!accept(parser, "*")) {
        if (peek(parser, 0) != '{' || !parse_braces(parser, &low, &high)) return OK;
        braces = true;
    }
    int next = peek(parser, 0);
    bool possessive = !braces && accept(parser, "+");
    if ((!possessive && next == '+') || next == '?' || next == '*' || (possessive && peek(parser, 0) == '+'))
        return refuse(parser, start, parser->at + 1 - start, "the quantifier");
    if (low > REPEAT_LIMIT || (high > REPEAT_LIMIT && high != REGEX_UNLIMITED) || high < low || high == 0)
        return refuse(parser, start, parser->at - start, "the quantifier");
    Node *atom = &parser->nodes[*node];
    if (atom->kind == NODE_AHEAD || atom->kind == NODE_LINE_END || can_be_empty(parser, *node))
        return refuse(parser, start, parser->at - start, "after something that can be empty the quantifier");
    if (atom->kind == NODE_SET && atom->low == 1 && atom->high == 1) {
        atom->low = low;
        atom->high = high;
        atom->possessive = possessive;
        return OK;
    }
    if (possessive) return refuse(parser, start, parser->at - start, "after a group the quantifier");
    int repeat = NONE;
    TRY(new_node(parser, NODE_REPEAT, &repeat));
    parser->nodes[repeat].child = *node;
    parser->nodes[repeat].low = low;
    parser->nodes[repeat].high = high;
    *node = repeat;
    return OK;
}

static Status parse_all(Parser *parser, int *ret_node) {
    int last = NONE;
    TRY(new_node(parser, NODE_ALL, ret_node));
    while (peek(parser, 0) != NONE && peek(parser, 0) != '|' && peek(parser, 0) != ')') {
        int node = NONE;
        TRY(parse_atom(parser, last, &node));
        TRY(parse_quantifier(parser, &node));
        *(last == NONE ? &parser->nodes[*ret_node].child : &parser->nodes[last].sibling) = node;
        last = node;
    }
    return OK;
}

static Status parse_any(Parser *parser, int *ret_node) {
    int first = NONE, last = NONE;
    TRY(parse_all(parser, &first));
    *ret_node = last = first;
    if (peek(parser, 0) != '|') return OK;
    TRY(new_node(parser, NODE_ANY, ret_node));
    parser->nodes[*ret_node].child = first;
    while (accept(parser, "|")) {
        int node = NONE;
        TRY(parse_all(parser, &node));
        parser->nodes[last].sibling = node;
        last = node;
    }
    return OK;
}

/* ---- what a tree can match ---- */

static bool can_be_empty(const Parser *parser, int number) {
    const Node *node = &parser->nodes[number];
    bool any = false, all = true;
    if (node->kind == NODE_CHAR) return false;
    if (node->kind == NODE_SET || node->kind == NODE_REPEAT) return node->low == 0;
    for (int i = node->child; node->kind != NODE_AHEAD && i != NONE; i = parser->nodes[i].sibling) {
        bool empty = can_be_empty(parser, i);
        any |= empty;
        all &= empty;
    }
    return node->kind == NODE_ANY ? any : all;
}

/* Adds the characters that a match of the tree can start with. */
static void add_first(const Parser *parser, int number, CharSet *set) {
    const Node *node = &parser->nodes[number];
    for (int i = 0; node->kind == NODE_CHAR && i < 3; i++) char_set_add(set, node->chars[i], node->chars[i]);
    for (size_t i = 0; node->kind == NODE_SET && i < CHAR_SET_WORDS; i++) set->bits[i] |= node->set->bits[i];
    for (int i = node->child; node->kind != NODE_AHEAD && i != NONE; i = parser->nodes[i].sibling) {
        add_first(parser, i, set);
        if (node->kind == NODE_ALL && !can_be_empty(parser, i)) break;
    }
}

/* Whether the tree has a loop, which must not be inside another one: backtracking would take exponential
 * time. */
static bool has_loop(const Parser *parser, int number) {
    const Node *node = &parser->nodes[number];
    if ((node->kind == NODE_SET || node->kind == NODE_REPEAT) && node->high > 1 && node->high != node->low)
        return true;
    for (int i = node->child; i != NONE; i = parser->nodes[i].sibling)
        if (has_loop(parser, i)) return true;
    return false;
}

/* ---- compilation ---- */

static Status add_op(Parser *parser, RegexOp op, uint32_t *ret_number) {
    Regex *regex = parser->regex;
    if (regex->count == OP_LIMIT)
        return FAILED("%s: the pattern '%.200s' repeats too much", parser->from, parser->pattern);
    TRY(mem_grow(&regex->ops, &regex->capacity, regex->count + 1, sizeof *regex->ops));
    *ret_number = (uint32_t)regex->count;
    op.next = (uint32_t)regex->count + 1;
    regex->ops[regex->count++] = op;
    return OK;
}

static Status compile(Parser *parser, int number);

/* A choice between the tree, compiled next, and what the caller sets as `other`. */
static Status add_split(Parser *parser, int number, uint32_t *ret_split) {
    CLEANUP(mem_freep) CharSet *first = NULL;
    TRY(mem_new(1, sizeof *first, &first));
    if (can_be_empty(parser, number))
        char_set_invert(first);
    else
        add_first(parser, number, first);
    return add_op(parser, (RegexOp){.kind = REGEX_SPLIT, .ascii = {first->bits[0], first->bits[1]}},
                  ret_split);
}

static Status compile_any(Parser *parser, const Node *node) {
    uint32_t split = 0, jump = 0, chain = UINT32_MAX; /* jumps to the end, linked through `other` */
    for (int i = node->child; i != NONE; i = parser->nodes[i].sibling) {
        bool last = parser->nodes[i].sibling == NONE;
        if (!last) TRY(add_split(parser, i, &split));
        TRY(compile(parser, i));
        if (last) break;
        TRY(add_op(parser, (RegexOp){.kind = REGEX_JUMP, .other = chain}, &jump));
        chain = jump;
        parser->regex->ops[split].other = (uint32_t)parser->regex->count;
    }
    while (chain != UINT32_MAX) {
        RegexOp *op = &parser->regex->ops[chain];
        chain = op->other;
        op->next = (uint32_t)parser->regex->count;
    }
    return OK;
}

static Status compile_repeat(Parser *parser, const Node *node) {
    if (has_loop(parser, node->child) && node->high > 1)
        return FAILED(
            "%s: the pattern '%.200s' has a repetition inside a repeated group, which is not supported",
            parser->from, parser->pattern);
    for (uint32_t i = 0; i < node->low; i++) TRY(compile(parser, node->child));
    uint32_t split = 0, jump = 0, chain = UINT32_MAX;
    if (node->high == REGEX_UNLIMITED) {
        TRY(add_split(parser, node->child, &split));
        TRY(compile(parser, node->child));
        TRY(add_op(parser, (RegexOp){.kind = REGEX_JUMP}, &jump));
        parser->regex->ops[jump].next = split;
        parser->regex->ops[split].other = (uint32_t)parser->regex->count;
        return OK;
    }
    for (uint32_t i = node->low; i < node->high; i++) {
        TRY(add_split(parser, node->child, &split));
        parser->regex->ops[split].other = chain;
        chain = split;
        TRY(compile(parser, node->child));
    }
    while (chain != UINT32_MAX) {
        RegexOp *op = &parser->regex->ops[chain];
        chain = op->other;
        op->other = (uint32_t)parser->regex->count;
    }
    return OK;
}

static Status compile_ahead(Parser *parser, const Node *node) {
    uint32_t ahead = 0, match = 0;
    TRY(add_op(parser, (RegexOp){.kind = node->negative ? REGEX_NOT_AHEAD : REGEX_AHEAD}, &ahead));
    TRY(compile(parser, node->child));
    TRY(add_op(parser, (RegexOp){.kind = REGEX_MATCH}, &match));
    parser->regex->ops[ahead].other = (uint32_t)parser->regex->count;
    return OK;
}

static Status compile(Parser *parser, int number) {
    const Node *node = &parser->nodes[number];
    uint32_t op = 0;
    switch (node->kind) {
    case NODE_CHAR:
        return add_op(
            parser, (RegexOp){.kind = REGEX_CHAR, .chars = {node->chars[0], node->chars[1], node->chars[2]}},
            &op);
    case NODE_SET:
        return add_op(parser,
                      (RegexOp){.kind = REGEX_SET,
                                .set = node->set,
                                .low = node->low,
                                .high = node->high,
                                .possessive = node->possessive},
                      &op);
    case NODE_ALL:
        for (int i = node->child; i != NONE; i = parser->nodes[i].sibling) TRY(compile(parser, i));
        return OK;
    case NODE_ANY: return compile_any(parser, node);
    case NODE_REPEAT: return compile_repeat(parser, node);
    case NODE_AHEAD: return compile_ahead(parser, node);
    case NODE_LINE_END: return add_op(parser, (RegexOp){.kind = REGEX_LINE_END}, &op);
    }
    return OK;
}

/* A loop that ends the match never needs to give anything back. */
static void mark_final_loops(Regex *regex) {
    for (size_t i = 0; i < regex->count; i++) {
        uint32_t next = regex->ops[i].next;
        if (regex->ops[i].kind != REGEX_SET) continue;
        while (regex->ops[next].kind == REGEX_JUMP) next = regex->ops[next].next;
        if (regex->ops[next].kind == REGEX_MATCH) regex->ops[i].possessive = true;
    }
}

Status regex_new(Regex **ret_regex, const char *pattern, size_t size, const char *from) {
    CLEANUP(mem_freep) Parser *parser = NULL;
    CLEANUP(regex_freep) Regex *regex = NULL;
    TRY(mem_new(1, sizeof *parser, &parser));
    TRY(mem_new(1, sizeof *regex, &regex));
    parser->pattern = pattern;
    parser->size = size;
    parser->from = from;
    parser->regex = regex;
    int root = NONE;
    uint32_t match = 0;
    TRY(parse_any(parser, &root));
    if (parser->at < size) return refuse(parser, parser->at, 1, "an unmatched");
    if (can_be_empty(parser, root))
        return FAILED("%s: the pattern '%.200s' can match the empty string, which is not supported", from,
                      pattern);
    add_first(parser, root, &regex->first);
    TRY(compile(parser, root));
    TRY(add_op(parser, (RegexOp){.kind = REGEX_MATCH}, &match));
    mark_final_loops(regex);
    *ret_regex = regex;
    regex = NULL;
    return OK;
}
