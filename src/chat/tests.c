/* The tests of templates: x is name(arguments). */
#include <math.h>

#include "chat/jinja_internal.h"
#include "tokenizer/chars.h"

#define KIND_TEST(name, condition)                                                                           \
    static Status name(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {           \
        (void)run, (void)at, (void)args;                                                                     \
        *ret_value = value_bool(condition);                                                                  \
        return OK;                                                                                           \
    }

KIND_TEST(is_defined, self.kind != V_UNDEFINED)
KIND_TEST(is_undefined, self.kind == V_UNDEFINED)
KIND_TEST(is_none, self.kind == V_NONE)
KIND_TEST(is_boolean, self.kind == V_BOOL)
KIND_TEST(is_true, self.kind == V_BOOL && self.boolean)
KIND_TEST(is_false, self.kind == V_BOOL && !self.boolean)
KIND_TEST(is_integer, self.kind == V_INT)
KIND_TEST(is_float, self.kind == V_REAL)
KIND_TEST(is_number, value_is_number(self))
KIND_TEST(is_string, self.kind == V_TEXT)
KIND_TEST(is_mapping, self.kind == V_DICT)
KIND_TEST(is_callable, self.kind == V_CALLABLE)
KIND_TEST(is_sequence, self.kind == V_TEXT || self.kind == V_DICT || self.kind == V_UNDEFINED ||
                           (value_is_list(self) && !self.list->generator))
KIND_TEST(is_iterable,
          self.kind == V_TEXT || value_is_list(self) || self.kind == V_DICT || self.kind == V_UNDEFINED)

/* Arguments are integers; a divisor of 0 is an error. */
static Status remainder_of(Run *run, const Node *at, Value self, int64_t divisor, int64_t *ret_rest) {
    Value rest = value_int(1);
    TRY(value_binary(run, at, TEXT("%"), self, value_int(divisor), &rest));
    *ret_rest = value_is_number(rest) ? (int64_t)ceil(value_number(rest)) : 1;
    return OK;
}

static Status is_even(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    int64_t rest = 0;
    (void)args;
    TRY(remainder_of(run, at, self, 2, &rest));
    *ret_value = value_bool(rest == 0);
    return OK;
}

static Status is_odd(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    TRY(is_even(run, at, self, args, ret_value));
    ret_value->boolean = !ret_value->boolean;
    return OK;
}

static Status is_divisible(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    int64_t divisor = 0, rest = 0;
    TRY(arg_integer(run, at, args, 0, "num", &divisor));
    TRY(remainder_of(run, at, self, divisor, &rest));
    *ret_value = value_bool(rest == 0);
    return OK;
}

/* Compares with the argument. */
static Status other_of(Run *run, const Node *at, const Args *args, Value *ret_other) {
    if (!arg_find(args, 0, NULL, ret_other))
        return RUN_FAILED(run, at, "the test needs a value to compare with");
    return OK;
}

static Status is_equal(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Value other;
    TRY(other_of(run, at, args, &other));
    *ret_value = value_bool(value_equal(self, other));
    return OK;
}

static Status is_unequal(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    TRY(is_equal(run, at, self, args, ret_value));
    ret_value->boolean = !ret_value->boolean;
    return OK;
}

static Status order_of(Run *run, const Node *at, Value self, const Args *args, int *ret_order) {
    Value other;
    TRY(other_of(run, at, args, &other));
    if (!value_order(self, other, ret_order))
        return RUN_FAILED(run, at, "%s and %s have no order", value_type(self), value_type(other));
    return OK;
}

#define ORDER_TEST(name, condition)                                                                          \
    static Status name(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {           \
        int order = 0;                                                                                       \
        TRY(order_of(run, at, self, args, &order));                                                          \
        *ret_value = value_bool(condition);                                                                  \
        return OK;                                                                                           \
    }

ORDER_TEST(is_less, order < 0)
ORDER_TEST(is_at_most, order <= 0)
ORDER_TEST(is_greater, order > 0)
ORDER_TEST(is_at_least, order >= 0)

static Status is_in(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Value other;
    bool contains;
    TRY(other_of(run, at, args, &other));
    TRY(value_contains(run, at, self, other, &contains));
    *ret_value = value_bool(contains);
    return OK;
}

/* Whether all cased characters are of one case, and there are some. */
static Status has_case(Run *run, const Node *at, Value self, int to, Value *ret_value) {
    Text text;
    Value cased, lower, upper;
    TRY(value_to_text(run, at, self, &text));
    TRY(text_case(run, at, text, CASE_LOWER, &lower));
    TRY(text_case(run, at, text, CASE_UPPER, &upper));
    cased = to == CASE_LOWER ? lower : upper;
    *ret_value = value_bool(text_equal(text, cased.text) && !text_equal(lower.text, upper.text));
    return OK;
}

static Status is_lower(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    (void)args;
    return has_case(run, at, self, CASE_LOWER, ret_value);
}

static Status is_upper(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    (void)args;
    return has_case(run, at, self, CASE_UPPER, ret_value);
}

const FunctionRow tests[] = {
    {"defined", is_defined, 0},
    {"undefined", is_undefined, 0},
    {"none", is_none, 0},
    {"boolean", is_boolean, 0},
    {"true", is_true, 0},
    {"false", is_false, 0},
    {"integer", is_integer, 0},
    {"float", is_float, 0},
    {"number", is_number, 0},
    {"string", is_string, 0},
    {"mapping", is_mapping, 0},
    {"callable", is_callable, 0},
    {"sequence", is_sequence, 0},
    {"iterable", is_iterable, 0},
    {"even", is_even, 0},
    {"odd", is_odd, 0},
    {"divisibleby", is_divisible, 1},
    {"eq", is_equal, 1},
    {"equalto", is_equal, 1},
    {"==", is_equal, 1},
    {"sameas", is_equal, 1},
    {"ne", is_unequal, 1},
    {"!=", is_unequal, 1},
    {"lt", is_less, 1},
    {"lessthan", is_less, 1},
    {"<", is_less, 1},
    {"le", is_at_most, 1},
    {"<=", is_at_most, 1},
    {"gt", is_greater, 1},
    {"greaterthan", is_greater, 1},
    {">", is_greater, 1},
    {"ge", is_at_least, 1},
    {">=", is_at_least, 1},
    {"in", is_in, 1},
    {"lower", is_lower, 0},
    {"upper", is_upper, 0},
    {0},
};
