/* Filters of lists and dicts. */
#include <stdlib.h>

#include "chat/jinja_internal.h"

/* The items of a value that is looped over. */
static Status items_of(Run *run, const Node *at, Value self, List *ret_items) {
    bool iterable;
    TRY(value_items(&run->region, self, ret_items, &iterable));
    return iterable ? OK : RUN_FAILED(run, at, "%s has no items", value_type(self));
}

/* An attribute of an item by a path: "name", "a.b" or 0. `other` replaces what is undefined; it may be NULL.
 */
static Status get_path(Run *run, const Node *at, Value item, Value path, const Value *other,
                       Value *ret_value) {
    *ret_value = item;
    if (path.kind != V_TEXT) return value_item(run, at, item, path, ret_value);
    for (Text rest = path.text; rest.size || rest.data == path.text.data;) {
        const char *dot = rest.size ? memchr(rest.data, '.', rest.size) : NULL;
        Text name = {rest.data, dot ? (size_t)(dot - rest.data) : rest.size};
        TRY(value_item(run, at, *ret_value, value_text(name), ret_value));
        if (other && ret_value->kind == V_UNDEFINED) *ret_value = *other;
        if (!dot) break;
        rest = (Text){dot + 1, rest.size - name.size - 1};
    }
    return OK;
}

/* The items, or their attributes if the argument names one. */
static Status values_of(Run *run, const Node *at, Value self, const Args *args, size_t index,
                        List *ret_values) {
    List items = {0}, values = {0};
    Value path = value_none(), value;
    TRY(items_of(run, at, self, &items));
    arg_find(args, index, "attribute", &path);
    for (size_t i = 0; i < items.count; i++) {
        value = items.item[i];
        if (path.kind != V_NONE) TRY(get_path(run, at, items.item[i], path, NULL, &value));
        TRY(list_add(&run->region, &values, value));
    }
    *ret_values = values;
    return OK;
}

static Status list_from(Run *run, const List *items, Value *ret_value) {
    TRY(list_new(&run->region, V_LIST, ret_value));
    for (size_t i = 0; i < items->count; i++) TRY(list_add(&run->region, ret_value->list, items->item[i]));
    return OK;
}

static Status filter_list(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    List items = {0};
    (void)args;
    TRY(items_of(run, at, self, &items));
    return list_from(run, &items, ret_value);
}

static Status filter_first(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    List items = {0};
    (void)args;
    TRY(items_of(run, at, self, &items));
    *ret_value = items.count ? items.item[0] : value_undefined(TEXT("first"));
    return OK;
}

static Status filter_last(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    List items = {0};
    (void)args;
    TRY(items_of(run, at, self, &items));
    *ret_value = items.count ? items.item[items.count - 1] : value_undefined(TEXT("last"));
    return OK;
}

static Status filter_join(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Writer out = {.region = &run->region};
    List values = {0};
    Value separator = value_text(TEXT(""));
    Text text, between;
    arg_find(args, 0, "d", &separator);
    TRY(value_to_text(run, at, separator, &between));
    TRY(values_of(run, at, self, args, 1, &values));
    for (size_t i = 0; i < values.count; i++) {
        if (i) TRY(writer_add(&out, between));
        TRY(value_to_text(run, at, values.item[i], &text));
        TRY(writer_add(&out, text));
    }
    *ret_value = writer_value(&out);
    return OK;
}

static Status filter_reverse(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    List items = {0}, reversed = {0};
    (void)args;
    TRY(items_of(run, at, self, &items));
    for (size_t i = items.count; i > 0; i--) TRY(list_add(&run->region, &reversed, items.item[i - 1]));
    TRY(list_from(run, &reversed, ret_value));
    ret_value->list->generator = true;
    return self.kind == V_TEXT ? filter_join(run, at, *ret_value, &(Args){0}, ret_value) : OK;
}

static Status filter_items(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    if (self.kind == V_UNDEFINED) return list_new(&run->region, V_LIST, ret_value);
    if (self.kind != V_DICT) return RUN_FAILED(run, at, "items needs a dict, not %s", value_type(self));
    TRY(method_find(self, TEXT("items"))->function(run, at, self, args, ret_value));
    ret_value->list->generator = true;
    return OK;
}

static Status filter_sum(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    List values = {0};
    *ret_value = value_int(0);
    arg_find(args, 1, "start", ret_value);
    TRY(values_of(run, at, self, args, 0, &values));
    for (size_t i = 0; i < values.count; i++)
        TRY(value_binary(run, at, TEXT("+"), *ret_value, values.item[i], ret_value));
    return OK;
}

/* ---- order ---- */

typedef struct SortItem {
    Value item, key;
    size_t index;
} SortItem;

typedef struct Sorting {
    bool reverse;
    Value bad[2]; /* that have no order */
    bool failed;
} Sorting;

static int sort_order(const void *a, const void *b, void *context) {
    Sorting *sorting = context;
    const SortItem *x = a, *y = b;
    int order = 0;
    if (!value_order(x->key, y->key, &order)) {
        sorting->failed = true;
        sorting->bad[0] = x->key;
        sorting->bad[1] = y->key;
    }
    if (order == 0) return (x->index > y->index) - (x->index < y->index);
    return sorting->reverse ? -order : order;
}

/* Ignores case unless the argument case_sensitive is true. */
static Status fold_case(Run *run, const Node *at, const Args *args, size_t index, Value *key) {
    if (key->kind != V_TEXT || arg_true(args, index, "case_sensitive")) return OK;
    return text_case(run, at, key->text, CASE_LOWER, key);
}

static Status sort_items(Run *run, const Node *at, SortItem *items, size_t count, bool reverse,
                         Value *ret_value) {
    Sorting sorting = {.reverse = reverse};
    if (count) qsort_r(items, count, sizeof *items, sort_order, &sorting);
    if (sorting.failed)
        return RUN_FAILED(run, at, "%s and %s have no order", value_type(sorting.bad[0]),
                          value_type(sorting.bad[1]));
    TRY(list_new(&run->region, V_LIST, ret_value));
    for (size_t i = 0; i < count; i++) TRY(list_add(&run->region, ret_value->list, items[i].item));
    return OK;
}

static Status filter_sort(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    List items = {0}, keys = {0};
    SortItem *sorted = NULL;
    TRY(items_of(run, at, self, &items));
    TRY(values_of(run, at, self, args, 2, &keys));
    if (items.count) TRY(region_take(&run->region, items.count, sizeof *sorted, &sorted));
    for (size_t i = 0; i < items.count; i++) {
        sorted[i] = (SortItem){items.item[i], keys.item[i], i};
        TRY(fold_case(run, at, args, 1, &sorted[i].key));
    }
    return sort_items(run, at, sorted, items.count, arg_true(args, 0, "reverse"), ret_value);
}

static Status filter_dictsort(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    Value by = value_text(TEXT("key")), pairs;
    SortItem *sorted = NULL;
    arg_find(args, 1, "by", &by);
    if (self.kind != V_DICT) return RUN_FAILED(run, at, "dictsort needs a dict, not %s", value_type(self));
    TRY(filter_items(run, at, self, &(Args){0}, &pairs));
    size_t count = pairs.list->count, part = by.kind == V_TEXT && text_is(by.text, "value");
    if (count) TRY(region_take(&run->region, count, sizeof *sorted, &sorted));
    for (size_t i = 0; i < count; i++) {
        sorted[i] = (SortItem){pairs.list->item[i], pairs.list->item[i].list->item[part], i};
        TRY(fold_case(run, at, args, 0, &sorted[i].key));
    }
    return sort_items(run, at, sorted, count, arg_true(args, 2, "reverse"), ret_value);
}

static Status extreme(Run *run, const Node *at, Value self, const Args *args, bool largest,
                      Value *ret_value) {
    List items = {0}, keys = {0};
    Value best = value_undefined(TEXT("the extreme of an empty list"));
    TRY(items_of(run, at, self, &items));
    TRY(values_of(run, at, self, args, 1, &keys));
    *ret_value = best;
    for (size_t i = 0; i < items.count; i++) {
        int order = 1;
        TRY(fold_case(run, at, args, 0, &keys.item[i]));
        if (i && !value_order(keys.item[i], best, &order))
            return RUN_FAILED(run, at, "%s and %s have no order", value_type(keys.item[i]), value_type(best));
        if (i && (largest ? order <= 0 : order >= 0)) continue;
        best = keys.item[i];
        *ret_value = items.item[i];
    }
    return OK;
}

static Status filter_min(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    return extreme(run, at, self, args, false, ret_value);
}

static Status filter_max(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    return extreme(run, at, self, args, true, ret_value);
}

static Status filter_unique(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    List items = {0}, keys = {0}, kept = {0};
    bool seen;
    TRY(items_of(run, at, self, &items));
    TRY(values_of(run, at, self, args, 1, &keys));
    TRY(list_new(&run->region, V_LIST, ret_value));
    ret_value->list->generator = true;
    for (size_t i = 0; i < items.count; i++) {
        TRY(fold_case(run, at, args, 0, &keys.item[i]));
        TRY(value_contains(run, at, keys.item[i], (Value){.kind = V_LIST, .list = &kept}, &seen));
        if (seen) continue;
        TRY(list_add(&run->region, &kept, keys.item[i]));
        TRY(list_add(&run->region, ret_value->list, items.item[i]));
    }
    return OK;
}

/* ---- selection ---- */

/* The list of a filter that is a generator in Python, which does not look at a value that is false. */
static Status new_generator(Run *run, const Node *at, Value self, List *ret_items, Value *ret_value) {
    TRY(list_new(&run->region, V_LIST, ret_value));
    ret_value->list->generator = true;
    return value_true(self) ? items_of(run, at, self, ret_items) : OK;
}

/* The arguments after the first `count`. */
static Args args_after(const Args *args, size_t count) {
    Args rest = *args;
    count = count < args->count ? count : args->count;
    rest.item += count;
    rest.count -= count;
    return rest;
}

/* Keeps the items, or those with an attribute, for which a test gives `wanted`; without one, their truth
 * counts. */
static Status select_items(Run *run, const Node *at, Value self, const Args *args, bool attribute,
                           bool wanted, Value *ret_value) {
    List items = {0};
    Value path = value_none(), value;
    size_t first = attribute ? 1 : 0;
    Text test = {0};
    Args rest = args_after(args, first + 1);
    if (attribute && !arg_find(args, 0, NULL, &path)) return RUN_FAILED(run, at, "the attribute is missing");
    if (args->count > first) TRY(arg_text(run, at, args, first, "test", &test));
    TRY(new_generator(run, at, self, &items, ret_value));
    for (size_t i = 0; i < items.count; i++) {
        value = items.item[i];
        if (attribute) TRY(get_path(run, at, items.item[i], path, NULL, &value));
        bool holds = value_true(value);
        if (test.data) TRY(apply_test(run, at, test, value, &rest, &holds));
        if (holds == wanted) TRY(list_add(&run->region, ret_value->list, items.item[i]));
    }
    return OK;
}

#define SELECT_FILTER(name, attribute, wanted)                                                               \
    static Status name(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {           \
        return select_items(run, at, self, args, attribute, wanted, ret_value);                              \
    }

SELECT_FILTER(filter_select, false, true)
SELECT_FILTER(filter_reject, false, false)
SELECT_FILTER(filter_selectattr, true, true)
SELECT_FILTER(filter_rejectattr, true, false)

/* An attribute of each item, or a filter of it. */
static Status filter_map(Run *run, const Node *at, Value self, const Args *args, Value *ret_value) {
    List items = {0};
    Value path, value, other = value_none();
    Text name = {0};
    Args rest = args_after(args, 1);
    bool attribute = args->count == 0 && arg_find(args, 1, "attribute", &path);
    bool has_other = attribute && arg_find(args, 1, "default", &other);
    if (!attribute) TRY(arg_text(run, at, args, 0, "filter", &name));
    TRY(new_generator(run, at, self, &items, ret_value));
    for (size_t i = 0; i < items.count; i++) {
        TRY(attribute ? get_path(run, at, items.item[i], path, has_other ? &other : NULL, &value)
                      : apply_filter(run, at, name, items.item[i], &rest, &value));
        TRY(list_add(&run->region, ret_value->list, value));
    }
    return OK;
}

const FunctionRow list_filters[] = {
    {"list", filter_list, 0},
    {"first", filter_first, 0},
    {"last", filter_last, 0},
    {"join", filter_join, 2},
    {"reverse", filter_reverse, 0},
    {"items", filter_items, 0},
    {"sum", filter_sum, 2},
    {"sort", filter_sort, 3},
    {"dictsort", filter_dictsort, 3},
    {"min", filter_min, 2},
    {"max", filter_max, 2},
    {"unique", filter_unique, 2},
    {"select", filter_select, -1},
    {"reject", filter_reject, -1},
    {"selectattr", filter_selectattr, -1},
    {"rejectattr", filter_rejectattr, -1},
    {"map", filter_map, -1},
    {0},
};
