/* Reads GGUF files, for tests. */
#ifndef WEFT_TESTS_CHECKPOINT_GGUF_FILE_H
#define WEFT_TESTS_CHECKPOINT_GGUF_FILE_H

#include "test.h"

#include "base/fs.h"
#include "checkpoint/gguf.h"

enum {
    MAX_KEYS = 64,
    MAX_TENSORS = 128,
    VALUE_U32 = 4,
    VALUE_F32 = 6,
    VALUE_BOOL = 7,
    VALUE_TEXT = 8,
    VALUE_ARRAY = 9
};

typedef struct Text {
    const char *data;
    uint64_t size;
} Text;

/* A file, parsed. */
typedef struct Gguf {
    FileMap map;
    size_t at;
    uint64_t keys, tensors;
    struct {
        Text name;
        uint32_t type;
        size_t value; /* offset in the file */
    } key[MAX_KEYS];
    struct {
        Text name;
        uint32_t dims, type;
        uint64_t dim[3];
        const unsigned char *data;
    } tensor[MAX_TENSORS];
} Gguf;

static inline const void *take(Gguf *g, size_t size) {
    assert_true(size <= g->map.size - g->at);
    g->at += size;
    return (const char *)g->map.data + g->at - size;
}

static inline uint32_t take_u32(Gguf *g) {
    uint32_t value;
    memcpy(&value, take(g, sizeof value), sizeof value);
    return value;
}

static inline uint64_t take_u64(Gguf *g) {
    uint64_t value;
    memcpy(&value, take(g, sizeof value), sizeof value);
    return value;
}

static inline Text take_text(Gguf *g) {
    uint64_t size = take_u64(g);
    return (Text){take(g, size), size};
}

static inline void skip_value(Gguf *g, uint32_t type) {
    if (type == VALUE_TEXT) {
        take_text(g);
    } else if (type == VALUE_ARRAY) {
        uint32_t entry = take_u32(g);
        for (uint64_t count = take_u64(g); count > 0; count--) skip_value(g, entry);
    } else {
        take(g, type == VALUE_BOOL ? 1 : 4);
    }
}

static inline bool is(Text text, const char *expected) {
    return text.size == strlen(expected) && !memcmp(text.data, expected, text.size);
}

static inline void gguf_read_keys(Gguf *g) {
    assert_in_range(g->keys, 1, MAX_KEYS);
    for (uint64_t i = 0; i < g->keys; i++) {
        g->key[i].name = take_text(g);
        g->key[i].type = take_u32(g);
        g->key[i].value = g->at;
        skip_value(g, g->key[i].type);
    }
}

static inline Gguf *gguf_read(const char *path) {
    Gguf *g = calloc(1, sizeof *g);
    assert_ok(file_map_init(&g->map, path));
    assert_memory_equal(take(g, 4), "GGUF", 4);
    assert_int_equal(take_u32(g), 3);
    g->tensors = take_u64(g);
    g->keys = take_u64(g);
    assert_in_range(g->tensors, 1, MAX_TENSORS);
    gguf_read_keys(g);
    size_t offset[MAX_TENSORS];
    for (uint64_t i = 0; i < g->tensors; i++) {
        g->tensor[i].name = take_text(g);
        g->tensor[i].dims = take_u32(g);
        assert_in_range(g->tensor[i].dims, 1, 3);
        g->tensor[i].dim[1] = g->tensor[i].dim[2] = 1;
        for (uint32_t d = 0; d < g->tensor[i].dims; d++) g->tensor[i].dim[d] = take_u64(g);
        g->tensor[i].type = take_u32(g);
        offset[i] = take_u64(g);
        assert_int_equal(offset[i] % 32, 0);
    }
    size_t data = (g->at + 31) / 32 * 32;
    for (uint64_t i = 0; i < g->tensors; i++) {
        const uint64_t *dim = g->tensor[i].dim;
        size_t bytes = gguf_bytes(g->tensor[i].type, (int64_t)(dim[0] * dim[1] * dim[2]));
        assert_true(data + offset[i] + bytes <= g->map.size);
        g->tensor[i].data = (const unsigned char *)g->map.data + data + offset[i];
    }
    return g;
}

static inline void gguf_free(Gguf *g) {
    file_map_done(&g->map);
    free(g);
}

/* Moves to the value of a key. */
static inline void find_key(Gguf *g, const char *name, uint32_t type) {
    for (uint64_t i = 0; i < g->keys; i++) {
        if (!is(g->key[i].name, name)) continue;
        assert_int_equal(g->key[i].type, type);
        g->at = g->key[i].value;
        return;
    }
    fail_msg("no key '%s'", name);
}

static inline void assert_text(Gguf *g, const char *name, const char *expected) {
    find_key(g, name, VALUE_TEXT);
    assert_true(is(take_text(g), expected));
}

static inline void assert_number(Gguf *g, const char *name, uint32_t expected) {
    find_key(g, name, VALUE_U32);
    assert_int_equal(take_u32(g), expected);
}

/* Moves to the first entry of an array of texts or int32 and returns the number of entries. */
static inline uint64_t find_array(Gguf *g, const char *name, uint32_t type) {
    find_key(g, name, VALUE_ARRAY);
    assert_int_equal(take_u32(g), type);
    return take_u64(g);
}

/* Moves to a token's text and fails unless its type is this. */
static inline Text find_token(Gguf *g, uint64_t index, uint32_t type) {
    uint64_t count = find_array(g, "tokenizer.ggml.token_type", 5);
    assert_true(index < count);
    take(g, 4 * index);
    uint32_t found = take_u32(g);
    if (found != type) fail_msg("token %d has type %d, expected %d", (int)index, (int)found, (int)type);
    assert_int_equal(find_array(g, "tokenizer.ggml.tokens", VALUE_TEXT), count);
    for (uint64_t i = 0; i < index; i++) take_text(g);
    return take_text(g);
}

static inline void assert_token(Gguf *g, uint64_t index, const char *expected, uint32_t type) {
    Text text = find_token(g, index, type);
    if (!is(text, expected)) fail_msg("token %d is '%.*s'", (int)index, (int)text.size, text.data);
}

static inline void assert_bool(Gguf *g, const char *name, bool expected) {
    find_key(g, name, VALUE_BOOL);
    assert_int_equal(*(const char *)take(g, 1), expected);
}

static inline bool has_key(const Gguf *g, const char *name) {
    for (uint64_t i = 0; i < g->keys; i++)
        if (is(g->key[i].name, name)) return true;
    return false;
}

#endif
