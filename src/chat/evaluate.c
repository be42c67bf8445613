/* Evaluates expressions. */
#include <math.h>

#include "chat/jinja_internal.h"

/* ---- text ---- */

Status value_to_text(Run *run, const Node *at, Value value, Text *ret_text) {
    if (value.kind == V_TEXT) {
        *ret_text = value.text;
        return OK;
    }
    Writer text = {.region = &run->region};
    if (value.kind >= V_NAMESPACE) return RUN_FAILED(run, at, "%s cannot be printed", value_type(value));
    TRY(writer_str(&text, value));
    *ret_text = writer_value(&text).text;
    return OK;
}

/* ---- attributes and items ---- */

static Status undefined_used(Run *run, const Node *at, Value value) {
    return RUN_FAILED(run, at, "'%.*s' is undefined", (int)(value.text.size < 60 ? value.text.size : 60),
                      value.text.data ? value.text.data : "");
}

static bool loop_attribute(const Loop *loop, Text name, Value *ret_value) {
    int64_t index = (int64_t)loop->index, count = (int64_t)loop->items.count;
    const struct {
        const char *name;
        Value value;
    } attributes[] = {
        {"index", value_int(index + 1)},
        {"index0", value_int(index)},
        {"revindex", value_int(count - index)},
        {"revindex0", value_int(count - index - 1)},
        {"first", value_bool(index == 0)},
        {"last", value_bool(index + 1 == count)},
        {"length", value_int(count)},
        {"depth", value_int(1)},
        {"depth0", value_int(0)},
        {"previtem", index ? loop->items.item[index - 1] : value_undefined(TEXT("loop.previtem"))},
        {"nextitem",
         index + 1 < count ? loop->items.item[index + 1] : value_undefined(TEXT("loop.nextitem"))},
    };
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        if (!text_is(name, attributes[i].name)) continue;
        *ret_value = attributes[i].value;
        return true;
    }
    return false;
}

/* Members that Python's types have beyond the methods that templates may call. */
static Status refuse_method(Run *run, const Node *at, Value value, Text name) {
    static const char *const changing[] = {"append",  "extend", "insert", "remove",     "clear",   "sort",
                                           "reverse", "pop",    "update", "setdefault", "popitem", NULL};
    bool container = value.kind == V_LIST || value.kind == V_DICT;
    for (int i = 0; container && changing[i]; i++)
        if (text_is(name, changing[i]))
            return RUN_FAILED(run, at, "'%s' would change %s, which templates may not", changing[i],
                              value_type(value));
    return OK;
}

Status value_attribute(Run *run, const Node *at, Value value, Text name, Value *ret_value) {
    if (value.kind == V_UNDEFINED) return undefined_used(run, at, value);
    if (value.kind == V_LOOP && loop_attribute(value.loop, name, ret_value)) return OK;
    const FunctionRow *method = method_find(value, name);
    if (method) return callable_new(run, (Callable){.name = name, .row = method, .self = value}, ret_value);
    bool dict = value.kind == V_DICT || value.kind == V_NAMESPACE;
    const Value *found = dict ? dict_find_text(value.dict, name) : NULL;
    if (!found) TRY(refuse_method(run, at, value, name));
    *ret_value = found ? *found : value_undefined(name);
    return OK;
}

/* The item of a list or the character of a text at an index, which may be negative. */
static bool item_at(Value value, int64_t index, Value *ret_value) {
    int64_t length = 0;
    value_length(value, &length);
    if (index < 0) index += length;
    if (index < 0 || index >= length) return false;
    if (value.kind != V_TEXT) {
        *ret_value = value.list->item[index];
        return true;
    }
    size_t start = text_offset(value.text, index);
    *ret_value = value_text((Text){value.text.data + start, char_size(value.text.data + start)});
    return true;
}

Status value_item(Run *run, const Node *at, Value value, Value key, Value *ret_value) {
    int64_t index;
    if (value.kind == V_UNDEFINED) return undefined_used(run, at, value);
    if ((value_is_list(value) || value.kind == V_TEXT) && value_integer(key, &index)) {
        if (!item_at(value, index, ret_value)) *ret_value = value_undefined(TEXT("item"));
        return OK;
    }
    if (value.kind == V_DICT || value.kind == V_NAMESPACE) {
        const Value *found = dict_find(value.dict, key);
        *ret_value = found ? *found : value_undefined(key.kind == V_TEXT ? key.text : TEXT("item"));
        if (found) return OK;
    }
    if (key.kind == V_TEXT) return value_attribute(run, at, value, key.text, ret_value);
    *ret_value = value_undefined(TEXT("item"));
    return OK;
}

/* Resolves an optional bound of a slice to 0 .. length, or -1 .. length - 1 for a negative step. */
static Status slice_bound(Run *run, Frame *frame, const Node *node, int64_t length, bool backward,
                          int64_t *bound) {
    Value value;
    if (!node) return OK;
    TRY(evaluate(run, frame, node, &value));
    if (value.kind == V_NONE) return OK;
    if (!value_integer(value, bound))
        return RUN_FAILED(run, node, "a slice needs integers, not %s", value_type(value));
    int64_t low = backward ? -1 : 0, high = backward ? length - 1 : length;
    if (*bound < 0) *bound = *bound < -length ? low : *bound + length;
    if (*bound < low) *bound = low;
    if (*bound > high) *bound = high;
    return OK;
}

static Status slice_items(Run *run, Value value, int64_t from, int64_t to, int64_t step, Value *ret_value) {
    List items = {0};
    bool iterable, text = value.kind == V_TEXT;
    Writer out = {.region = &run->region};
    Value list = value;
    TRY(value_items(&run->region, value, &items, &iterable));
    if (!text) TRY(list_new(&run->region, value.kind, &list));
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
        TRY(text ? writer_add(&out, items.item[i].text) : list_add(&run->region, list.list, items.item[i]));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    *ret_value = text ? writer_value(&out) : list;
    return OK;
}

static Status evaluate_slice(Run *run, Frame *frame, const Node *node, Value *ret_value) {
    Value value, step_value = value_none();
    int64_t length = 0, step = 1;
    TRY(evaluate(run, frame, node->a, &value));
    if (value.kind == V_UNDEFINED) return undefined_used(run, node, value);
    if (!value_is_list(value) && value.kind != V_TEXT)
        return RUN_FAILED(run, node, "%s cannot be sliced", value_type(value));
    if (node->item[0]) TRY(evaluate(run, frame, node->item[0], &step_value));
    if (step_value.kind != V_NONE && (!value_integer(step_value, &step) || step == 0))
        return RUN_FAILED(run, node, "a slice's step is an integer other than 0");
    value_length(value, &length);
    int64_t from = step > 0 ? 0 : length - 1, to = step > 0 ? length : -1;
    TRY(slice_bound(run, frame, node->b, length, step < 0, &from));
    TRY(slice_bound(run, frame, node->c, length, step < 0, &to));
    if (value.kind == V_TEXT && step == 1) {
        size_t start = text_offset(value.text, from);
        Text rest = {value.text.data + start, value.text.size - start};
        *ret_value = value_text((Text){rest.data, to > from ? text_offset(rest, to - from) : 0});
        return OK;
    }
    return slice_items(run, value, from, to, step, ret_value);
}

/* ---- operators ---- */

static Status cannot(Run *run, const Node *at, Text op, Value a, Value b) {
    if (a.kind == V_UNDEFINED) return undefined_used(run, at, a);
    if (b.kind == V_UNDEFINED) return undefined_used(run, at, b);
    return RUN_FAILED(run, at, "'%.*s' cannot combine %s and %s", (int)op.size, op.data, value_type(a),
                      value_type(b));
}

/* Python rounds quotients down. */
static bool integer_operation(char op, int64_t a, int64_t b, int64_t *ret) {
    if (op == '+') return !__builtin_add_overflow(a, b, ret);
    if (op == '-') return !__builtin_sub_overflow(a, b, ret);
    if (op == '*') return !__builtin_mul_overflow(a, b, ret);
    if (b == -1) return op == '%' ? (*ret = 0, true) : !__builtin_sub_overflow(0, a, ret);
    int64_t quotient = a / b, rest = a % b;
    bool down = rest && (rest < 0) != (b < 0);
    *ret = op == '%' ? rest + (down ? b : 0) : quotient - down;
    return true;
}

static bool integer_power(int64_t base, int64_t power, int64_t *ret) {
    int64_t result = 1;
    while (power > 0) {
        if (power & 1 && __builtin_mul_overflow(result, base, &result)) return false;
        power >>= 1;
        if (power && __builtin_mul_overflow(base, base, &base)) return false;
    }
    *ret = result;
    return true;
}

static Status number_operation(Run *run, const Node *at, Text op, Value a, Value b, Value *ret_value) {
    int64_t x = 0, y = 0, result;
    bool integers = value_integer(a, &x) && value_integer(b, &y);
    bool divides = op.data[0] == '/' || op.data[0] == '%', power = text_is(op, "**");
    double u = value_number(a), v = value_number(b);
    if (divides && v == 0) return RUN_FAILED(run, at, "division by zero");
    if (integers && !text_is(op, "/") && !(power && y < 0)) {
        if (!(power ? integer_power(x, y, &result) : integer_operation(op.data[0], x, y, &result)))
            return RUN_FAILED(run, at, "an integer of more than 64 bits");
        *ret_value = value_int(result);
        return OK;
    }
    double rest = v == 0 ? 0 : fmod(u, v);
    if (rest != 0 && (rest < 0) != (v < 0)) rest += v;
    *ret_value = value_real(power               ? pow(u, v)
                            : text_is(op, "//") ? floor(u / v)
                            : op.data[0] == '/' ? u / v
                            : op.data[0] == '%' ? rest
                            : op.data[0] == '*' ? u * v
                            : op.data[0] == '+' ? u + v
                                                : u - v);
    return OK;
}

static Status repeat(Run *run, Value value, int64_t times, Value *ret_value) {
    Writer text = {.region = &run->region};
    Value list = value;
    if (value.kind != V_TEXT) TRY(list_new(&run->region, value.kind, &list));
    bool empty = value.kind == V_TEXT ? value.text.size == 0 : value.list->count == 0;
    for (int64_t n = 0; n < times && !empty; n++) {
        if (value.kind == V_TEXT) TRY(writer_add(&text, value.text));
        for (size_t i = 0; value.kind != V_TEXT && i < value.list->count; i++)
            TRY(list_add(&run->region, list.list, value.list->item[i]));
    }
    *ret_value = value.kind == V_TEXT ? writer_value(&text) : list;
    return OK;
}

static Status join_lists(Run *run, Value a, Value b, Value *ret_value) {
    TRY(list_new(&run->region, a.kind, ret_value));
    for (size_t i = 0; i < a.list->count; i++) TRY(list_add(&run->region, ret_value->list, a.list->item[i]));
    for (size_t i = 0; i < b.list->count; i++) TRY(list_add(&run->region, ret_value->list, b.list->item[i]));
    return OK;
}

Status value_binary(Run *run, const Node *at, Text op, Value a, Value b, Value *ret_value) {
    int64_t times;
    if (value_is_number(a) && value_is_number(b)) return number_operation(run, at, op, a, b, ret_value);
    if (text_is(op, "+") && a.kind == V_TEXT && b.kind == V_TEXT) {
        Writer text = {.region = &run->region};
        TRY(b.markup && !a.markup ? text_escape(&text, a.text) : writer_add(&text, a.text));
        TRY(a.markup && !b.markup ? text_escape(&text, b.text) : writer_add(&text, b.text));
        *ret_value = writer_value(&text);
        ret_value->markup = a.markup || b.markup;
        return OK;
    }
    if (text_is(op, "+") && value_is_list(a) && a.kind == b.kind) return join_lists(run, a, b, ret_value);
    bool a_repeats = a.kind == V_TEXT || value_is_list(a), b_repeats = b.kind == V_TEXT || value_is_list(b);
    if (text_is(op, "*") && a_repeats && value_integer(b, &times)) return repeat(run, a, times, ret_value);
    if (text_is(op, "*") && b_repeats && value_integer(a, &times)) return repeat(run, b, times, ret_value);
    return cannot(run, at, op, a, b);
}

Status value_contains(Run *run, const Node *at, Value item, Value container, bool *ret_contains) {
    List items = {0};
    bool iterable;
    if (container.kind == V_TEXT) {
        if (item.kind != V_TEXT) return cannot(run, at, TEXT("in"), item, container);
        Text in = container.text;
        *ret_contains =
            item.text.size == 0 || (in.size && memmem(in.data, in.size, item.text.data, item.text.size));
        return OK;
    }
    if (container.kind == V_DICT) {
        *ret_contains = dict_find(container.dict, item) != NULL;
        return OK;
    }
    TRY(value_items(&run->region, container, &items, &iterable));
    if (!iterable) return cannot(run, at, TEXT("in"), item, container);
    *ret_contains = false;
    for (size_t i = 0; i < items.count; i++) *ret_contains |= value_equal(items.item[i], item);
    return OK;
}

static Status compare(Run *run, const Node *operand, Value a, Value b, bool *ret_true) {
    Text op = operand->name;
    int order = 0;
    if (text_is(op, "in") || text_is(op, "not in")) {
        TRY(value_contains(run, operand, a, b, ret_true));
        *ret_true ^= op.size > 2;
        return OK;
    }
    *ret_true = value_equal(a, b) == text_is(op, "==");
    if (text_is(op, "==") || text_is(op, "!=")) return OK;
    if (!value_order(a, b, &order)) return cannot(run, operand, op, a, b);
    *ret_true = op.data[0] == '<' ? order < 0 : order > 0;
    if (op.size == 2) *ret_true |= order == 0;
    return OK;
}

static Status evaluate_compare(Run *run, Frame *frame, const Node *node, Value *ret_value) {
    Value left, right;
    bool holds = true;
    TRY(evaluate(run, frame, node->a, &left));
    for (size_t i = 0; i < node->count && holds; i++) {
        TRY(evaluate(run, frame, node->item[i]->a, &right));
        TRY(compare(run, node->item[i], left, right, &holds));
        left = right;
    }
    *ret_value = value_bool(holds);
    return OK;
}

static Status evaluate_sign(Run *run, Frame *frame, const Node *node, Value *ret_value) {
    Value value;
    int64_t integer;
    TRY(evaluate(run, frame, node->a, &value));
    if (!value_is_number(value))
        return value.kind == V_UNDEFINED
                   ? undefined_used(run, node, value)
                   : RUN_FAILED(run, node, "a sign needs a number, not %s", value_type(value));
    bool negative = node->kind == NODE_NEGATIVE;
    if (!value_integer(value, &integer)) {
        *ret_value = value_real(negative ? -value.real : value.real);
        return OK;
    }
    if (negative && __builtin_sub_overflow(0, integer, &integer))
        return RUN_FAILED(run, node, "an integer of more than 64 bits");
    *ret_value = value_int(integer);
    return OK;
}

/* ---- the rest ---- */

static Status evaluate_name(const Frame *frame, Text name, Value *ret_value) {
    for (; frame; frame = frame->parent) {
        for (size_t i = 0; i < frame->count; i++) {
            if (!text_equal(frame->variable[i].name, name)) continue;
            *ret_value = frame->variable[i].value;
            return OK;
        }
    }
    *ret_value = value_undefined(name);
    return OK;
}

static Status evaluate_list(Run *run, Frame *frame, const Node *node, Value *ret_value) {
    Value item, list;
    TRY(list_new(&run->region, node->kind == NODE_TUPLE ? V_TUPLE : V_LIST, &list));
    for (size_t i = 0; i < node->count; i++) {
        TRY(evaluate(run, frame, node->item[i], &item));
        TRY(list_add(&run->region, list.list, item));
    }
    *ret_value = list;
    return OK;
}

static Status evaluate_dict(Run *run, Frame *frame, const Node *node, Value *ret_value) {
    Value key, value, dict;
    TRY(dict_new(&run->region, V_DICT, &dict));
    for (size_t i = 0; i + 1 < node->count; i += 2) {
        TRY(evaluate(run, frame, node->item[i], &key));
        TRY(evaluate(run, frame, node->item[i + 1], &value));
        if (key.kind == V_LIST || key.kind == V_DICT)
            return RUN_FAILED(run, node, "%s cannot be a key", value_type(key));
        TRY(dict_put(&run->region, dict.dict, key, value));
    }
    *ret_value = dict;
    return OK;
}

static Status evaluate_concat(Run *run, Frame *frame, const Node *node, Value *ret_value) {
    Writer text = {.region = &run->region};
    for (size_t i = 0; i < node->count; i++) {
        Value value;
        Text part;
        TRY(evaluate(run, frame, node->item[i], &value));
        TRY(value_to_text(run, node, value, &part));
        TRY(writer_add(&text, part));
    }
    *ret_value = writer_value(&text);
    return OK;
}

/* "and" and "or" return an operand. */
static Status evaluate_logic(Run *run, Frame *frame, const Node *node, Value *ret_value) {
    TRY(evaluate(run, frame, node->a, ret_value));
    return value_true(*ret_value) == (node->kind == NODE_AND) ? evaluate(run, frame, node->b, ret_value) : OK;
}

static Status evaluate_node(Run *run, Frame *frame, const Node *node, Value *ret_value) {
    Value a = value_none(), b;
    bool yes;
    switch (node->kind) {
    case NODE_CONST: *ret_value = node->value; return OK;
    case NODE_NAME: return evaluate_name(frame, node->name, ret_value);
    case NODE_CAPTURED: *ret_value = run->captured; return OK;
    case NODE_LIST:
    case NODE_TUPLE: return evaluate_list(run, frame, node, ret_value);
    case NODE_DICT: return evaluate_dict(run, frame, node, ret_value);
    case NODE_ATTR:
        TRY(evaluate(run, frame, node->a, &a));
        return value_attribute(run, node, a, node->name, ret_value);
    case NODE_ITEM:
        TRY(evaluate(run, frame, node->a, &a));
        TRY(evaluate(run, frame, node->b, &b));
        return value_item(run, node, a, b, ret_value);
    case NODE_SLICE: return evaluate_slice(run, frame, node, ret_value);
    case NODE_CALL: return evaluate_call(run, frame, node, ret_value);
    case NODE_FILTER: return evaluate_filter(run, frame, node, ret_value);
    case NODE_TEST:
        TRY(evaluate_test(run, frame, node, &yes));
        *ret_value = value_bool(yes);
        return OK;
    case NODE_NOT:
        TRY(evaluate(run, frame, node->a, &a));
        *ret_value = value_bool(!value_true(a));
        return OK;
    case NODE_NEGATIVE:
    case NODE_POSITIVE: return evaluate_sign(run, frame, node, ret_value);
    case NODE_AND:
    case NODE_OR: return evaluate_logic(run, frame, node, ret_value);
    case NODE_CONDITION:
        TRY(evaluate(run, frame, node->a, &a));
        if (value_true(a)) return evaluate(run, frame, node->b, ret_value);
        if (node->c) return evaluate(run, frame, node->c, ret_value);
        *ret_value = value_undefined(TEXT("the else of a condition"));
        return OK;
    case NODE_COMPARE: return evaluate_compare(run, frame, node, ret_value);
    case NODE_BINARY:
        TRY(evaluate(run, frame, node->a, &a));
        TRY(evaluate(run, frame, node->b, &b));
        return value_binary(run, node, node->name, a, b, ret_value);
    case NODE_CONCAT: return evaluate_concat(run, frame, node, ret_value);
    default: return RUN_FAILED(run, node, "internal: not an expression");
    }
}

Status evaluate(Run *run, Frame *frame, const Node *node, Value *ret_value) {
    TRY(run_enter(run, node));
    TRY(evaluate_node(run, frame, node, ret_value));
    run->depth--;
    return OK;
}
