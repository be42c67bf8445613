/* Encoding of GGUF metadata. */
#include "checkpoint/gguf_meta.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void gguf_meta_done(GgufMeta *meta) {
    free(meta->data);
}

Status meta_bytes(GgufMeta *meta, const void *data, size_t size) {
    TRY(mem_grow(&meta->data, &meta->capacity, meta->size + size, 1));
    if (size) memcpy(meta->data + meta->size, data, size);
    meta->size += size;
    return OK;
}

/* Both of weft's architectures are little-endian, like the file. */
Status meta_u32(GgufMeta *meta, uint32_t value) {
    return meta_bytes(meta, &value, sizeof value);
}

Status meta_u64(GgufMeta *meta, uint64_t value) {
    return meta_bytes(meta, &value, sizeof value);
}

Status meta_text(GgufMeta *meta, const char *text, size_t size) {
    TRY(meta_u64(meta, size));
    return meta_bytes(meta, text, size);
}

static Status put_key(GgufMeta *meta, const char *key, MetaType type) {
    meta->count++;
    TRY(meta_text(meta, key, strlen(key)));
    return meta_u32(meta, type);
}

Status meta_put_u32(GgufMeta *meta, const char *key, int64_t value) {
    TRY(put_key(meta, key, META_U32));
    return meta_u32(meta, (uint32_t)value);
}

Status meta_put_f32(GgufMeta *meta, const char *key, float value) {
    TRY(put_key(meta, key, META_F32));
    return meta_bytes(meta, &value, sizeof value);
}

Status meta_put_bool(GgufMeta *meta, const char *key, bool value) {
    TRY(put_key(meta, key, META_BOOL));
    return meta_bytes(meta, &(char){value}, 1);
}

Status meta_put_text(GgufMeta *meta, const char *key, const char *text) {
    TRY(put_key(meta, key, META_STRING));
    return meta_text(meta, text, strlen(text));
}

Status meta_put_array(GgufMeta *meta, const char *key, MetaType type, uint64_t count) {
    TRY(put_key(meta, key, META_ARRAY));
    TRY(meta_u32(meta, type));
    return meta_u64(meta, count);
}
