#include "data/thrift.h"

enum { DEPTH = 32 };

static void fail(Thrift *in) {
    in->failed = true;
    in->at = in->end;
}

static unsigned char byte(Thrift *in) {
    if (in->at < in->end) return *in->at++;
    fail(in);
    return 0;
}

static uint64_t varint(Thrift *in) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        unsigned char part = byte(in);
        value |= (uint64_t)(part & 0x7f) << shift;
        if (!(part & 0x80)) return value;
    }
    fail(in);
    return 0;
}

static int64_t zigzag(Thrift *in) {
    uint64_t value = varint(in);
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

static void advance(Thrift *in, uint64_t size) {
    if (size > (uint64_t)(in->end - in->at))
        fail(in);
    else
        in->at += size;
}

bool thrift_next(Thrift *in, ThriftField *field) {
    unsigned char head = byte(in);
    int type = head & 0xf, step = head >> 4;
    if (in->failed || type == THRIFT_STOP) return false;
    int64_t id = step ? field->id + step : zigzag(in);
    if (in->failed || type > THRIFT_STRUCT || id < 0 || id > INT16_MAX) {
        fail(in);
        return false;
    }
    *field = (ThriftField){.id = (int)id, .type = (ThriftType)type};
    return true;
}

size_t thrift_list(Thrift *in, ThriftType type, ThriftType *ret_element) {
    unsigned char head = type == THRIFT_LIST || type == THRIFT_SET ? byte(in) : (fail(in), 0);
    uint64_t count = head >> 4 == 15 ? varint(in) : head >> 4;
    *ret_element = (ThriftType)(head & 0xf);
    if (*ret_element == THRIFT_STOP || *ret_element > THRIFT_STRUCT || count > (uint64_t)(in->end - in->at)) {
        if (count) fail(in); /* every element has at least one byte */
        return 0;
    }
    return (size_t)count;
}

static void skip(Thrift *in, ThriftType type, bool element, int depth);

static void skip_map(Thrift *in, int depth) {
    uint64_t count = varint(in);
    unsigned char types = count ? byte(in) : 0;
    for (uint64_t i = 0; i < count && !in->failed; i++) {
        skip(in, (ThriftType)(types >> 4), true, depth);
        skip(in, (ThriftType)(types & 0xf), true, depth);
    }
}

/* The value of a boolean field is in its type; as an element, it is a byte. */
static void skip(Thrift *in, ThriftType type, bool element, int depth) {
    if (depth == DEPTH) fail(in);
    if (in->failed) return;
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE: advance(in, element); return;
    case THRIFT_I8: advance(in, 1); return;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64: varint(in); return;
    case THRIFT_DOUBLE: advance(in, 8); return;
    case THRIFT_BINARY: advance(in, varint(in)); return;
    case THRIFT_LIST:
    case THRIFT_SET: {
        ThriftType inner;
        for (size_t left = thrift_list(in, type, &inner); left && !in->failed; left--)
            skip(in, inner, true, depth + 1);
        return;
    }
    case THRIFT_MAP: skip_map(in, depth + 1); return;
    case THRIFT_STRUCT:
        for (ThriftField field = {0}; thrift_next(in, &field);) skip(in, field.type, false, depth + 1);
        return;
    case THRIFT_STOP: break;
    }
    fail(in);
}

void thrift_skip(Thrift *in, ThriftType type) {
    skip(in, type, false, 0);
}

int64_t thrift_int(Thrift *in, ThriftType type) {
    if (type < THRIFT_I16 || type > THRIFT_I64) fail(in);
    return zigzag(in);
}

bool thrift_bool(Thrift *in, ThriftType type) {
    if (type != THRIFT_TRUE && type != THRIFT_FALSE) fail(in);
    return type == THRIFT_TRUE;
}

const char *thrift_text(Thrift *in, ThriftType type, size_t *ret_size) {
    if (type != THRIFT_BINARY) fail(in);
    uint64_t size = varint(in);
    const unsigned char *text = in->at;
    advance(in, size);
    *ret_size = in->failed ? 0 : (size_t)size;
    return (const char *)text;
}
