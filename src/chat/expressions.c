/* The expressions of a template as a tree, by recursive descent with jinja2's precedence. */
#include "chat/jinja_internal.h"

/* Parses an operand of `next` into a new node, which then becomes the left one. */
typedef Status (*Operand)(Parser *parser, const Node **ret_node);

static Status parse_unary(Parser *parser, bool filters, const Node **ret_node);

static Status new_text(Parser *parser, NodeKind kind, Text name, Node **ret_node) {
    TRY(parser_node(parser, kind, ret_node));
    (*ret_node)->name = name;
    return OK;
}

/* ---- values ---- */

static Status parse_list(Parser *parser, const char *end, Node *node) {
    bool pairs = node->kind == NODE_DICT;
    while (!parser_is(parser, end)) {
        const Node *item = NULL;
        if (node->count) TRY(parser_expect(parser, ","));
        if (parser_is(parser, end)) break;
        TRY(parse_expression(parser, &item));
        TRY(node_add(parser, node, item));
        if (!pairs) continue;
        TRY(parser_expect(parser, ":"));
        TRY(parse_expression(parser, &item));
        TRY(node_add(parser, node, item));
    }
    return parser_expect(parser, end);
}

/* Adjacent strings are one. */
static Status parse_texts(Parser *parser, Node *node) {
    Writer text = {.region = parser->region};
    node->value = parser->at->value;
    if (parser->at[1].kind == TOKEN_TEXT) {
        for (; parser->at->kind == TOKEN_TEXT; parser->at++) TRY(writer_add(&text, parser->at->value.text));
        node->value = writer_value(&text);
        return OK;
    }
    parser->at++;
    return OK;
}

static Status parse_name(Parser *parser, Node *node) {
    Text name = parser->at++->text;
    bool yes = text_is(name, "true") || text_is(name, "True");
    node->kind = NODE_CONST;
    if (yes || text_is(name, "false") || text_is(name, "False")) {
        node->value = value_bool(yes);
    } else if (text_is(name, "none") || text_is(name, "None")) {
        node->value = value_none();
    } else {
        node->kind = NODE_NAME;
        node->name = name;
    }
    return OK;
}

/* In parentheses: an expression or a tuple, which may be empty. */
static Status parse_group(Parser *parser, const Node **ret_node) {
    Node *tuple = NULL;
    if (parser_skip(parser, ")")) {
        TRY(parser_node(parser, NODE_TUPLE, &tuple));
        *ret_node = tuple;
        return OK;
    }
    TRY(parse_tuple(parser, true, ret_node));
    return parser_expect(parser, ")");
}

static Status parse_primary(Parser *parser, const Node **ret_node) {
    Node *node = NULL;
    const Token *at = parser->at;
    if (parser_skip(parser, "(")) return parse_group(parser, ret_node);
    TRY(parser_node(parser, NODE_CONST, &node));
    *ret_node = node;
    if (at->kind == TOKEN_NAME) return parse_name(parser, node);
    if (at->kind == TOKEN_TEXT) return parse_texts(parser, node);
    if (at->kind == TOKEN_INTEGER || at->kind == TOKEN_REAL) {
        node->value = parser->at++->value;
        return OK;
    }
    bool list = parser_skip(parser, "[");
    if (!list && !parser_skip(parser, "{")) return parser_expected(parser, "an expression");
    node->kind = list ? NODE_LIST : NODE_DICT;
    return parse_list(parser, list ? "]" : "}", node);
}

/* ---- what follows a value ---- */

Status parse_arguments(Parser *parser, Node *call) {
    TRY(parser_expect(parser, "("));
    bool named = false;
    while (!parser_is(parser, ")")) {
        Node *argument = NULL;
        const Node *item = NULL;
        if (call->count) TRY(parser_expect(parser, ","));
        if (parser_is(parser, ")")) break;
        if (parser_is(parser, "**"))
            return TEMPLATE_FAILED(parser->name, parser->at->line,
                                   "arguments of the form '**' are not supported");
        bool keyword = parser->at->kind == TOKEN_NAME && parser->at[1].kind == TOKEN_OPERATOR &&
                       text_is(parser->at[1].text, "=");
        if (named && !keyword) return parser_expected(parser, "a named argument");
        if (keyword) {
            TRY(new_text(parser, NODE_KEYWORD, parser->at->text, &argument));
            parser->at += 2;
            TRY(parse_expression(parser, &argument->a));
        } else if (parser_skip(parser, "*")) {
            TRY(parser_node(parser, NODE_SPREAD, &argument));
            TRY(parse_expression(parser, &argument->a));
        } else {
            TRY(parse_expression(parser, &item));
        }
        named |= keyword;
        TRY(node_add(parser, call, argument ? argument : item));
    }
    return parser_expect(parser, ")");
}

static Status parse_call(Parser *parser, const Node **node) {
    Node *call = NULL;
    TRY(parser_node(parser, NODE_CALL, &call));
    call->a = *node;
    *node = call;
    return parse_arguments(parser, call);
}

static bool ends_slice(const Parser *parser) {
    return parser_is(parser, ":") || parser_is(parser, "]");
}

/* The parser is after '['. */
static Status parse_item(Parser *parser, const Node **node) {
    Node *item = NULL;
    const Node *step = NULL;
    TRY(parser_node(parser, NODE_ITEM, &item));
    item->a = *node;
    *node = item;
    if (!ends_slice(parser)) TRY(parse_expression(parser, &item->b));
    if (parser_skip(parser, ":")) {
        item->kind = NODE_SLICE;
        if (!ends_slice(parser)) TRY(parse_expression(parser, &item->c));
        if (parser_skip(parser, ":") && !ends_slice(parser)) TRY(parse_expression(parser, &step));
        TRY(node_add(parser, item, step));
    } else if (!item->b) {
        return parser_expected(parser, "an index");
    }
    return parser_expect(parser, "]");
}

static Status parse_attribute(Parser *parser, const Node **node) {
    Node *attribute = NULL, *index = NULL;
    TRY(parser_node(parser, NODE_ATTR, &attribute));
    attribute->a = *node;
    *node = attribute;
    if (parser->at->kind != TOKEN_INTEGER) return parser_expect_name(parser, &attribute->name);
    TRY(parser_node(parser, NODE_CONST, &index));
    index->value = parser->at++->value;
    attribute->kind = NODE_ITEM;
    attribute->b = index;
    return OK;
}

/* Parses links of a chain until there is none. Chains bound recursion, too: the tree is as deep as they are
 * long. */
static Status parse_chain(Parser *parser, const Node **node,
                          Status (*parse_link)(Parser *parser, const Node **node, bool *ret_found)) {
    int depth = parser->depth;
    bool found = true;
    for (; found; parser->depth++) {
        TRY(parser_enter(parser));
        parser->depth--;
        TRY(parse_link(parser, node, &found));
    }
    parser->depth = depth;
    return OK;
}

static Status parse_access(Parser *parser, const Node **node, bool *ret_found) {
    if (parser_skip(parser, ".")) return parse_attribute(parser, node);
    if (parser_skip(parser, "[")) return parse_item(parser, node);
    if (parser_is(parser, "(")) return parse_call(parser, node);
    *ret_found = false;
    return OK;
}

static Status parse_postfix(Parser *parser, const Node **node) {
    return parse_chain(parser, node, parse_access);
}

static Status parse_filter(Parser *parser, const Node **node) {
    Node *filter = NULL;
    TRY(parser_node(parser, NODE_FILTER, &filter));
    TRY(parser_expect_name(parser, &filter->name));
    filter->a = *node;
    *node = filter;
    return parser_is(parser, "(") ? parse_arguments(parser, filter) : OK;
}

static Status parse_test(Parser *parser, const Node **node) {
    Node *test = NULL, *negation = NULL;
    const Node *argument = NULL;
    bool negated = parser_skip_name(parser, "not");
    TRY(parser_node(parser, NODE_TEST, &test));
    TRY(parser_expect_name(parser, &test->name));
    test->a = *node;
    *node = test;
    TokenKind kind = parser->at->kind;
    bool word = kind == TOKEN_NAME && !parser_is_name(parser, "else") && !parser_is_name(parser, "or") &&
                !parser_is_name(parser, "and") && !parser_is_name(parser, "is") &&
                !parser_is_name(parser, "if") && !parser_is_name(parser, "not") &&
                !parser_is_name(parser, "in");
    if (parser_is(parser, "(")) {
        TRY(parse_arguments(parser, test));
    } else if (word || kind == TOKEN_TEXT || kind == TOKEN_INTEGER || kind == TOKEN_REAL ||
               parser_is(parser, "[") || parser_is(parser, "{")) {
        TRY(parse_primary(parser, &argument));
        TRY(parse_postfix(parser, &argument));
        TRY(node_add(parser, test, argument));
    }
    if (!negated) return OK;
    TRY(parser_node(parser, NODE_NOT, &negation));
    negation->a = *node;
    *node = negation;
    return OK;
}

static Status parse_operator(Parser *parser, const Node **node, bool *ret_found) {
    if (parser_skip(parser, "|")) return parse_filter(parser, node);
    if (parser_skip_name(parser, "is")) return parse_test(parser, node);
    if (parser_is(parser, "(")) return parse_call(parser, node);
    *ret_found = false;
    return OK;
}

static Status parse_after(Parser *parser, const Node **node) {
    return parse_chain(parser, node, parse_operator);
}

Status parse_filters(Parser *parser, bool first, const Node **node) {
    if (first) TRY(parse_filter(parser, node));
    while (parser_skip(parser, "|")) TRY(parse_filter(parser, node));
    return OK;
}

/* ---- operators, from those that bind the strongest ---- */

static Status parse_unary_sign(Parser *parser, bool filters, const Node **ret_node) {
    Node *node = NULL;
    bool minus = parser_is(parser, "-");
    if (minus || parser_is(parser, "+")) {
        TRY(parser_node(parser, minus ? NODE_NEGATIVE : NODE_POSITIVE, &node));
        parser->at++;
        TRY(parse_unary(parser, false, &node->a));
        *ret_node = node;
    } else {
        TRY(parse_primary(parser, ret_node));
    }
    TRY(parse_postfix(parser, ret_node));
    return filters ? parse_after(parser, ret_node) : OK;
}

static Status parse_unary(Parser *parser, bool filters, const Node **ret_node) {
    TRY(parser_enter(parser));
    TRY(parse_unary_sign(parser, filters, ret_node));
    parser->depth--;
    return OK;
}

static Status parse_operand(Parser *parser, const Node **ret_node) {
    return parse_unary(parser, true, ret_node);
}

/* Left-associative binary operators. */
static Status parse_binary(Parser *parser, const char *const *operators, Operand next,
                           const Node **ret_node) {
    int depth = parser->depth;
    TRY(next(parser, ret_node));
    for (int i = 0; operators[i];) {
        if (!parser_is(parser, operators[i])) {
            i++;
            continue;
        }
        Node *node = NULL;
        TRY(parser_enter(parser));
        TRY(new_text(parser, NODE_BINARY, parser->at++->text, &node));
        node->a = *ret_node;
        TRY(next(parser, &node->b));
        *ret_node = node;
        i = 0;
    }
    parser->depth = depth;
    return OK;
}

static Status parse_power(Parser *parser, const Node **ret_node) {
    static const char *const operators[] = {"**", NULL};
    return parse_binary(parser, operators, parse_operand, ret_node);
}

static Status parse_product(Parser *parser, const Node **ret_node) {
    static const char *const operators[] = {"*", "/", "//", "%", NULL};
    return parse_binary(parser, operators, parse_power, ret_node);
}

static Status parse_concat(Parser *parser, const Node **ret_node) {
    Node *node = NULL;
    const Node *item = NULL;
    TRY(parse_product(parser, ret_node));
    if (!parser_is(parser, "~")) return OK;
    TRY(parser_node(parser, NODE_CONCAT, &node));
    TRY(node_add(parser, node, *ret_node));
    while (parser_skip(parser, "~")) {
        TRY(parse_product(parser, &item));
        TRY(node_add(parser, node, item));
    }
    *ret_node = node;
    return OK;
}

static Status parse_sum(Parser *parser, const Node **ret_node) {
    static const char *const operators[] = {"+", "-", NULL};
    return parse_binary(parser, operators, parse_concat, ret_node);
}

/* The comparison that begins here, which is then skipped. */
static bool skip_comparison(Parser *parser, Text *ret_operator) {
    static const char *const operators[] = {"==", "!=", "<=", ">=", "<", ">", NULL};
    for (int i = 0; operators[i]; i++) {
        if (!parser_skip(parser, operators[i])) continue;
        *ret_operator = text_of_string(operators[i]);
        return true;
    }
    bool not_in = parser_is_name(parser, "not") && parser->at[1].kind == TOKEN_NAME &&
                  text_is(parser->at[1].text, "in");
    *ret_operator = not_in ? TEXT("not in") : TEXT("in");
    if (not_in) parser->at++;
    return parser_skip_name(parser, "in");
}

static Status parse_comparison(Parser *parser, const Node **ret_node) {
    Node *node = NULL, *operand = NULL;
    Text op;
    TRY(parse_sum(parser, ret_node));
    while (skip_comparison(parser, &op)) {
        if (!node) TRY(parser_node(parser, NODE_COMPARE, &node));
        if (!node->a) node->a = *ret_node;
        TRY(new_text(parser, NODE_OPERAND, op, &operand));
        TRY(parse_sum(parser, &operand->a));
        TRY(node_add(parser, node, operand));
        *ret_node = node;
    }
    return OK;
}

static Status parse_not(Parser *parser, const Node **ret_node) {
    Node *node = NULL;
    if (!parser_is_name(parser, "not")) return parse_comparison(parser, ret_node);
    TRY(parser_enter(parser));
    TRY(parser_node(parser, NODE_NOT, &node));
    parser->at++;
    TRY(parse_not(parser, &node->a));
    parser->depth--;
    *ret_node = node;
    return OK;
}

/* "and" and "or". */
static Status parse_words(Parser *parser, const char *word, NodeKind kind, Operand next,
                          const Node **ret_node) {
    int depth = parser->depth;
    TRY(next(parser, ret_node));
    while (parser_is_name(parser, word)) {
        Node *node = NULL;
        TRY(parser_enter(parser));
        TRY(parser_node(parser, kind, &node));
        parser->at++;
        node->a = *ret_node;
        TRY(next(parser, &node->b));
        *ret_node = node;
    }
    parser->depth = depth;
    return OK;
}

static Status parse_and(Parser *parser, const Node **ret_node) {
    return parse_words(parser, "and", NODE_AND, parse_not, ret_node);
}

Status parse_plain_expression(Parser *parser, const Node **ret_node) {
    TRY(parser_enter(parser));
    TRY(parse_words(parser, "or", NODE_OR, parse_and, ret_node));
    parser->depth--;
    return OK;
}

Status parse_expression(Parser *parser, const Node **ret_node) {
    int depth = parser->depth;
    TRY(parse_plain_expression(parser, ret_node));
    while (parser_is_name(parser, "if")) {
        Node *node = NULL;
        TRY(parser_enter(parser));
        TRY(parser_node(parser, NODE_CONDITION, &node));
        parser->at++;
        node->b = *ret_node;
        TRY(parse_plain_expression(parser, &node->a));
        if (parser_skip_name(parser, "else")) TRY(parse_expression(parser, &node->c));
        *ret_node = node;
    }
    parser->depth = depth;
    return OK;
}

static bool ends_tuple(const Parser *parser) {
    TokenKind kind = parser->at->kind;
    return kind == TOKEN_OUTPUT_END || kind == TOKEN_BLOCK_END || parser_is(parser, ")");
}

Status parse_tuple(Parser *parser, bool conditions, const Node **ret_node) {
    Node *tuple = NULL;
    Operand one = conditions ? parse_expression : parse_plain_expression;
    TRY(one(parser, ret_node));
    if (!parser_is(parser, ",")) return OK;
    TRY(parser_node(parser, NODE_TUPLE, &tuple));
    TRY(node_add(parser, tuple, *ret_node));
    while (parser_skip(parser, ",") && !ends_tuple(parser)) {
        TRY(one(parser, ret_node));
        TRY(node_add(parser, tuple, *ret_node));
    }
    *ret_node = tuple;
    return OK;
}
