/* Between the files that make up the Jinja interpreter: tokens (lexer.c), the tree (parser.c, expressions.c),
 * and its evaluation (render.c, evaluate.c, calls.c and the tables of functions). */
#ifndef WEFT_CHAT_JINJA_INTERNAL_H
#define WEFT_CHAT_JINJA_INTERNAL_H

#include "chat/jinja.h"
#include "chat/value.h"

/* An error of the template, with its name and the line. */
#define TEMPLATE_FAILED(name, line, ...) status_wrap(FAILED(__VA_ARGS__), "%s, line %d", name, line)

/* ---- tokens ---- */

typedef enum {
    TOKEN_DATA,
    TOKEN_OUTPUT_BEGIN,
    TOKEN_OUTPUT_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_TEXT,
    TOKEN_INTEGER,
    TOKEN_REAL,
    TOKEN_OPERATOR,
    TOKEN_EOF,
} TokenKind;

typedef struct Token {
    TokenKind kind;
    int line;
    Text text;   /* as written; of TOKEN_DATA, what is printed */
    Value value; /* of TOKEN_TEXT, TOKEN_INTEGER and TOKEN_REAL */
} Token;

typedef struct TokenArray {
    Token *token;
    size_t count, capacity;
} TokenArray;

/* The last token is TOKEN_EOF. Tokens live in the region. */
MUST_USE Status jinja_lex(Region *region, Text text, const char *name, TokenArray *ret_tokens);

/* ---- the tree ---- */

typedef enum {
    /* statements */
    NODE_BODY,         /* items */
    NODE_DATA,         /* value */
    NODE_OUTPUT,       /* a */
    NODE_IF,           /* a: condition; b: body; c: else */
    NODE_FOR,          /* a: target; b: iterable; c: condition or NULL; items: body, else or NULL */
    NODE_SET,          /* a: target; b: value */
    NODE_SET_BLOCK,    /* a: target; b: body; c: filters, applied to NODE_CAPTURED, or NULL */
    NODE_MACRO,        /* name; items: parameters, NODE_PARAMETER; b: body */
    NODE_CALL_BLOCK,   /* a: call; b: NODE_MACRO for caller() */
    NODE_FILTER_BLOCK, /* a: filters, applied to NODE_CAPTURED; b: body */
    NODE_WITH,         /* items: NODE_SET; b: body */
    NODE_GENERATION,   /* b: body */
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_PARAMETER, /* name; a: default or NULL */
    /* expressions */
    NODE_CONST, /* value */
    NODE_NAME,
    NODE_CAPTURED,
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT,    /* items: key, value, key ... */
    NODE_ATTR,    /* a.name */
    NODE_ITEM,    /* a[b] */
    NODE_SLICE,   /* a[b:c:items[0]]; b, c and the item may be NULL */
    NODE_CALL,    /* a: function; items: arguments */
    NODE_FILTER,  /* a | name(items) */
    NODE_TEST,    /* a is name(items) */
    NODE_KEYWORD, /* name=a, an argument */
    NODE_SPREAD,  /* *a, an argument */
    NODE_NOT,
    NODE_NEGATIVE,
    NODE_POSITIVE,
    NODE_AND,
    NODE_OR,
    NODE_CONDITION, /* a: condition; b; c: else or NULL */
    NODE_COMPARE,   /* a; items: NODE_OPERAND */
    NODE_OPERAND,   /* name: operator; a */
    NODE_BINARY,    /* a name b */
    NODE_CONCAT,    /* items */
} NodeKind;

typedef struct Node Node;
struct Node {
    NodeKind kind;
    int line;
    Text name;
    Value value;
    const Node *a, *b, *c;
    const Node **item;
    size_t count, capacity;
};

struct Jinja {
    Region region;
    char *name;
    const Node *root;
    bool marks;
};

typedef struct Parser {
    Region *region;
    const char *name;
    const Token *at;
    int depth, loops; /* of nested constructs; of loops around the statement */
    bool marks;
} Parser;

MUST_USE Status parser_node(Parser *parser, NodeKind kind, Node **ret_node);
MUST_USE Status node_add(Parser *parser, Node *node, const Node *item);
MUST_USE Status parser_expected(const Parser *parser, const char *what);
bool parser_is(const Parser *parser, const char *op);
bool parser_is_name(const Parser *parser, const char *name);
bool parser_skip(Parser *parser, const char *op);
bool parser_skip_name(Parser *parser, const char *name);
MUST_USE Status parser_expect(Parser *parser, const char *op);
MUST_USE Status parser_expect_name(Parser *parser, Text *ret_name);
/* Bounds recursion; every call that succeeds is followed by parser->depth--. */
MUST_USE Status parser_enter(Parser *parser);

MUST_USE Status parse_expression(Parser *parser, const Node **ret_node);
/* The same without "x if y". */
MUST_USE Status parse_plain_expression(Parser *parser, const Node **ret_node);
/* Expressions separated by commas are a tuple. */
MUST_USE Status parse_tuple(Parser *parser, bool conditions, const Node **ret_node);
MUST_USE Status parse_arguments(Parser *parser, Node *call);
/* Filters after a value: with `first`, the first name comes without a bar. */
MUST_USE Status parse_filters(Parser *parser, bool first, const Node **node);

/* ---- evaluation ---- */

typedef struct Variable {
    Text name;
    Value value;
} Variable;

/* Variables of the template, a macro call or an iteration. */
typedef struct Frame Frame;
struct Frame {
    Frame *parent;
    Variable *variable;
    size_t count, capacity;
};

struct Loop {
    List items;
    size_t index;
    Value changed; /* arguments of the last changed() */
};

typedef enum { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } Flow;

typedef struct Run {
    const Jinja *template;
    Region region;
    Writer *out, *main;
    Value captured; /* of the block whose filters are evaluated */
    Flow flow;
    int depth;
    int64_t steps, now;
    JinjaSpan *marks;
    size_t mark_count, mark_capacity;
} Run;

typedef struct Args {
    const Value *item;
    size_t count;
    const Variable *named;
    size_t named_count;
} Args;

typedef Status (*Function)(Run *run, const Node *at, Value self, const Args *args, Value *ret_value);

/* A row of a table of functions, filters, tests or methods. `most` arguments besides `self`. */
typedef struct FunctionRow {
    const char *name;
    Function function;
    int most;
} FunctionRow;

struct Callable {
    Text name;
    const FunctionRow *row; /* of a function or a method of `self` ... */
    Value self;
    const Node *macro; /* ... or a macro in its frame */
    Frame *frame;
};

#define RUN_FAILED(run, at, ...) TEMPLATE_FAILED((run)->template->name, (at)->line, __VA_ARGS__)

/* Counts a step and a level of recursion; every call that succeeds is followed by run->depth--. */
MUST_USE Status run_enter(Run *run, const Node *at);
MUST_USE Status run_body(Run *run, Frame *frame, const Node *body);
/* What a body prints. */
MUST_USE Status run_capture(Run *run, Frame *frame, const Node *body, Value *ret_text);
MUST_USE Status run_assign(Run *run, Frame *frame, const Node *target, Value value);
MUST_USE Status frame_new(Run *run, Frame *parent, Frame **ret_frame);
MUST_USE Status frame_set(Run *run, Frame *frame, Text name, Value value);
MUST_USE Status evaluate(Run *run, Frame *frame, const Node *node, Value *ret_value);
/* Looks up an attribute (x.name) or an item (x[key]). */
MUST_USE Status value_attribute(Run *run, const Node *at, Value value, Text name, Value *ret_value);
MUST_USE Status value_item(Run *run, const Node *at, Value value, Value key, Value *ret_value);
MUST_USE Status evaluate_call(Run *run, Frame *frame, const Node *node, Value *ret_value);
MUST_USE Status evaluate_filter(Run *run, Frame *frame, const Node *node, Value *ret_value);
MUST_USE Status evaluate_test(Run *run, Frame *frame, const Node *node, bool *ret_true);
/* By name, for filters such as map and select. */
MUST_USE Status apply_filter(Run *run, const Node *at, Text name, Value self, const Args *args,
                             Value *ret_value);
MUST_USE Status apply_test(Run *run, const Node *at, Text name, Value self, const Args *args, bool *ret_true);
MUST_USE Status call_value(Run *run, const Node *at, Value function, const Args *args, const Value *caller,
                           Value *ret_value);
MUST_USE Status callable_new(Run *run, Callable callable, Value *ret_value);
/* a in b. */
MUST_USE Status value_contains(Run *run, const Node *at, Value item, Value container, bool *ret_contains);
/* a op b. */
MUST_USE Status value_binary(Run *run, const Node *at, Text op, Value a, Value b, Value *ret_value);
/* Python's str(). */
MUST_USE Status value_to_text(Run *run, const Node *at, Value value, Text *ret_text);

/* The method of a value; NULL: it has none of this name. */
const FunctionRow *method_find(Value value, Text name);
const FunctionRow *function_find(const FunctionRow *rows, Text name);
extern const FunctionRow global_functions[], common_filters[], list_filters[], tests[];

/* An argument by position or name. */
bool arg_find(const Args *args, size_t index, const char *name, Value *ret_value);
MUST_USE Status arg_text(Run *run, const Node *at, const Args *args, size_t index, const char *name,
                         Text *ret_text);
MUST_USE Status arg_integer(Run *run, const Node *at, const Args *args, size_t index, const char *name,
                            int64_t *ret_integer);
bool arg_true(const Args *args, size_t index, const char *name);
/* The texts that trim, strip, split and replace make, shared by filters and methods. */
Text text_strip(Text text, const Text *characters, bool left, bool right);
MUST_USE Status text_replace(Run *run, Text text, Text from, Text to, int64_t most, Value *ret_value);
/* For HTML. */
MUST_USE Status text_escape(Writer *out, Text text);
MUST_USE Status text_case(Run *run, const Node *at, Text text, int to, Value *ret_value);
enum { CASE_LOWER, CASE_UPPER, CASE_CAPITAL, CASE_TITLE, CASE_TITLE_FILTER };

#endif
