/* Values of Jinja templates: what Python's types are to jinja2, as far as chat templates use them.
 *
 * Values are small and passed by copy; texts, lists and dicts live in an Region and are freed with it. Lists
 * and dicts do not change once a template can see them; namespaces and loops do. Integers have 64 bits; a
 * result outside them is an error.
 */
#ifndef WEFT_CHAT_VALUE_H
#define WEFT_CHAT_VALUE_H

#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "base/status.h"

/* ---- memory ---- */

/* Memory that is freed at once. `limit` bounds its size: a template cannot use up the memory of the host. */
typedef struct RegionChunk RegionChunk;
typedef struct Region {
    RegionChunk *chunk;
    size_t used, size; /* of the current chunk */
    size_t total, limit;
} Region;

/* Zeroed bytes. */
MUST_USE Status region_take(Region *region, size_t count, size_t size, void *ret_pointer);
void region_done(Region *region);

/* ---- values ---- */

/* Bytes in UTF-8, not NUL-terminated. */
typedef struct Text {
    const char *data;
    size_t size;
} Text;

#define TEXT(literal) ((Text){literal, sizeof(literal) - 1})
static inline Text text_of_string(const char *string) {
    return (Text){string, strlen(string)};
}
static inline bool text_equal(Text a, Text b) {
    return a.size == b.size && (a.size == 0 || !memcmp(a.data, b.data, a.size));
}
static inline bool text_is(Text text, const char *string) {
    return text_equal(text, text_of_string(string));
}

typedef enum {
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_REAL,
    V_TEXT,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_NAMESPACE,
    V_CALLABLE,
    V_LOOP,
} ValueKind;

typedef struct List List;
typedef struct Dict Dict;
typedef struct Callable Callable;
typedef struct Loop Loop;

typedef struct Value {
    ValueKind kind;
    bool markup; /* V_TEXT from the filter safe or escape: what + adds to it is escaped */
    union {
        bool boolean;
        int64_t integer;
        double real;
        Text text; /* for V_UNDEFINED: the name that is not defined */
        List *list;
        Dict *dict; /* V_DICT, V_NAMESPACE */
        const Callable *callable;
        Loop *loop;
    };
} Value;

/* `depth`: levels of lists and dicts inside, at most VALUE_DEPTH. */
enum { VALUE_DEPTH = 200 };

struct List {
    Value *item;
    size_t count, capacity;
    int depth;
    bool generator; /* of filters such as map: in Python it has no length yet, so it is true and not JSON */
};

typedef struct DictEntry {
    Value key, value;
} DictEntry;

/* In the order of insertion. */
struct Dict {
    DictEntry *entry;
    size_t count, capacity;
    int depth;
};

static inline Value value_undefined(Text name) {
    return (Value){.kind = V_UNDEFINED, .text = name};
}
static inline Value value_none(void) {
    return (Value){.kind = V_NONE};
}
static inline Value value_bool(bool boolean) {
    return (Value){.kind = V_BOOL, .boolean = boolean};
}
static inline Value value_int(int64_t integer) {
    return (Value){.kind = V_INT, .integer = integer};
}
static inline Value value_real(double real) {
    return (Value){.kind = V_REAL, .real = real};
}
static inline Value value_text(Text text) {
    return (Value){.kind = V_TEXT, .text = text};
}
static inline bool value_is_list(Value value) {
    return value.kind == V_LIST || value.kind == V_TUPLE;
}
static inline bool value_is_number(Value value) {
    return value.kind == V_BOOL || value.kind == V_INT || value.kind == V_REAL;
}
/* An integer or a boolean as one. */
static inline bool value_integer(Value value, int64_t *ret_integer) {
    if (value.kind == V_INT) *ret_integer = value.integer;
    if (value.kind == V_BOOL) *ret_integer = value.boolean;
    return value.kind == V_INT || value.kind == V_BOOL;
}
static inline double value_number(Value value) {
    return value.kind == V_REAL ? value.real : (double)(value.kind == V_BOOL ? value.boolean : value.integer);
}

/* An empty list (V_LIST or V_TUPLE), or dict (V_DICT or V_NAMESPACE). */
MUST_USE Status list_new(Region *region, ValueKind kind, Value *ret_value);
MUST_USE Status dict_new(Region *region, ValueKind kind, Value *ret_value);
MUST_USE Status list_add(Region *region, List *list, Value item);
/* Replaces the value of an equal key. */
MUST_USE Status dict_put(Region *region, Dict *dict, Value key, Value value);
const Value *dict_find(const Dict *dict, Value key);
const Value *dict_find_text(const Dict *dict, Text key);
/* Copies the text. */
MUST_USE Status text_copy(Region *region, Text text, Value *ret_value);
/* A value for JSON; texts are borrowed from it. */
MUST_USE Status value_from_json(Region *region, const json_t *json, Value *ret_value);

/* Python's bool(). */
bool value_true(Value value);
/* Python's ==. */
bool value_equal(Value a, Value b);
/* Python's < for numbers, texts and lists of these; false if the two cannot be ordered. */
bool value_order(Value a, Value b, int *ret_order);
/* The name of the value's type in Python. */
const char *value_type(Value value);
/* Number of characters, items or members; false if the value has no length. */
bool value_length(Value value, int64_t *ret_length);
/* The items that a loop visits: characters of a text, keys of a dict. *ret_iterable is false if there are
 * none to visit. */
MUST_USE Status value_items(Region *region, Value value, List *ret_items, bool *ret_iterable);

/* ---- characters ---- */

/* Length in bytes of the first character of valid UTF-8. */
static inline size_t char_size(const char *text) {
    unsigned char first = (unsigned char)*text;
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}
uint32_t char_decode(Text text, size_t at);
int64_t text_characters(Text text);
/* The byte offset of character `index`, at most text.size. */
size_t text_offset(Text text, int64_t index);
/* str.isspace of one character. */
bool char_is_blank(uint32_t c);

/* ---- text output ---- */

typedef struct Writer {
    Region *region;
    char *data;
    size_t size, capacity;
} Writer;

MUST_USE Status writer_add(Writer *writer, Text text);
MUST_USE Status writer_char(Writer *writer, uint32_t c);
MUST_USE Status writer_format(Writer *writer, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Python's str() and repr(). */
MUST_USE Status writer_str(Writer *writer, Value value);
MUST_USE Status writer_repr(Writer *writer, Value value);

typedef struct JsonStyle {
    bool ascii, sorted;
    Text indent;    /* data NULL: on one line */
    Text item, key; /* separators */
} JsonStyle;
/* Python's json.dumps(). `*ret_bad` names the type that JSON does not have, else NULL. */
MUST_USE Status writer_json(Writer *writer, Value value, const JsonStyle *style, const char **ret_bad);

static inline Value writer_value(const Writer *writer) {
    return value_text((Text){writer->data ? writer->data : "", writer->size});
}

#endif
