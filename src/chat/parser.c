/* The statements of a template as a tree. */
#include <stdlib.h>

#include "base/memory.h"
#include "chat/jinja_internal.h"
#include "tokenizer/tokenizer.h"

enum { DEPTH_LIMIT = 200 };

Status parser_node(Parser *parser, NodeKind kind, Node **ret_node) {
    Node *node = NULL;
    TRY(region_take(parser->region, 1, sizeof *node, &node));
    node->kind = kind;
    node->line = parser->at->line;
    *ret_node = node;
    return OK;
}

Status node_add(Parser *parser, Node *node, const Node *item) {
    if (node->count == node->capacity) {
        const Node **grown = NULL;
        node->capacity = 2 * node->capacity + 4;
        TRY(region_take(parser->region, node->capacity, sizeof *grown, &grown));
        if (node->count) memcpy(grown, node->item, node->count * sizeof *grown);
        node->item = grown;
    }
    node->item[node->count++] = item;
    return OK;
}

Status parser_expected(const Parser *parser, const char *what) {
    const Token *at = parser->at;
    if (at->kind == TOKEN_EOF)
        return TEMPLATE_FAILED(parser->name, at->line, "expected %s, found the end of the template", what);
    Text text = at->kind == TOKEN_OUTPUT_END  ? TEXT("}}")
                : at->kind == TOKEN_BLOCK_END ? TEXT("%}")
                                              : at->text;
    return TEMPLATE_FAILED(parser->name, at->line, "expected %s, found '%.*s'", what,
                           (int)(text.size < 40 ? text.size : 40), text.data ? text.data : "");
}

bool parser_is(const Parser *parser, const char *op) {
    return parser->at->kind == TOKEN_OPERATOR && text_is(parser->at->text, op);
}

bool parser_is_name(const Parser *parser, const char *name) {
    return parser->at->kind == TOKEN_NAME && text_is(parser->at->text, name);
}

bool parser_skip(Parser *parser, const char *op) {
    bool is = parser_is(parser, op);
    parser->at += is;
    return is;
}

bool parser_skip_name(Parser *parser, const char *name) {
    bool is = parser_is_name(parser, name);
    parser->at += is;
    return is;
}

Status parser_expect(Parser *parser, const char *op) {
    char what[16];
    if (parser_skip(parser, op)) return OK;
    snprintf(what, sizeof what, "'%s'", op);
    return parser_expected(parser, what);
}

Status parser_expect_name(Parser *parser, Text *ret_name) {
    if (parser->at->kind != TOKEN_NAME) return parser_expected(parser, "a name");
    *ret_name = parser->at++->text;
    return OK;
}

Status parser_enter(Parser *parser) {
    if (++parser->depth <= DEPTH_LIMIT) return OK;
    return TEMPLATE_FAILED(parser->name, parser->at->line, "more than %d nested constructs", DEPTH_LIMIT);
}

static Status expect_block_end(Parser *parser) {
    if (parser->at->kind != TOKEN_BLOCK_END) return parser_expected(parser, "the end of the block");
    parser->at++;
    return OK;
}

/* Parses statements up to a block with one of these names. *ret_end is the index of that name, which the
 * parser has passed. */
static Status parse_body(Parser *parser, const char *const *ends, const Node **ret_body, int *ret_end);

static Status parse_one_body(Parser *parser, const char *end, const Node **ret_body) {
    const char *const ends[] = {end, NULL};
    int which;
    TRY(expect_block_end(parser));
    TRY(parse_body(parser, ends, ret_body, &which));
    return expect_block_end(parser);
}

/* ---- statements; the parser is after the name ---- */

static Status parse_if(Parser *parser, const Node **ret_node) {
    static const char *const ends[] = {"endif", "else", "elif", NULL};
    enum { ELSE = 1, ELIF = 2 };
    Node *node = NULL;
    int end;
    TRY(parser_node(parser, NODE_IF, &node));
    *ret_node = node;
    TRY(parse_tuple(parser, false, &node->a));
    TRY(expect_block_end(parser));
    TRY(parse_body(parser, ends, &node->b, &end));
    while (end == ELIF) {
        Node *next = NULL;
        TRY(parser_node(parser, NODE_IF, &next));
        node->c = next;
        node = next;
        TRY(parse_tuple(parser, false, &node->a));
        TRY(expect_block_end(parser));
        TRY(parse_body(parser, ends, &node->b, &end));
    }
    if (end == ELSE) return parse_one_body(parser, "endif", &node->c);
    return expect_block_end(parser);
}

/* A name, an attribute of a namespace if `attributes`, or a tuple of these. */
static Status parse_target(Parser *parser, bool attributes, const Node **ret_node) {
    Node *tuple = NULL;
    TRY(parser_node(parser, NODE_TUPLE, &tuple));
    bool parens = parser_skip(parser, "("), comma = false;
    do {
        Node *target = NULL, *whole = NULL;
        if (tuple->count && parser->at->kind != TOKEN_NAME) break;
        TRY(parser_node(parser, NODE_NAME, &target));
        TRY(parser_expect_name(parser, &target->name));
        if (attributes && parser_skip(parser, ".")) {
            TRY(parser_node(parser, NODE_ATTR, &whole));
            whole->a = target;
            TRY(parser_expect_name(parser, &whole->name));
            target = whole;
        }
        TRY(node_add(parser, tuple, target));
        comma |= parser_is(parser, ",");
    } while (parser_skip(parser, ","));
    if (parens) TRY(parser_expect(parser, ")"));
    *ret_node = comma ? tuple : tuple->item[0];
    return OK;
}

static Status parse_for(Parser *parser, const Node **ret_node) {
    static const char *const ends[] = {"endfor", "else", NULL};
    Node *node = NULL;
    const Node *body = NULL, *otherwise = NULL;
    int end;
    TRY(parser_node(parser, NODE_FOR, &node));
    TRY(parse_target(parser, false, &node->a));
    if (!parser_skip_name(parser, "in")) return parser_expected(parser, "'in'");
    TRY(parse_tuple(parser, false, &node->b));
    if (parser_skip_name(parser, "if")) TRY(parse_expression(parser, &node->c));
    if (parser_is_name(parser, "recursive"))
        return TEMPLATE_FAILED(parser->name, node->line, "recursive loops are not supported");
    TRY(expect_block_end(parser));
    parser->loops++;
    TRY(parse_body(parser, ends, &body, &end));
    parser->loops--;
    if (end)
        TRY(parse_one_body(parser, "endfor", &otherwise));
    else
        TRY(expect_block_end(parser));
    TRY(node_add(parser, node, body));
    TRY(node_add(parser, node, otherwise));
    *ret_node = node;
    return OK;
}

static Status parse_set(Parser *parser, const Node **ret_node) {
    Node *node = NULL, *captured = NULL;
    TRY(parser_node(parser, NODE_SET, &node));
    TRY(parse_target(parser, true, &node->a));
    *ret_node = node;
    if (parser_skip(parser, "=")) {
        TRY(parse_tuple(parser, true, &node->b));
        return expect_block_end(parser);
    }
    node->kind = NODE_SET_BLOCK;
    TRY(parser_node(parser, NODE_CAPTURED, &captured));
    node->c = captured;
    TRY(parse_filters(parser, false, &node->c));
    return parse_one_body(parser, "endset", &node->b);
}

static Status parse_parameters(Parser *parser, Node *macro) {
    TRY(parser_expect(parser, "("));
    while (!parser_is(parser, ")")) {
        Node *parameter = NULL;
        if (macro->count) TRY(parser_expect(parser, ","));
        if (parser_is(parser, ")")) break;
        TRY(parser_node(parser, NODE_PARAMETER, &parameter));
        TRY(parser_expect_name(parser, &parameter->name));
        if (parser_skip(parser, "="))
            TRY(parse_expression(parser, &parameter->a));
        else if (macro->count && macro->item[macro->count - 1]->a)
            return parser_expected(parser, "a default, as for the parameter before");
        TRY(node_add(parser, macro, parameter));
    }
    return parser_expect(parser, ")");
}

/* Macros are not part of the loops around them. */
static Status parse_macro_body(Parser *parser, const char *end, Node *macro) {
    int loops = parser->loops;
    parser->loops = 0;
    TRY(parse_one_body(parser, end, &macro->b));
    parser->loops = loops;
    return OK;
}

static Status parse_macro(Parser *parser, const Node **ret_node) {
    Node *node = NULL;
    TRY(parser_node(parser, NODE_MACRO, &node));
    TRY(parser_expect_name(parser, &node->name));
    TRY(parse_parameters(parser, node));
    *ret_node = node;
    return parse_macro_body(parser, "endmacro", node);
}

static Status parse_call_block(Parser *parser, const Node **ret_node) {
    Node *node = NULL, *caller = NULL;
    TRY(parser_node(parser, NODE_CALL_BLOCK, &node));
    TRY(parser_node(parser, NODE_MACRO, &caller));
    caller->name = TEXT("caller");
    if (parser_is(parser, "(")) TRY(parse_parameters(parser, caller));
    TRY(parse_expression(parser, &node->a));
    if (node->a->kind != NODE_CALL) return parser_expected(parser, "a call of a macro");
    node->b = caller;
    *ret_node = node;
    return parse_macro_body(parser, "endcall", caller);
}

static Status parse_filter_block(Parser *parser, const Node **ret_node) {
    Node *node = NULL, *captured = NULL;
    TRY(parser_node(parser, NODE_FILTER_BLOCK, &node));
    TRY(parser_node(parser, NODE_CAPTURED, &captured));
    node->a = captured;
    TRY(parse_filters(parser, true, &node->a));
    *ret_node = node;
    return parse_one_body(parser, "endfilter", &node->b);
}

static Status parse_with(Parser *parser, const Node **ret_node) {
    Node *node = NULL;
    TRY(parser_node(parser, NODE_WITH, &node));
    while (parser->at->kind != TOKEN_BLOCK_END) {
        Node *set = NULL;
        if (node->count) TRY(parser_expect(parser, ","));
        TRY(parser_node(parser, NODE_SET, &set));
        Node *target = NULL;
        TRY(parser_node(parser, NODE_NAME, &target));
        TRY(parser_expect_name(parser, &target->name));
        set->a = target;
        TRY(parser_expect(parser, "="));
        TRY(parse_expression(parser, &set->b));
        TRY(node_add(parser, node, set));
    }
    *ret_node = node;
    return parse_one_body(parser, "endwith", &node->b);
}

static Status parse_generation(Parser *parser, const Node **ret_node) {
    Node *node = NULL;
    TRY(parser_node(parser, NODE_GENERATION, &node));
    parser->marks = true;
    *ret_node = node;
    return parse_one_body(parser, "endgeneration", &node->b);
}

static Status parse_jump(Parser *parser, NodeKind kind, const Node **ret_node) {
    Node *node = NULL;
    TRY(parser_node(parser, kind, &node));
    *ret_node = node;
    if (!parser->loops)
        return TEMPLATE_FAILED(parser->name, node->line, "'%s' outside of a loop",
                               kind == NODE_BREAK ? "break" : "continue");
    return expect_block_end(parser);
}

static Status parse_break(Parser *parser, const Node **ret_node) {
    return parse_jump(parser, NODE_BREAK, ret_node);
}

static Status parse_continue(Parser *parser, const Node **ret_node) {
    return parse_jump(parser, NODE_CONTINUE, ret_node);
}

/* ---- bodies ---- */

static const struct {
    const char *name;
    Status (*parse)(Parser *parser, const Node **ret_node);
} statements[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"with", parse_with},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"break", parse_break},
    {"continue", parse_continue},
    {"generation", parse_generation},
};

static Status parse_statement(Parser *parser, const Node **ret_node) {
    const Token *at = parser->at;
    Text name = {0};
    TRY(parser_expect_name(parser, &name));
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (text_is(name, statements[i].name)) return statements[i].parse(parser, ret_node);
    bool closing = name.size > 3 && !memcmp(name.data, "end", 3);
    return TEMPLATE_FAILED(parser->name, at->line,
                           closing ? "'%.*s' without its beginning" : "the statement '%.*s' is not supported",
                           (int)(name.size < 40 ? name.size : 40), name.data);
}

static Status parse_output(Parser *parser, const Node **ret_node) {
    Node *node = NULL;
    TRY(parser_node(parser, NODE_OUTPUT, &node));
    parser->at++;
    TRY(parse_tuple(parser, true, &node->a));
    if (parser->at->kind != TOKEN_OUTPUT_END) return parser_expected(parser, "the end of the output");
    parser->at++;
    *ret_node = node;
    return OK;
}

/* Whether the block that begins here has one of these names. */
static bool is_end(Parser *parser, const char *const *ends, int *ret_end) {
    for (int i = 0; ends && ends[i]; i++) {
        const Token *name = parser->at + 1;
        if (name->kind != TOKEN_NAME || !text_is(name->text, ends[i])) continue;
        *ret_end = i;
        return true;
    }
    return false;
}

static Status parse_body(Parser *parser, const char *const *ends, const Node **ret_body, int *ret_end) {
    Node *body = NULL;
    TRY(parser_enter(parser));
    TRY(parser_node(parser, NODE_BODY, &body));
    for (;;) {
        const Node *item = NULL;
        if (parser->at->kind == TOKEN_EOF) {
            char what[32];
            if (!ends) break;
            snprintf(what, sizeof what, "'%s'", ends[0]);
            return parser_expected(parser, what);
        }
        if (parser->at->kind == TOKEN_DATA) {
            Node *data = NULL;
            TRY(parser_node(parser, NODE_DATA, &data));
            data->value = value_text(parser->at++->text);
            item = data;
        } else if (parser->at->kind == TOKEN_OUTPUT_BEGIN) {
            TRY(parse_output(parser, &item));
        } else {
            if (is_end(parser, ends, ret_end)) {
                parser->at += 2;
                break;
            }
            parser->at++;
            TRY(parse_statement(parser, &item));
        }
        TRY(node_add(parser, body, item));
    }
    parser->depth--;
    *ret_body = body;
    return OK;
}

Status jinja_parse(Jinja **ret_template, const char *text, size_t size, const char *name) {
    enum { SIZE_LIMIT = 4 << 20, MEMORY_LIMIT = 256 << 20 };
    CLEANUP(jinja_freep) Jinja *template = NULL;
    TokenArray tokens = {0};
    size_t first = 0;
    if (size > SIZE_LIMIT) return FAILED("%s: the template is longer than %d bytes", name, SIZE_LIMIT);
    if (text_invalid_utf8(text, size, &first))
        return FAILED("%s: the template is not UTF-8 at byte %zu", name, first);
    TRY(mem_new(1, sizeof *template, &template));
    template->region.limit = MEMORY_LIMIT;
    TRY(str_dup(name, &template->name));
    TRY(jinja_lex(&template->region, (Text){text, size}, name, &tokens));
    Parser parser = {.region = &template->region, .name = template->name, .at = tokens.token};
    TRY(parse_body(&parser, NULL, &template->root, NULL));
    template->marks = parser.marks;
    return MOVE(ret_template, template);
}

void jinja_free(Jinja *template) {
    if (!template) return;
    region_done(&template->region);
    free(template->name);
    free(template);
}

bool jinja_has_marks(const Jinja *template) {
    return template->marks;
}
