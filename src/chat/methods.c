/* Methods of strings, lists and dicts, with Python's results. Those that would change a value are refused
 * (evaluate.c). */
#include <stdlib.h>

#include "chat/jinja_internal.h"
#include "tokenizer/chars.h"

/* ---- texts ---- */

static bool is_stripped(Text text, size_t at, const Text *characters) {
    size_t size = char_size(text.data + at);
    if (!characters) return char_is_blank(char_decode(text, at));
    for (size_t i = 0; i < characters->size; i += char_size(characters->data + i))
        if (char_size(characters->data + i) == size && !memcmp(characters->data + i, text.data + at, size))
            return true;
    return false;
}

Text text_strip(Text text, const Text *characters, bool left, bool right) {
    size_t start = 0, end = text.size;
    while (left && start < end && is_stripped(text, start, characters)) start += char_size(text.data + start);
    while (right && end > start) {
        size_t before = end - 1;
        while (before > start && ((unsigned char)text.data[before] & 0xc0) == 0x80) before--;
        if (!is_stripped(text, before, characters)) break;
        end = before;
    }
    return (Text){text.data + start, end - start};
}

static Status strip_with(Run *run, const Node *at, Value self, const Args *args, bool left, bool right,
                         Value *ret_value) {
    Value asked = value_none();
    arg_find(args, 0, "chars", &asked);
    if (asked.kind != V_NONE && asked.kind != V_TEXT)
        return RUN_FAILED(run, at, "the characters to strip must be a string, not %s", value_type(asked));
    *ret_value = value_text(text_strip(self.text, asked.kind == V_TEXT ? &asked.text : NULL, left, right));
    return OK;
}

static Status method_strip(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    return strip_with(run, at, self, args, true, true, ret_value);
}

static Status method_lstrip(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    return strip_with(run, at, self, args, true, false, ret_value);
}

static Status method_rstrip(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    return strip_with(run, at, self, args, false, true, ret_value);
}

static const char *find_text(Text in, Text what) {
    return in.size ? memmem(in.data, in.size, what.data, what.size) : NULL;
}

Status text_replace(Run *run, Text text, Text from, Text to, int64_t most, Value *ret_value) {
    Writer out = {.region = &run->region};
    size_t at = 0;
    for (int64_t n = 0; most < 0 || n < most; n++) {
        Text rest = {text.data + at, text.size - at};
        if (from.size == 0) { /* before every character, and at the end */
            TRY(writer_add(&out, to));
            if (rest.size == 0) break;
            TRY(writer_add(&out, (Text){rest.data, char_size(rest.data)}));
            at += char_size(rest.data);
            continue;
        }
        const char *found = find_text(rest, from);
        if (!found) break;
        TRY(writer_add(&out, (Text){rest.data, (size_t)(found - rest.data)}));
        TRY(writer_add(&out, to));
        at = (size_t)(found - text.data) + from.size;
    }
    if (at < text.size) TRY(writer_add(&out, (Text){text.data + at, text.size - at}));
    *ret_value = writer_value(&out);
    return OK;
}

static Status method_replace(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Text from, to;
    int64_t most = -1;
    TRY(arg_text(run, at, args, 0, "old", &from));
    TRY(arg_text(run, at, args, 1, "new", &to));
    TRY(arg_integer(run, at, args, 2, "count", &most));
    return text_replace(run, self.text, from, to, most, ret_value);
}

/* Other languages' upper-case letters are not in the program's tables. */
Status text_case(Run *run, const Node *node, Text text, int to, Value *ret_value) {
    Writer out = {.region = &run->region};
    bool first = true, letter_before = false;
    for (size_t at = 0; at < text.size; at += char_size(text.data + at)) {
        uint32_t c = char_decode(text, at);
        bool lower = c < 0x80 ? c >= 'a' && c <= 'z' : char_is_cased(c) && char_lower(c) == c;
        bool letter = lower || char_lower(c) != c;
        bool raise = to == CASE_UPPER || (to == CASE_CAPITAL && first) ||
                     ((to == CASE_TITLE || to == CASE_TITLE_FILTER) && !letter_before);
        if (raise && lower && c >= 0x80)
            return RUN_FAILED(run, node, "the upper case of '%.*s' is not supported",
                              (int)char_size(text.data + at), text.data + at);
        TRY(writer_char(&out, !raise ? char_lower(c) : lower ? c - 'a' + 'A' : c));
        first = false;
        bool separates = c < 0x80 && strchr("-([{< \t\n\r\f\v", (int)c);
        letter_before = to == CASE_TITLE_FILTER ? !separates : letter;
    }
    *ret_value = writer_value(&out);
    return OK;
}

#define CASE_METHOD(name, to)                                                                                \
    static Status name(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {           \
        (void)args;                                                                                          \
        return text_case(run, at, self.text, to, ret_value);                                                 \
    }

CASE_METHOD(method_lower, CASE_LOWER)
CASE_METHOD(method_upper, CASE_UPPER)
CASE_METHOD(method_capitalize, CASE_CAPITAL)
CASE_METHOD(method_title, CASE_TITLE)

/* Whether the text begins or ends with the argument, or with one of a tuple. */
static Status has_affix(Run *run, const Node *at, Value self, const Args *args, bool end, Value *ret_value) {
    Value affix = value_none();
    arg_find(args, 0, NULL, &affix);
    List one = {.item = &affix, .count = 1}, *list = affix.kind == V_TUPLE ? affix.list : &one;
    *ret_value = value_bool(false);
    if (args->count > 1)
        return RUN_FAILED(run, at, "startswith and endswith with positions are not supported");
    for (size_t i = 0; i < list->count; i++) {
        Value item = list->item[i];
        if (item.kind != V_TEXT)
            return RUN_FAILED(run, at, "startswith and endswith need a string, not %s", value_type(item));
        size_t size = item.text.size;
        if (size > self.text.size) continue;
        Text part = {self.text.data + (end ? self.text.size - size : 0), size};
        ret_value->boolean |= text_equal(part, item.text);
    }
    return OK;
}

static Status method_startswith(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    return has_affix(run, at, self, args, false, ret_value);
}

static Status method_endswith(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    return has_affix(run, at, self, args, true, ret_value);
}

static Status method_removeprefix(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Text affix;
    Value has;
    TRY(arg_text(run, at, args, 0, "prefix", &affix));
    TRY(has_affix(run, at, self, args, false, &has));
    size_t cut = has.boolean ? affix.size : 0;
    *ret_value = value_text((Text){self.text.data + cut, self.text.size - cut});
    return OK;
}

static Status method_removesuffix(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Text affix;
    Value has;
    TRY(arg_text(run, at, args, 0, "suffix", &affix));
    TRY(has_affix(run, at, self, args, true, &has));
    *ret_value = value_text((Text){self.text.data, self.text.size - (has.boolean ? affix.size : 0)});
    return OK;
}

/* ---- splitting ---- */

static Status add_text(Run *run, Value list, Text text) {
    return list_add(&run->region, list.list, value_text(text));
}

/* At runs of blanks, which the ends have not. */
static Status split_blanks(Run *run, Text text, int64_t most, Value list) {
    text = text_strip(text, NULL, true, false);
    while (text.size) {
        size_t end = 0;
        bool last = most >= 0 && (int64_t)list.list->count >= most;
        while (end < text.size && !char_is_blank(char_decode(text, end))) end += char_size(text.data + end);
        if (last) end = text_strip(text, NULL, false, true).size;
        TRY(add_text(run, list, (Text){text.data, end}));
        text = text_strip((Text){text.data + end, text.size - end}, NULL, true, false);
    }
    return OK;
}

static Status split_at(Run *run, Text text, Text separator, int64_t most, Value list) {
    const char *found;
    while ((most < 0 || (int64_t)list.list->count < most) && (found = find_text(text, separator))) {
        TRY(add_text(run, list, (Text){text.data, (size_t)(found - text.data)}));
        size_t cut = (size_t)(found - text.data) + separator.size;
        text = (Text){text.data + cut, text.size - cut};
    }
    return add_text(run, list, text);
}

static const char *find_last(Text in, Text what) {
    for (size_t at = in.size < what.size ? 0 : in.size - what.size + 1; at > 0; at--)
        if (!memcmp(in.data + at - 1, what.data, what.size)) return in.data + at - 1;
    return NULL;
}

/* From the end. */
static Status rsplit_at(Run *run, Text text, Text separator, int64_t most, Value list) {
    const char *found;
    while ((most < 0 || (int64_t)list.list->count < most) && (found = find_last(text, separator))) {
        size_t after = (size_t)(found - text.data) + separator.size;
        TRY(add_text(run, list, (Text){text.data + after, text.size - after}));
        text.size = (size_t)(found - text.data);
    }
    TRY(add_text(run, list, text));
    for (size_t i = 0, j = list.list->count - 1; i < j; i++, j--) {
        Value item = list.list->item[i];
        list.list->item[i] = list.list->item[j];
        list.list->item[j] = item;
    }
    return OK;
}

static Status split_with(Run *run, const Node *at, Value self, const Args *args, bool right,
                         Value *ret_value) {
    Value separator = value_none();
    int64_t most = -1;
    arg_find(args, 0, "sep", &separator);
    TRY(arg_integer(run, at, args, 1, "maxsplit", &most));
    TRY(list_new(&run->region, V_LIST, ret_value));
    if (separator.kind == V_NONE && right && most >= 0)
        return RUN_FAILED(run, at, "rsplit at blanks with a limit is not supported");
    if (separator.kind == V_NONE) return split_blanks(run, self.text, most, *ret_value);
    if (separator.kind != V_TEXT || separator.text.size == 0)
        return RUN_FAILED(run, at, "the separator must be a string that is not empty");
    return (right ? rsplit_at : split_at)(run, self.text, separator.text, most, *ret_value);
}

static Status method_split(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    return split_with(run, at, self, args, false, ret_value);
}

static Status method_rsplit(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    return split_with(run, at, self, args, true, ret_value);
}

static Status partition(Run *run, const Node *at, Value self, const Args *args, bool right,
                        Value *ret_value) {
    Text separator, text = self.text, none = {text.data, 0};
    TRY(arg_text(run, at, args, 0, "sep", &separator));
    if (separator.size == 0) return RUN_FAILED(run, at, "the separator must be a string that is not empty");
    const char *found = right ? find_last(text, separator) : find_text(text, separator);
    size_t before = found ? (size_t)(found - text.data) : right ? 0 : text.size;
    size_t after = found ? before + separator.size : right ? 0 : text.size;
    TRY(list_new(&run->region, V_TUPLE, ret_value));
    TRY(add_text(run, *ret_value, (Text){text.data, before}));
    TRY(add_text(run, *ret_value, found ? separator : none));
    return add_text(run, *ret_value, (Text){text.data + after, text.size - after});
}

static Status method_partition(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    return partition(run, at, self, args, false, ret_value);
}

static Status method_rpartition(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    return partition(run, at, self, args, true, ret_value);
}

static Status method_splitlines(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Text text = self.text;
    bool keep = arg_true(args, 0, "keepends");
    (void)at;
    TRY(list_new(&run->region, V_LIST, ret_value));
    while (text.size) {
        size_t end = 0;
        while (end < text.size && text.data[end] != '\n' && text.data[end] != '\r') end++;
        size_t next = end + (end < text.size) + (end + 1 < text.size && !memcmp(text.data + end, "\r\n", 2));
        TRY(add_text(run, *ret_value, (Text){text.data, keep ? next : end}));
        text = (Text){text.data + next, text.size - next};
    }
    return OK;
}

/* ---- searching and joining ---- */

static Status find_with(Run *run, const Node *at, Value self, const Args *args, bool right,
                        Value *ret_value) {
    Text what;
    if (args->count > 1) return RUN_FAILED(run, at, "find with positions is not supported");
    TRY(arg_text(run, at, args, 0, "sub", &what));
    const char *found = right ? find_last(self.text, what) : find_text(self.text, what);
    if (what.size == 0 && !right) found = self.text.data;
    *ret_value =
        value_int(found ? text_characters((Text){self.text.data, (size_t)(found - self.text.data)}) : -1);
    return OK;
}

static Status method_find_sub(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    return find_with(run, at, self, args, false, ret_value);
}

static Status method_rfind(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    return find_with(run, at, self, args, true, ret_value);
}

static Status method_count(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Text what, rest = self.text;
    int64_t count = 0;
    TRY(arg_text(run, at, args, 0, "sub", &what));
    const char *found;
    while (what.size && (found = find_text(rest, what))) {
        size_t cut = (size_t)(found - rest.data) + what.size;
        rest = (Text){rest.data + cut, rest.size - cut};
        count++;
    }
    *ret_value = value_int(what.size ? count : text_characters(self.text) + 1);
    return OK;
}

static Status method_join(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Value list = value_none();
    List items = {0};
    Writer out = {.region = &run->region};
    bool iterable;
    arg_find(args, 0, NULL, &list);
    TRY(value_items(&run->region, list, &items, &iterable));
    if (!iterable) return RUN_FAILED(run, at, "join needs a list, not %s", value_type(list));
    for (size_t i = 0; i < items.count; i++) {
        if (items.item[i].kind != V_TEXT)
            return RUN_FAILED(run, at, "join needs strings, not %s", value_type(items.item[i]));
        if (i) TRY(writer_add(&out, self.text));
        TRY(writer_add(&out, items.item[i].text));
    }
    *ret_value = writer_value(&out);
    return OK;
}

/* Whether every character has the property, and there is one. */
static bool all_are(Text text, unsigned classes) {
    for (size_t at = 0; at < text.size; at += char_size(text.data + at)) {
        uint32_t c = char_decode(text, at);
        bool is = classes == CHAR_SPACE ? char_is_blank(c) : (char_class(c) & classes) != 0;
        if (!is) return false;
    }
    return text.size > 0;
}

#define CLASS_METHOD(name, classes)                                                                          \
    static Status name(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {           \
        (void)run, (void)at, (void)args;                                                                     \
        *ret_value = value_bool(all_are(self.text, classes));                                                \
        return OK;                                                                                           \
    }

CLASS_METHOD(method_isdigit, CHAR_NUMBER)
CLASS_METHOD(method_isalpha, CHAR_LETTER)
CLASS_METHOD(method_isalnum, CHAR_LETTER | CHAR_NUMBER)
CLASS_METHOD(method_isspace, CHAR_SPACE)

/* The value of a replacement field: {}, {0} or {name}. */
static const Value *find_field(const Args *args, Text field, size_t *next) {
    if (field.size == 0) return *next < args->count ? &args->item[(*next)++] : NULL;
    size_t index = 0;
    bool number = field.size < 6;
    for (size_t i = 0; i < field.size && number; i++) {
        number = field.data[i] >= '0' && field.data[i] <= '9';
        index = index * 10 + (size_t)(field.data[i] - '0');
    }
    if (number) return index < args->count ? &args->item[index] : NULL;
    for (size_t i = 0; i < args->named_count; i++)
        if (text_equal(args->named[i].name, field)) return &args->named[i].value;
    return NULL;
}

static Status method_format(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Writer out = {.region = &run->region};
    Text text = self.text, part;
    size_t next = 0;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        bool doubled = i + 1 < text.size && text.data[i + 1] == c;
        if ((c != '{' && c != '}') || doubled) {
            TRY(writer_add(&out, (Text){text.data + i, 1}));
            i += doubled && (c == '{' || c == '}');
            continue;
        }
        const char *end = c == '{' ? memchr(text.data + i, '}', text.size - i) : NULL;
        if (!end) return RUN_FAILED(run, at, "format: a brace without its partner");
        Text field = {text.data + i + 1, (size_t)(end - text.data) - i - 1};
        const Value *value = find_field(args, field, &next);
        if (!value)
            return RUN_FAILED(run, at, "format: the field '%.*s' has no argument or is not supported",
                              (int)(field.size < 60 ? field.size : 60), field.data);
        TRY(value_to_text(run, at, *value, &part));
        TRY(writer_add(&out, part));
        i += field.size + 1;
    }
    *ret_value = writer_value(&out);
    return OK;
}

/* ---- lists and dicts ---- */

static Status list_index(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Value item = value_none();
    arg_find(args, 0, NULL, &item);
    for (size_t i = 0; i < self.list->count; i++) {
        if (!value_equal(self.list->item[i], item)) continue;
        *ret_value = value_int((int64_t)i);
        return OK;
    }
    return RUN_FAILED(run, at, "index: the list does not contain the value");
}

static Status list_count(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Value item = value_none();
    int64_t count = 0;
    (void)run, (void)at;
    arg_find(args, 0, NULL, &item);
    for (size_t i = 0; i < self.list->count; i++) count += value_equal(self.list->item[i], item);
    *ret_value = value_int(count);
    return OK;
}

/* Keys, values or both of a dict. */
static Status dict_parts(Run *run, Value self, bool keys, bool values, Value *ret_value) {
    TRY(list_new(&run->region, V_LIST, ret_value));
    for (size_t i = 0; i < self.dict->count; i++) {
        const DictEntry *entry = &self.dict->entry[i];
        Value part = keys ? entry->key : entry->value;
        if (keys && values) {
            TRY(list_new(&run->region, V_TUPLE, &part));
            TRY(list_add(&run->region, part.list, entry->key));
            TRY(list_add(&run->region, part.list, entry->value));
        }
        TRY(list_add(&run->region, ret_value->list, part));
    }
    return OK;
}

static Status dict_items(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    (void)at, (void)args;
    return dict_parts(run, self, true, true, ret_value);
}

static Status dict_keys(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    (void)at, (void)args;
    return dict_parts(run, self, true, false, ret_value);
}

static Status dict_values(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    (void)at, (void)args;
    return dict_parts(run, self, false, true, ret_value);
}

static Status dict_get(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Value key;
    if (!arg_find(args, 0, NULL, &key)) return RUN_FAILED(run, at, "get needs a key");
    const Value *found = dict_find(self.dict, key);
    *ret_value = value_none();
    if (found)
        *ret_value = *found;
    else
        arg_find(args, 1, NULL, ret_value);
    return OK;
}

static Status value_copy(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    (void)run, (void)at, (void)args;
    *ret_value = self;
    return OK;
}

/* ---- loops ---- */

static Status loop_cycle(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    if (args->count == 0) return RUN_FAILED(run, at, "cycle needs values");
    *ret_value = args->item[self.loop->index % args->count];
    return OK;
}

static Status loop_changed(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Value now;
    (void)at;
    TRY(list_new(&run->region, V_TUPLE, &now));
    for (size_t i = 0; i < args->count; i++) TRY(list_add(&run->region, now.list, args->item[i]));
    *ret_value = value_bool(self.loop->changed.kind != V_TUPLE || !value_equal(self.loop->changed, now));
    self.loop->changed = now;
    return OK;
}

/* ---- the tables ---- */

static const FunctionRow text_methods[] = {
    {"strip", method_strip, 1},
    {"lstrip", method_lstrip, 1},
    {"rstrip", method_rstrip, 1},
    {"split", method_split, 2},
    {"rsplit", method_rsplit, 2},
    {"splitlines", method_splitlines, 1},
    {"partition", method_partition, 1},
    {"rpartition", method_rpartition, 1},
    {"replace", method_replace, 3},
    {"startswith", method_startswith, 3},
    {"endswith", method_endswith, 3},
    {"removeprefix", method_removeprefix, 1},
    {"removesuffix", method_removesuffix, 1},
    {"lower", method_lower, 0},
    {"upper", method_upper, 0},
    {"capitalize", method_capitalize, 0},
    {"title", method_title, 0},
    {"find", method_find_sub, 3},
    {"rfind", method_rfind, 3},
    {"count", method_count, 1},
    {"join", method_join, 1},
    {"isdigit", method_isdigit, 0},
    {"isnumeric", method_isdigit, 0},
    {"isalpha", method_isalpha, 0},
    {"isalnum", method_isalnum, 0},
    {"isspace", method_isspace, 0},
    {"format", method_format, -1},
    {0},
};
static const FunctionRow list_methods[] = {
    {"index", list_index, 1}, {"count", list_count, 1}, {"copy", value_copy, 0}, {0}};
static const FunctionRow dict_methods[] = {{"items", dict_items, 0},   {"keys", dict_keys, 0},
                                           {"values", dict_values, 0}, {"get", dict_get, 2},
                                           {"copy", value_copy, 0},    {0}};
static const FunctionRow loop_methods[] = {{"cycle", loop_cycle, -1}, {"changed", loop_changed, -1}, {0}};
static const FunctionRow no_methods[] = {{0}};

const FunctionRow *method_find(Value value, Text name) {
    const FunctionRow *rows = value.kind == V_TEXT   ? text_methods
                              : value_is_list(value) ? list_methods
                              : value.kind == V_DICT ? dict_methods
                              : value.kind == V_LOOP ? loop_methods
                                                     : no_methods;
    return function_find(rows, name);
}
