/* Calls of functions, methods, macros, filters and tests. */
#include "chat/jinja_internal.h"

Status callable_new(Run *run, Callable callable, Value *ret_value) {
    Callable *copy = NULL;
    TRY(region_take(&run->region, 1, sizeof *copy, &copy));
    *copy = callable;
    *ret_value = (Value){.kind = V_CALLABLE, .callable = copy};
    return OK;
}

/* ---- arguments ---- */

static Status add_spread(Run *run, const Node *node, List *positional, Value value) {
    List items = {0};
    bool iterable;
    TRY(value_items(&run->region, value, &items, &iterable));
    if (!iterable) return RUN_FAILED(run, node, "'*' needs a list, not %s", value_type(value));
    for (size_t i = 0; i < items.count; i++) TRY(list_add(&run->region, positional, items.item[i]));
    return OK;
}

static Status evaluate_args(Run *run, Frame *frame, const Node *node, Args *ret_args) {
    List positional = {0};
    Variable *named = NULL;
    size_t named_count = 0;
    Value value;
    if (node->count) TRY(region_take(&run->region, node->count, sizeof *named, &named));
    for (size_t i = 0; i < node->count; i++) {
        const Node *item = node->item[i];
        bool plain = item->kind != NODE_KEYWORD && item->kind != NODE_SPREAD;
        TRY(evaluate(run, frame, plain ? item : item->a, &value));
        if (item->kind == NODE_KEYWORD)
            named[named_count++] = (Variable){item->name, value};
        else
            TRY(plain ? list_add(&run->region, &positional, value)
                      : add_spread(run, item, &positional, value));
    }
    *ret_args = (Args){positional.item, positional.count, named, named_count};
    return OK;
}

static const Value *named_find(const Args *args, Text name) {
    for (size_t i = 0; i < args->named_count; i++)
        if (text_equal(args->named[i].name, name)) return &args->named[i].value;
    return NULL;
}

bool arg_find(const Args *args, size_t index, const char *name, Value *ret_value) {
    const Value *found = index < args->count ? &args->item[index]
                         : name              ? named_find(args, text_of_string(name))
                                             : NULL;
    if (found) *ret_value = *found;
    return found != NULL;
}

Status arg_text(Run *run, const Node *at, const Args *args, size_t index, const char *name, Text *ret_text) {
    Value value;
    if (!arg_find(args, index, name, &value))
        return RUN_FAILED(run, at, "the argument '%s' is missing", name);
    if (value.kind != V_TEXT)
        return RUN_FAILED(run, at, "the argument '%s' must be a string, not %s", name, value_type(value));
    *ret_text = value.text;
    return OK;
}

Status arg_integer(Run *run, const Node *at, const Args *args, size_t index, const char *name,
                   int64_t *ret_integer) {
    Value value;
    if (!arg_find(args, index, name, &value)) return OK;
    if (!value_integer(value, ret_integer))
        return RUN_FAILED(run, at, "the argument '%s' must be an integer, not %s", name, value_type(value));
    return OK;
}

bool arg_true(const Args *args, size_t index, const char *name) {
    Value value;
    return arg_find(args, index, name, &value) && value_true(value);
}

/* ---- macros ---- */

/* Arguments of macros that have no parameter are errors, as for functions. */
static Status check_macro(Run *run, const Node *at, const Node *macro, const Args *args) {
    if (args->count > macro->count)
        return RUN_FAILED(run, at, "macro '%.*s' takes %zu arguments, not %zu", (int)macro->name.size,
                          macro->name.data, macro->count, args->count);
    for (size_t i = 0; i < args->named_count; i++) {
        bool known = false;
        for (size_t k = 0; k < macro->count; k++)
            known |= text_equal(macro->item[k]->name, args->named[i].name);
        if (!known)
            return RUN_FAILED(run, at, "macro '%.*s' has no parameter '%.*s'", (int)macro->name.size,
                              macro->name.data, (int)args->named[i].name.size, args->named[i].name.data);
    }
    return OK;
}

static Status call_macro(Run *run, const Node *at, const Callable *callable, const Args *args,
                         const Value *caller, Value *ret_value) {
    const Node *macro = callable->macro;
    Frame *frame = NULL;
    Flow flow = run->flow;
    TRY(check_macro(run, at, macro, args));
    TRY(frame_new(run, callable->frame, &frame));
    if (caller) TRY(frame_set(run, frame, TEXT("caller"), *caller));
    for (size_t i = 0; i < macro->count; i++) {
        const Node *parameter = macro->item[i];
        const Value *named = named_find(args, parameter->name);
        Value value = value_undefined(parameter->name);
        if (i < args->count)
            value = args->item[i];
        else if (named)
            value = *named;
        else if (parameter->a)
            TRY(evaluate(run, frame, parameter->a, &value));
        TRY(frame_set(run, frame, parameter->name, value));
    }
    TRY(run_capture(run, frame, macro->b, ret_value));
    run->flow = flow;
    return OK;
}

/* ---- calls ---- */

const FunctionRow *function_find(const FunctionRow *rows, Text name) {
    for (; rows->name; rows++)
        if (text_is(name, rows->name)) return rows;
    return NULL;
}

static Status call_row(Run *run, const Node *at, const FunctionRow *row, Value self, const Args *args,
                       Value *ret_value) {
    if (row->most >= 0 && args->count + args->named_count > (size_t)row->most)
        return RUN_FAILED(run, at, "'%s' takes up to %d arguments, not %zu", row->name, row->most,
                          args->count + args->named_count);
    return row->function(run, at, self, args, ret_value);
}

Status call_value(Run *run, const Node *at, Value function, const Args *args, const Value *caller,
                  Value *ret_value) {
    const Callable *callable = function.callable;
    if (function.kind == V_UNDEFINED)
        return RUN_FAILED(run, at, "'%.*s' is undefined or not supported",
                          (int)(function.text.size < 60 ? function.text.size : 60),
                          function.text.data ? function.text.data : "");
    if (function.kind != V_CALLABLE) return RUN_FAILED(run, at, "%s cannot be called", value_type(function));
    if (callable->macro) return call_macro(run, at, callable, args, caller, ret_value);
    return call_row(run, at, callable->row, callable->self, args, ret_value);
}

/* The frame of a call block has its body under a name that no template can use. */
static const Value *caller_of(const Frame *frame) {
    bool block = frame->count == 1 && text_is(frame->variable[0].name, " caller");
    return block ? &frame->variable[0].value : NULL;
}

Status evaluate_call(Run *run, Frame *frame, const Node *node, Value *ret_value) {
    Value function;
    Args args;
    TRY(evaluate(run, frame, node->a, &function));
    TRY(evaluate_args(run, frame, node, &args));
    return call_value(run, node, function, &args, caller_of(frame), ret_value);
}

/* ---- filters and tests ---- */

Status apply_filter(Run *run, const Node *at, Text name, Value self, const Args *args, Value *ret_value) {
    const FunctionRow *row = function_find(common_filters, name);
    if (!row) row = function_find(list_filters, name);
    if (!row)
        return RUN_FAILED(run, at, "the filter '%.*s' is not supported",
                          (int)(name.size < 60 ? name.size : 60), name.data);
    return call_row(run, at, row, self, args, ret_value);
}

Status apply_test(Run *run, const Node *at, Text name, Value self, const Args *args, bool *ret_true) {
    const FunctionRow *row = function_find(tests, name);
    Value value;
    if (!row)
        return RUN_FAILED(run, at, "the test '%.*s' is not supported", (int)(name.size < 60 ? name.size : 60),
                          name.data);
    TRY(call_row(run, at, row, self, args, &value));
    *ret_true = value.boolean;
    return OK;
}

Status evaluate_filter(Run *run, Frame *frame, const Node *node, Value *ret_value) {
    Value value;
    Args args;
    TRY(evaluate(run, frame, node->a, &value));
    TRY(evaluate_args(run, frame, node, &args));
    return apply_filter(run, node, node->name, value, &args, ret_value);
}

Status evaluate_test(Run *run, Frame *frame, const Node *node, bool *ret_true) {
    Value value;
    Args args;
    TRY(evaluate(run, frame, node->a, &value));
    TRY(evaluate_args(run, frame, node, &args));
    return apply_test(run, node, node->name, value, &args, ret_true);
}
