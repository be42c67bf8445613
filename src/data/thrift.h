/* Reads Thrift's compact protocol, field by field, from memory that need not be trusted. A failure sticks:
 * then nothing is left to read, and integers are 0. */
#ifndef WEFT_DATA_THRIFT_H
#define WEFT_DATA_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ThriftType {
    THRIFT_STOP = 0,
    THRIFT_TRUE = 1,
    THRIFT_FALSE = 2,
    THRIFT_I8 = 3,
    THRIFT_I16 = 4,
    THRIFT_I32 = 5,
    THRIFT_I64 = 6,
    THRIFT_DOUBLE = 7,
    THRIFT_BINARY = 8,
    THRIFT_LIST = 9,
    THRIFT_SET = 10,
    THRIFT_MAP = 11,
    THRIFT_STRUCT = 12,
} ThriftType;

typedef struct Thrift {
    const unsigned char *at, *end;
    bool failed;
} Thrift;

/* A field of a struct; starts as {0}. */
typedef struct ThriftField {
    int id;
    ThriftType type;
} ThriftField;

/* Advances to the next field; false after the last one and after a failure. The caller reads or skips it. */
bool thrift_next(Thrift *in, ThriftField *field);
void thrift_skip(Thrift *in, ThriftType type);
/* The field's value; a field of another type is a failure. */
int64_t thrift_int(Thrift *in, ThriftType type);
bool thrift_bool(Thrift *in, ThriftType type);
const char *thrift_text(Thrift *in, ThriftType type, size_t *ret_size); /* not terminated */
/* Begins a list: the number and the type of its elements, which follow. */
size_t thrift_list(Thrift *in, ThriftType type, ThriftType *ret_element);

#endif
