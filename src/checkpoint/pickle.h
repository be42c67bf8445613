/* Reads Python pickles without executing anything. A pickle is a program for a small stack machine; only the
 * instructions that build data are followed. A call of a function stays a value, PICKLE_CALL, and functions
 * and classes that the caller does not expect are refused by name. */
#ifndef WEFT_CHECKPOINT_PICKLE_H
#define WEFT_CHECKPOINT_PICKLE_H

#include <stdint.h>

#include "base/status.h"

typedef enum PickleKind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_REAL,
    PICKLE_TEXT,       /* also bytes */
    PICKLE_LIST,       /* also tuples */
    PICKLE_DICT,       /* items: keys and values in turns */
    PICKLE_GLOBAL,     /* a function or class: text is "module name" */
    PICKLE_CALL,       /* items: a global, its arguments as a list */
    PICKLE_PERSISTENT, /* an object outside the pickle; items: its id */
} PickleKind;

typedef struct PickleValue {
    PickleKind kind;
    int64_t integer;
    double real;
    const char *text; /* in the pickle's memory, not terminated, but of globals */
    size_t size;
    uint32_t *item; /* numbers of other values */
    size_t count, capacity;
} PickleValue;

/* The values of one or more pickles; initialize with `path` for messages and `allowed`, the globals that may
 * occur, "module name", NULL-terminated. */
typedef struct Pickle {
    const char *path;
    const char *const *allowed;
    PickleValue *value;
    size_t count, capacity;
} Pickle;

/* Reads the pickle at data[*at], and moves *at past it. `data` must outlive the values. */
MUST_USE Status pickle_read(Pickle *pickle, const unsigned char *data, size_t size, size_t *at,
                            uint32_t *ret_value);
void pickle_done(Pickle *pickle);

const PickleValue *pickle_at(const Pickle *pickle, uint32_t value);
/* Item `i` of a value; NULL if there is none, or if `value` is NULL. */
const PickleValue *pickle_item(const Pickle *pickle, const PickleValue *value, size_t i);
/* Whether a value is a text or a global that equals `text`; it may be NULL. */
bool pickle_is(const PickleValue *value, const char *text);
/* The value of a key; NULL: none. */
const PickleValue *pickle_find(const Pickle *pickle, const PickleValue *dict, const char *key);

#endif
