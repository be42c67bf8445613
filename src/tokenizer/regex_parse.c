/* Parses a pattern into a tree, which is then compiled into operations. A pattern that this does not know is
 * translated for PCRE2, so an error here only says which part that is. */
#include "tokenizer/regex_pcre.h"
#include "tokenizer/regex_scan.h"

enum { NODE_LIMIT = 2000, OP_LIMIT = 20000, NONE = -1 };

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
    RegexScan scan;
    Node nodes[NODE_LIMIT];
    int count;
    Regex *regex;
} Parser;

static Status new_node(Parser *parser, NodeKind kind, int *ret_node) {
    if (parser->count == NODE_LIMIT)
        return FAILED("%s: the pattern '%.200s...' is too long", parser->scan.from, parser->scan.pattern);
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

static Status parse_set_node(Parser *parser, int *ret_node) {
    CLEANUP(mem_freep) CharSet *set = NULL;
    TRY(mem_new(1, sizeof *set, &set));
    TRY(scan_set(&parser->scan, set));
    TRY(new_node(parser, NODE_SET, ret_node));
    parser->nodes[*ret_node].low = parser->nodes[*ret_node].high = 1;
    return keep_set(parser, &set, &parser->nodes[*ret_node].set);
}

/* ---- atoms, quantifiers, groups ---- */

static Status parse_char_node(Parser *parser, int previous, int *ret_node) {
    uint32_t chars[3], before = 0;
    if (previous != NONE && parser->nodes[previous].kind == NODE_CHAR)
        before = parser->nodes[previous].chars[0];
    TRY(scan_char(&parser->scan, before, chars));
    TRY(new_node(parser, NODE_CHAR, ret_node));
    memcpy(parser->nodes[*ret_node].chars, chars, sizeof chars);
    return OK;
}

static Status parse_any(Parser *parser, int *ret_node);

static Status parse_group(Parser *parser, int *ret_node) {
    RegexScan *scan = &parser->scan;
    size_t start = scan->at;
    bool fold = scan->fold, ahead = false, negative = false;
    scan->at++;
    if (scan_accept(scan, "?i:"))
        scan->fold = true;
    else if (scan_accept(scan, "?="))
        ahead = true;
    else if (scan_accept(scan, "?!"))
        ahead = negative = true;
    else if (!scan_accept(scan, "?:") && scan_peek(scan, 0) == '?')
        return scan_refuse(scan, start, 4, "the group");
    if (++scan->depth > REGEX_DEPTH_LIMIT) return scan_refuse(scan, start, 1, "too deep a group");
    int inside = NONE;
    TRY(parse_any(parser, &inside));
    if (!scan_accept(scan, ")")) return scan_refuse(scan, start, 1, "an unfinished group");
    scan->depth--;
    scan->fold = fold;
    *ret_node = inside;
    if (!ahead) return OK;
    TRY(new_node(parser, NODE_AHEAD, ret_node));
    parser->nodes[*ret_node].child = inside;
    parser->nodes[*ret_node].negative = negative;
    return OK;
}

static Status parse_atom(Parser *parser, int previous, int *ret_node) {
    RegexScan *scan = &parser->scan;
    int c = scan_peek(scan, 0);
    if (c == '(') return parse_group(parser, ret_node);
    if (scan_is_set(scan)) return parse_set_node(parser, ret_node);
    if (c == '$') {
        scan->at++;
        return new_node(parser, NODE_LINE_END, ret_node);
    }
    if (strchr("^*+?", c)) return scan_refuse(scan, scan->at, 1, "the operator");
    return parse_char_node(parser, previous, ret_node);
}

static bool can_be_empty(const Parser *parser, int node);

static Status parse_quantifier(Parser *parser, int *node) {
    RegexScan *scan = &parser->scan;
    size_t start = scan->at;
    RegexRepeat found = {0};
    TRY(scan_quantifier(scan, &found));
    if (!found.any) return OK;
    Node *atom = &parser->nodes[*node];
    bool empty = atom->kind == NODE_AHEAD || atom->kind == NODE_LINE_END || can_be_empty(parser, *node);
    if (found.lazy || found.again || empty)
        return scan_refuse(scan, start, scan->at - start, "the quantifier");
    if (atom->kind == NODE_SET && atom->low == 1 && atom->high == 1) {
        atom->low = found.low;
        atom->high = found.high;
        atom->possessive = found.possessive;
        return OK;
    }
    if (found.possessive) return scan_refuse(scan, start, scan->at - start, "after a group the quantifier");
    int repeat = NONE;
    TRY(new_node(parser, NODE_REPEAT, &repeat));
    parser->nodes[repeat].child = *node;
    parser->nodes[repeat].low = found.low;
    parser->nodes[repeat].high = found.high;
    *node = repeat;
    return OK;
}

static bool more_atoms(const RegexScan *scan) {
    int c = scan_peek(scan, 0);
    return c != NONE && c != '|' && c != ')';
}

static Status parse_all(Parser *parser, int *ret_node) {
    int last = NONE;
    TRY(new_node(parser, NODE_ALL, ret_node));
    while (more_atoms(&parser->scan)) {
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
    if (scan_peek(&parser->scan, 0) != '|') return OK;
    TRY(new_node(parser, NODE_ANY, ret_node));
    parser->nodes[*ret_node].child = first;
    while (scan_accept(&parser->scan, "|")) {
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
        return FAILED("%s: the pattern '%.200s' repeats too much", parser->scan.from, parser->scan.pattern);
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
            parser->scan.from, parser->scan.pattern);
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

static Status parse(Regex *regex, const char *pattern, size_t size, const char *from) {
    CLEANUP(mem_freep) Parser *parser = NULL;
    TRY(mem_new(1, sizeof *parser, &parser));
    parser->scan = (RegexScan){.pattern = pattern, .from = from, .size = size};
    parser->regex = regex;
    int root = NONE;
    uint32_t match = 0;
    TRY(parse_any(parser, &root));
    if (parser->scan.at < size) return scan_refuse(&parser->scan, parser->scan.at, 1, "an unmatched");
    if (can_be_empty(parser, root)) return scan_refuse(&parser->scan, 0, 0, "an empty match");
    add_first(parser, root, &regex->first);
    TRY(compile(parser, root));
    TRY(add_op(parser, (RegexOp){.kind = REGEX_MATCH}, &match));
    mark_final_loops(regex);
    return OK;
}

Status regex_new(Regex **ret_regex, const char *pattern, size_t size, const char *from) {
    CLEANUP(regex_freep) Regex *regex = NULL;
    CLEANUP(mem_freep) char *translated = NULL;
    TRY(mem_new(1, sizeof *regex, &regex));
    CLEANUP(status_freep) Status unknown = parse(regex, pattern, size, from);
    if (unknown) {
        TRY(regex_translate(pattern, size, from, &translated));
        TRY(regex_pcre_new(&regex->pcre, translated, pattern, from));
    }
    return MOVE(ret_regex, regex);
}

Status regex_new_replacing(Regex **ret_regex, const char *pattern, size_t size, const char *from) {
    CLEANUP(regex_freep) Regex *regex = NULL;
    TRY(regex_new(&regex, pattern, size, from));
    if (regex->pcre && regex_pcre_can_be_empty(regex->pcre))
        return FAILED(
            "%s: the pattern '%.200s' of a Replace can match the empty string, which is not supported", from,
            pattern);
    return MOVE(ret_regex, regex);
}
