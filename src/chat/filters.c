/* Global functions, and filters of single values. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "chat/jinja_internal.h"

/* ---- functions ---- */

/* The members of a dict, if there is one, and of named arguments. */
static Status fill_dict(Run *run, const Node *at, const Args *args, ValueKind kind, Value *ret_value) {
    TRY(dict_new(&run->region, kind, ret_value));
    for (size_t i = 0; i < args->count; i++) {
        if (args->item[i].kind != V_DICT)
            return RUN_FAILED(run, at, "expected named members or a dict, not %s", value_type(args->item[i]));
        const Dict *dict = args->item[i].dict;
        for (size_t k = 0; k < dict->count; k++)
            TRY(dict_put(&run->region, ret_value->dict, dict->entry[k].key, dict->entry[k].value));
    }
    for (size_t i = 0; i < args->named_count; i++)
        TRY(dict_put(&run->region, ret_value->dict, value_text(args->named[i].name), args->named[i].value));
    return OK;
}

static Status make_namespace(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    (void)self;
    return fill_dict(run, at, args, V_NAMESPACE, ret_value);
}

static Status make_dict(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    (void)self;
    return fill_dict(run, at, args, V_DICT, ret_value);
}

static Status make_range(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    enum { RANGE_LIMIT = 100000 };
    int64_t bound[3] = {0, 0, 1};
    (void)self;
    if (args->count == 0) return RUN_FAILED(run, at, "range needs a number");
    for (size_t i = 0; i < args->count; i++)
        TRY(arg_integer(run, at, args, i, "range", &bound[args->count == 1 ? 1 : i]));
    if (bound[2] == 0) return RUN_FAILED(run, at, "range: the step is 0");
    TRY(list_new(&run->region, V_LIST, ret_value));
    for (int64_t i = bound[0]; bound[2] > 0 ? i < bound[1] : i > bound[1];) {
        if (ret_value->list->count == RANGE_LIMIT)
            return RUN_FAILED(run, at, "range: more than %d numbers", RANGE_LIMIT);
        TRY(list_add(&run->region, ret_value->list, value_int(i)));
        if (__builtin_add_overflow(i, bound[2], &i)) break;
    }
    return OK;
}

static Status raise_exception(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Value message = value_none();
    Text text;
    (void)self, (void)ret_value;
    arg_find(args, 0, "message", &message);
    TRY(value_to_text(run, at, message, &text));
    return RUN_FAILED(run, at, "the template refuses: %.*s", (int)(text.size < 500 ? text.size : 500),
                      text.data);
}

static Status strftime_now(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    char format[128], text[512];
    Text asked;
    struct tm parts;
    time_t now = (time_t)run->now;
    (void)self;
    TRY(arg_text(run, at, args, 0, "format", &asked));
    if (asked.size >= sizeof format) return RUN_FAILED(run, at, "strftime_now: the format is too long");
    memcpy(format, asked.data, asked.size);
    format[asked.size] = 0;
    if (!gmtime_r(&now, &parts)) return RUN_FAILED(run, at, "strftime_now: the time is out of range");
    return text_copy(&run->region, (Text){text, strftime(text, sizeof text, format, &parts)}, ret_value);
}

const FunctionRow global_functions[] = {
    {"namespace", make_namespace, -1},       {"dict", make_dict, -1},           {"range", make_range, 3},
    {"raise_exception", raise_exception, 1}, {"strftime_now", strftime_now, 1}, {0},
};

/* ---- filters of any value ---- */

static Status filter_default(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Value other = value_text(TEXT(""));
    (void)run, (void)at;
    arg_find(args, 0, "default_value", &other);
    bool missing = self.kind == V_UNDEFINED || (arg_true(args, 1, "boolean") && !value_true(self));
    *ret_value = missing ? other : self;
    return OK;
}

static Status filter_string(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Text text;
    (void)args;
    TRY(value_to_text(run, at, self, &text));
    *ret_value = self.kind == V_TEXT ? self : value_text(text);
    return OK;
}

static Status filter_length(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    int64_t length;
    (void)args;
    if (!value_length(self, &length)) return RUN_FAILED(run, at, "%s has no length", value_type(self));
    *ret_value = value_int(length);
    return OK;
}

static Status filter_attr(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Text name;
    TRY(arg_text(run, at, args, 0, "name", &name));
    if (self.kind != V_DICT) return value_attribute(run, at, self, name, ret_value);
    const FunctionRow *method = method_find(self, name);
    *ret_value = value_undefined(name);
    return method ? callable_new(run, (Callable){.name = name, .row = method, .self = self}, ret_value) : OK;
}

/* Separators are a pair; with an indent, lines have no blanks at their ends. */
static Status read_json_style(Run *run, const Node *at, const Args *args, JsonStyle *style) {
    Value value;
    int64_t width = 0;
    *style =
        (JsonStyle){.ascii = arg_true(args, 0, "ensure_ascii"), .sorted = arg_true(args, 3, "sort_keys")};
    if (arg_find(args, 1, "indent", &value) && value.kind != V_NONE) {
        Value blank = value_text(TEXT(" "));
        if (value.kind != V_TEXT) TRY(arg_integer(run, at, args, 1, "indent", &width));
        if (value.kind != V_TEXT) TRY(value_binary(run, at, TEXT("*"), blank, value_int(width), &value));
        style->indent = value.text.data ? value.text : TEXT("");
    }
    style->item = style->indent.data ? TEXT(",") : TEXT(", ");
    style->key = TEXT(": ");
    if (!arg_find(args, 2, "separators", &value) || value.kind == V_NONE) return OK;
    if (!value_is_list(value) || value.list->count != 2 || value.list->item[0].kind != V_TEXT ||
        value.list->item[1].kind != V_TEXT)
        return RUN_FAILED(run, at, "tojson: separators must be two strings");
    style->item = value.list->item[0].text;
    style->key = value.list->item[1].text;
    return OK;
}

static Status filter_tojson(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Writer out = {.region = &run->region};
    JsonStyle style;
    const char *bad;
    TRY(read_json_style(run, at, args, &style));
    TRY(writer_json(&out, self, &style, &bad));
    if (bad) return RUN_FAILED(run, at, "tojson: JSON has no value for %s", bad);
    *ret_value = writer_value(&out);
    return OK;
}

/* ---- filters of text ---- */

static Status filter_trim(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Text text, characters;
    Value asked = value_none();
    arg_find(args, 0, "chars", &asked);
    TRY(value_to_text(run, at, self, &text));
    if (asked.kind != V_NONE) TRY(arg_text(run, at, args, 0, "chars", &characters));
    *ret_value = value_text(text_strip(text, asked.kind == V_NONE ? NULL : &characters, true, true));
    return OK;
}

static Status filter_replace(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Text text, from, to;
    Value most = value_none();
    int64_t count = -1;
    TRY(value_to_text(run, at, self, &text));
    TRY(arg_text(run, at, args, 0, "old", &from));
    TRY(arg_text(run, at, args, 1, "new", &to));
    if (arg_find(args, 2, "count", &most) && most.kind != V_NONE)
        TRY(arg_integer(run, at, args, 2, "count", &count));
    return text_replace(run, text, from, to, count, ret_value);
}

#define CASE_FILTER(name, to)                                                                                \
    static Status name(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {           \
        Text text;                                                                                           \
        (void)args;                                                                                          \
        TRY(value_to_text(run, at, self, &text));                                                            \
        return text_case(run, at, text, to, ret_value);                                                      \
    }

CASE_FILTER(filter_lower, CASE_LOWER)
CASE_FILTER(filter_upper, CASE_UPPER)
CASE_FILTER(filter_capitalize, CASE_CAPITAL)
CASE_FILTER(filter_title, CASE_TITLE_FILTER)

Status text_escape(Writer *out, Text text) {
    static const char special[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    for (size_t i = 0; i < text.size; i++) {
        const char *found = text.data[i] ? strchr(special, text.data[i]) : NULL;
        TRY(writer_add(out, found ? text_of_string(names[found - special]) : (Text){text.data + i, 1}));
    }
    return OK;
}

static Status filter_safe(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    TRY(filter_string(run, at, self, args, ret_value));
    ret_value->markup = true;
    return OK;
}

static Status filter_escape(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Writer out = {.region = &run->region};
    TRY(filter_safe(run, at, self, args, ret_value));
    if (self.kind == V_TEXT && self.markup) return OK;
    TRY(text_escape(&out, ret_value->text));
    *ret_value = writer_value(&out);
    ret_value->markup = true;
    return OK;
}

/* The first line is not indented unless `first`, and empty lines are not unless `blank`. */
static Status filter_indent(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Writer out = {.region = &run->region};
    Value width = value_int(4);
    Text text;
    bool first = arg_true(args, 1, "first"), blank = arg_true(args, 2, "blank");
    arg_find(args, 0, "width", &width);
    TRY(value_to_text(run, at, self, &text));
    if (width.kind != V_TEXT) TRY(value_binary(run, at, TEXT("*"), value_text(TEXT(" ")), width, &width));
    for (bool begins = true;; begins = false) {
        const char *end = text.size ? memchr(text.data, '\n', text.size) : NULL;
        size_t size = end ? (size_t)(end - text.data) : text.size;
        if (begins ? first : size || blank) TRY(writer_add(&out, width.text));
        TRY(writer_add(&out, (Text){text.data, size}));
        if (!end) break;
        TRY(writer_char(&out, '\n'));
        text = (Text){end + 1, text.size - size - 1};
    }
    *ret_value = writer_value(&out);
    return OK;
}

/* "%s" | format(x): %s, %r, %d and %%. */
static Status filter_format(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Writer out = {.region = &run->region};
    Text text;
    size_t next = 0;
    TRY(value_to_text(run, at, self, &text));
    for (size_t i = 0; i < text.size; i++) {
        char kind = text.data[i] == '%' && i + 1 < text.size ? text.data[i + 1] : 0;
        if (text.data[i] != '%' || kind == '%') {
            TRY(writer_add(&out, (Text){text.data + i, 1}));
            i += kind == '%';
            continue;
        }
        if (!kind || !strchr("srd", kind))
            return RUN_FAILED(run, at, "format supports %%s, %%r and %%d only");
        if (next == args->count) return RUN_FAILED(run, at, "format: too few values");
        Value value = args->item[next++];
        if (kind == 'd' && value.kind != V_INT) return RUN_FAILED(run, at, "format: %%d needs an integer");
        TRY(kind == 'r' ? writer_repr(&out, value) : writer_str(&out, value));
        i++;
    }
    if (next < args->count) return RUN_FAILED(run, at, "format: too many values");
    *ret_value = writer_value(&out);
    return OK;
}

static Status filter_wordcount(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Text text;
    int64_t words = 0;
    bool inside = false;
    (void)args;
    TRY(value_to_text(run, at, self, &text));
    for (size_t i = 0; i < text.size; i += char_size(text.data + i)) {
        bool blank = char_is_blank(char_decode(text, i));
        words += !blank && !inside;
        inside = !blank;
    }
    *ret_value = value_int(words);
    return OK;
}

/* ---- filters of numbers ---- */

/* Reads all of a text as a number. */
static bool read_number(Text text, bool integer, int base, int64_t *ret_integer, double *ret_real) {
    char copy[64], *end;
    text = text_strip(text, NULL, true, true);
    if (text.size == 0 || text.size >= sizeof copy) return false;
    memcpy(copy, text.data, text.size);
    copy[text.size] = 0;
    errno = 0;
    int64_t number = integer ? strtoll(copy, &end, base) : 0;
    double real = integer ? 0 : strtod(copy, &end);
    if (end != copy + text.size || errno) return false;
    if (integer)
        *ret_integer = number;
    else
        *ret_real = real;
    return true;
}

static Status filter_int(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    int64_t integer = 0, base = 10;
    double real = NAN;
    *ret_value = value_int(0);
    arg_find(args, 0, "default", ret_value);
    TRY(arg_integer(run, at, args, 1, "base", &base));
    if (base < 2 || base > 36) return RUN_FAILED(run, at, "int: the base must be 2 to 36");
    if (self.kind == V_TEXT && read_number(self.text, true, (int)base, &integer, NULL)) {
        *ret_value = value_int(integer);
        return OK;
    }
    if (self.kind == V_TEXT) read_number(self.text, false, 10, NULL, &real);
    if (value_is_number(self)) real = value_number(self);
    if (value_integer(self, &integer))
        *ret_value = value_int(integer);
    else if (fabs(real) < 9e18)
        *ret_value = value_int((int64_t)real);
    return OK;
}

static Status filter_float(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    double real;
    (void)run, (void)at;
    *ret_value = value_real(0);
    arg_find(args, 0, "default", ret_value);
    if (value_is_number(self))
        *ret_value = value_real(value_number(self));
    else if (self.kind == V_TEXT && read_number(self.text, false, 10, NULL, &real))
        *ret_value = value_real(real);
    return OK;
}

static Status filter_abs(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    (void)args;
    if (!value_is_number(self)) return RUN_FAILED(run, at, "abs needs a number, not %s", value_type(self));
    if (value_number(self) >= 0)
        *ret_value = self;
    else
        TRY(value_binary(run, at, TEXT("*"), self, value_int(-1), ret_value));
    return OK;
}

static Status filter_round(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    int64_t digits = 0;
    Value method = value_text(TEXT("common"));
    char text[400];
    TRY(arg_integer(run, at, args, 0, "precision", &digits));
    arg_find(args, 1, "method", &method);
    if (!value_is_number(self) || digits < 0 || digits > 15 || method.kind != V_TEXT)
        return RUN_FAILED(run, at, "round needs a number and up to 15 digits");
    double real = value_number(self), scale = pow(10, (double)digits);
    snprintf(text, sizeof text, "%.*f", (int)digits, real);
    *ret_value = value_real(text_is(method.text, "ceil")    ? ceil(real * scale) / scale
                            : text_is(method.text, "floor") ? floor(real * scale) / scale
                                                            : strtod(text, NULL));
    return OK;
}

const FunctionRow common_filters[] = {
    {"default", filter_default, 2}, {"d", filter_default, 2},
    {"string", filter_string, 0},   {"safe", filter_safe, 0},
    {"length", filter_length, 0},   {"count", filter_length, 0},
    {"attr", filter_attr, 1},       {"tojson", filter_tojson, 4},
    {"trim", filter_trim, 1},       {"replace", filter_replace, 3},
    {"lower", filter_lower, 0},     {"upper", filter_upper, 0},
    {"title", filter_title, 0},     {"capitalize", filter_capitalize, 0},
    {"escape", filter_escape, 0},   {"e", filter_escape, 0},
    {"indent", filter_indent, 3},   {"wordcount", filter_wordcount, 0},
    {"format", filter_format, -1},  {"int", filter_int, 2},
    {"float", filter_float, 1},     {"abs", filter_abs, 0},
    {"round", filter_round, 2},     {0},
};
