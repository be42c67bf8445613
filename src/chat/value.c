/* Construction, comparison and iteration of values. */
#include "chat/value.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

/* ---- memory ---- */

struct RegionChunk {
    RegionChunk *before;
    _Alignas(16) char data[];
};

Status region_take(Region *region, size_t count, size_t size, void *ret_pointer) {
    enum { CHUNK = 1 << 14 };
    size_t bytes;
    if (!mul_size(count, size, &bytes) || bytes > region->limit - region->total)
        return FAILED("the template needs more than %zu MB of memory", region->limit >> 20);
    bytes = (bytes + 15) / 16 * 16;
    if (!region->chunk || bytes > region->size - region->used) {
        size_t room = bytes > CHUNK ? bytes : CHUNK;
        RegionChunk *chunk = calloc(1, sizeof *chunk + room);
        if (!chunk) return FAILED("out of memory while applying the template");
        chunk->before = region->chunk;
        region->chunk = chunk;
        region->size = room;
        region->used = 0;
    }
    *(void **)ret_pointer = region->chunk->data + region->used;
    region->used += bytes;
    region->total += bytes < region->limit - region->total ? bytes : region->limit - region->total;
    return OK;
}

void region_done(Region *region) {
    while (region->chunk) {
        RegionChunk *before = region->chunk->before;
        free(region->chunk);
        region->chunk = before;
    }
}

/* Doubles an array in the region; the old one stays until the region is freed. */
static Status region_grow(Region *region, void *array, size_t *capacity, size_t count, size_t size) {
    if (count < *capacity) return OK;
    size_t more = *capacity ? 2 * *capacity : 4;
    void *old = *(void **)array, *grown = NULL;
    TRY(region_take(region, more, size, &grown));
    if (count) memcpy(grown, old, count * size);
    *(void **)array = grown;
    *capacity = more;
    return OK;
}

/* ---- construction ---- */

Status list_new(Region *region, ValueKind kind, Value *ret_value) {
    List *list = NULL;
    TRY(region_take(region, 1, sizeof *list, &list));
    *ret_value = (Value){.kind = kind, .list = list};
    return OK;
}

Status dict_new(Region *region, ValueKind kind, Value *ret_value) {
    Dict *dict = NULL;
    TRY(region_take(region, 1, sizeof *dict, &dict));
    *ret_value = (Value){.kind = kind, .dict = dict};
    return OK;
}

/* Accounts for a value put into a list or dict. A namespace may contain itself, but nothing looks into it. */
static Status deepen(int *depth, Value value) {
    int inside = value_is_list(value) ? value.list->depth : value.kind == V_DICT ? value.dict->depth : -1;
    if (inside >= VALUE_DEPTH)
        return FAILED("lists and dicts are nested more than %d levels deep", VALUE_DEPTH);
    if (inside >= *depth) *depth = inside + 1;
    return OK;
}

Status list_add(Region *region, List *list, Value item) {
    TRY(deepen(&list->depth, item));
    TRY(region_grow(region, &list->item, &list->capacity, list->count, sizeof item));
    list->item[list->count++] = item;
    return OK;
}

const Value *dict_find(const Dict *dict, Value key) {
    for (size_t i = 0; i < dict->count; i++)
        if (value_equal(dict->entry[i].key, key)) return &dict->entry[i].value;
    return NULL;
}

const Value *dict_find_text(const Dict *dict, Text key) {
    return dict_find(dict, value_text(key));
}

static Status dict_append(Region *region, Dict *dict, Value key, Value value) {
    TRY(deepen(&dict->depth, value));
    TRY(region_grow(region, &dict->entry, &dict->capacity, dict->count, sizeof *dict->entry));
    dict->entry[dict->count++] = (DictEntry){key, value};
    return OK;
}

Status dict_put(Region *region, Dict *dict, Value key, Value value) {
    Value *found = (Value *)dict_find(dict, key);
    if (!found) return dict_append(region, dict, key, value);
    TRY(deepen(&dict->depth, value));
    *found = value;
    return OK;
}

Status text_copy(Region *region, Text text, Value *ret_value) {
    char *copy = NULL;
    TRY(region_take(region, text.size + 1, 1, &copy));
    if (text.size) memcpy(copy, text.data, text.size);
    *ret_value = value_text((Text){copy, text.size});
    return OK;
}

/* jansson bounds the depth of what it parses. */
Status value_from_json(Region *region, const json_t *json, Value *ret_value) {
    Value value = value_none(), member;
    const char *key;
    size_t index;
    json_t *child;
    if (json_is_boolean(json)) value = value_bool(json_is_true(json));
    if (json_is_integer(json)) value = value_int(json_integer_value(json));
    if (json_is_real(json)) value = value_real(json_real_value(json));
    if (json_is_string(json)) value = value_text((Text){json_string_value(json), json_string_length(json)});
    if (json_is_array(json)) {
        TRY(list_new(region, V_LIST, &value));
        json_array_foreach(json, index, child) {
            TRY(value_from_json(region, child, &member));
            TRY(list_add(region, value.list, member));
        }
    }
    if (json_is_object(json)) {
        TRY(dict_new(region, V_DICT, &value));
        json_object_foreach((json_t *)json, key, child) {
            TRY(value_from_json(region, child, &member));
            TRY(dict_append(region, value.dict, value_text(text_of_string(key)), member));
        }
    }
    *ret_value = value;
    return OK;
}

/* ---- properties ---- */

bool value_true(Value value) {
    int64_t length = 1;
    switch (value.kind) {
    case V_UNDEFINED:
    case V_NONE: return false;
    case V_BOOL: return value.boolean;
    case V_INT: return value.integer != 0;
    case V_REAL: return value.real != 0;
    case V_NAMESPACE:
    case V_CALLABLE:
    case V_LOOP: return true;
    case V_TEXT: return value.text.size > 0;
    case V_LIST:
    case V_TUPLE: return value.list->count > 0 || value.list->generator;
    default: return value_length(value, &length) && length > 0;
    }
}

static bool lists_equal(const List *a, const List *b) {
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++)
        if (!value_equal(a->item[i], b->item[i])) return false;
    return true;
}

static bool dicts_equal(const Dict *a, const Dict *b) {
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++) {
        const Value *other = dict_find(b, a->entry[i].key);
        if (!other || !value_equal(a->entry[i].value, *other)) return false;
    }
    return true;
}

bool value_equal(Value a, Value b) {
    if (value_is_number(a) && value_is_number(b)) {
        int64_t x = 0, y = 0;
        if (value_integer(a, &x) && value_integer(b, &y)) return x == y;
        return value_number(a) == value_number(b);
    }
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case V_TEXT: return text_equal(a.text, b.text);
    case V_LIST:
    case V_TUPLE: return lists_equal(a.list, b.list);
    case V_DICT: return dicts_equal(a.dict, b.dict);
    case V_NAMESPACE: return a.dict == b.dict;
    case V_CALLABLE: return a.callable == b.callable;
    case V_LOOP: return a.loop == b.loop;
    default: return true;
    }
}

static int texts_order(Text a, Text b) {
    size_t common = a.size < b.size ? a.size : b.size;
    int order = common ? memcmp(a.data, b.data, common) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

bool value_order(Value a, Value b, int *ret_order) {
    if (value_is_number(a) && value_is_number(b)) {
        int64_t i = 0, j = 0;
        double x = value_number(a), y = value_number(b);
        bool integers = value_integer(a, &i) && value_integer(b, &j);
        *ret_order = integers ? (i > j) - (i < j) : (x > y) - (x < y);
        return true;
    }
    if (a.kind != b.kind) return false;
    if (a.kind == V_TEXT) *ret_order = texts_order(a.text, b.text);
    if (!value_is_list(a)) return a.kind == V_TEXT;
    for (size_t i = 0; i < a.list->count && i < b.list->count; i++) {
        if (value_equal(a.list->item[i], b.list->item[i])) continue;
        return value_order(a.list->item[i], b.list->item[i], ret_order);
    }
    *ret_order = (a.list->count > b.list->count) - (a.list->count < b.list->count);
    return true;
}

const char *value_type(Value value) {
    if (value_is_list(value) && value.list->generator) return "a generator";
    static const char *const names[] = {
        [V_UNDEFINED] = "undefined",   [V_NONE] = "none",           [V_BOOL] = "a boolean",
        [V_INT] = "an integer",        [V_REAL] = "a float",        [V_TEXT] = "a string",
        [V_LIST] = "a list",           [V_TUPLE] = "a tuple",       [V_DICT] = "a dict",
        [V_NAMESPACE] = "a namespace", [V_CALLABLE] = "a function", [V_LOOP] = "a loop",
    };
    return names[value.kind];
}

bool value_length(Value value, int64_t *ret_length) {
    switch (value.kind) {
    case V_UNDEFINED: *ret_length = 0; return true;
    case V_TEXT: *ret_length = text_characters(value.text); return true;
    case V_LIST:
    case V_TUPLE: *ret_length = (int64_t)value.list->count; return !value.list->generator;
    case V_DICT: *ret_length = (int64_t)value.dict->count; return true;
    default: return false;
    }
}

Status value_items(Region *region, Value value, List *ret_items, bool *ret_iterable) {
    List items = {0};
    *ret_iterable = true;
    if (value_is_list(value)) {
        items = *value.list;
        items.capacity = items.count;
    } else if (value.kind == V_DICT) {
        for (size_t i = 0; i < value.dict->count; i++)
            TRY(list_add(region, &items, value.dict->entry[i].key));
    } else if (value.kind == V_TEXT) {
        for (size_t at = 0, size; at < value.text.size; at += size) {
            size = char_size(value.text.data + at);
            TRY(list_add(region, &items, value_text((Text){value.text.data + at, size})));
        }
    } else {
        *ret_iterable = value.kind == V_UNDEFINED;
    }
    *ret_items = items;
    return OK;
}

/* ---- characters ---- */

uint32_t char_decode(Text text, size_t at) {
    const unsigned char *bytes = (const unsigned char *)text.data + at;
    size_t size = char_size(text.data + at);
    if (size == 1 || at + size > text.size) return bytes[0];
    uint32_t c = bytes[0] & (0xffu >> (size + 1));
    for (size_t i = 1; i < size; i++) c = c << 6 | (bytes[i] & 0x3f);
    return c;
}

int64_t text_characters(Text text) {
    int64_t length = 0;
    for (size_t i = 0; i < text.size; i++) length += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return length;
}

size_t text_offset(Text text, int64_t index) {
    size_t at = 0;
    for (; index > 0 && at < text.size; index--) at += char_size(text.data + at);
    return at < text.size ? at : text.size;
}

bool char_is_blank(uint32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}
