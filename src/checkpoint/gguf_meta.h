/* The metadata of a GGUF file: keys with values, in the file's encoding. */
#ifndef WEFT_CHECKPOINT_GGUF_META_H
#define WEFT_CHECKPOINT_GGUF_META_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Types of values, numbered as in the file. */
typedef enum {
    META_U32 = 4,
    META_I32 = 5,
    META_F32 = 6,
    META_BOOL = 7,
    META_STRING = 8,
    META_ARRAY = 9
} MetaType;

/* Bytes of the file so far; initialize with {0}. */
typedef struct GgufMeta {
    char *data;
    size_t size, capacity;
    uint64_t count; /* keys */
} GgufMeta;

void gguf_meta_done(GgufMeta *meta);
MUST_USE Status meta_bytes(GgufMeta *meta, const void *data, size_t size);
MUST_USE Status meta_u32(GgufMeta *meta, uint32_t value);
MUST_USE Status meta_u64(GgufMeta *meta, uint64_t value);
MUST_USE Status meta_text(GgufMeta *meta, const char *text, size_t size);

/* A key and its value. */
MUST_USE Status meta_put_u32(GgufMeta *meta, const char *key, int64_t value);
MUST_USE Status meta_put_f32(GgufMeta *meta, const char *key, float value);
MUST_USE Status meta_put_bool(GgufMeta *meta, const char *key, bool value);
MUST_USE Status meta_put_text(GgufMeta *meta, const char *key, const char *text);
/* A key and the start of an array; its entries follow. */
MUST_USE Status meta_put_array(GgufMeta *meta, const char *key, MetaType type, uint64_t count);

#endif
