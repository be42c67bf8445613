/* Opens input files. Decompression handles concatenated gzip members, as `gzip -d` does, into a buffer that
 * doubles. A file that exceeds the limit is rejected while it is being decompressed, whatever its trailer
 * says about its size. */
#include "data/source.h"

#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/memory.h"
#include "data/signature.h"

enum { GZIP_WINDOW = 15 + 16, CHUNK = 1 << 28 };

bool path_is_gz(const char *path) {
    size_t length = strlen(path);
    return length > 3 && !strcasecmp(path + length - 3, ".gz");
}

bool path_has_suffix(const char *path, const char *suffix) {
    size_t length = strlen(path), wanted = strlen(suffix);
    if (path_is_gz(path)) length -= 3;
    return length > wanted && !strncasecmp(path + length - wanted, suffix, wanted);
}

bool path_is_separated(const char *path) {
    return path_has_suffix(path, ".csv") || path_has_suffix(path, ".tsv");
}

typedef struct Inflater {
    const char *path;
    z_stream z;
    bool started;
    unsigned char *out;
    size_t size, capacity, limit;
} Inflater;

static void inflater_done(Inflater *inflater) {
    if (inflater->started) inflateEnd(&inflater->z);
    free(inflater->out);
}

/* Grows the output buffer if it is full. It may exceed the limit by one byte, so that an oversized file is
 * detected. */
static Status inflater_grow(Inflater *inflater) {
    if (inflater->size < inflater->capacity) return OK;
    size_t wanted = inflater->capacity ? inflater->capacity * 2 : 1 << 16;
    if (wanted > inflater->limit) wanted = inflater->limit + 1;
    unsigned char *grown = realloc(inflater->out, wanted);
    if (!grown)
        return FAILED(
            "%s: out of memory while decompressing (%zu bytes so far); decompress it to a file first",
            inflater->path, inflater->size);
    inflater->out = grown;
    inflater->capacity = wanted;
    return OK;
}

/* Inflates one member and advances *used past its input. */
static Status inflater_member(Inflater *inflater, const FileMap *in, size_t *used) {
    z_stream *z = &inflater->z;
    if (inflateReset(z) != Z_OK) return FAILED("%s: the decompressor cannot be reset", inflater->path);
    for (int result = Z_OK; result != Z_STREAM_END;) {
        TRY(inflater_grow(inflater));
        size_t left = in->size - *used, space = inflater->capacity - inflater->size;
        z->next_in = (unsigned char *)(uintptr_t)(in->data + *used);
        z->avail_in = (uInt)(left < CHUNK ? left : CHUNK);
        z->next_out = inflater->out + inflater->size;
        z->avail_out = (uInt)(space < CHUNK ? space : CHUNK);
        if (left == 0) return FAILED("%s: the compressed data is truncated", inflater->path);
        result = inflate(z, Z_NO_FLUSH);
        *used = (size_t)(z->next_in - in->data);
        inflater->size = (size_t)(z->next_out - inflater->out);
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
            return FAILED("%s: the compressed data is damaged at byte %zu: %s", inflater->path, *used,
                          z->msg ? z->msg : "not gzip");
        if (inflater->size > inflater->limit)
            return FAILED("%s: decompresses to more than %zu bytes; decompress it to a file first",
                          inflater->path, inflater->limit);
    }
    return OK;
}

static bool only_zeros(const unsigned char *data, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (data[i]) return false;
    return true;
}

static Status source_inflate(Source *source, size_t limit) {
    CLEANUP(inflater_done) Inflater inflater = {.path = source->name, .limit = limit};
    if (inflateInit2(&inflater.z, GZIP_WINDOW) != Z_OK)
        return FAILED("%s: the decompressor cannot be initialized", source->name);
    inflater.started = true;
    const FileMap *in = &source->map;
    size_t used = 0;
    do {
        TRY(inflater_member(&inflater, in, &used));
    } while (used < in->size && !only_zeros(in->data + used, in->size - used));
    source->owned = inflater.out;
    inflater.out = NULL;
    source->data = source->owned;
    source->size = inflater.size;
    file_map_done(&source->map);
    return OK;
}

Status source_init(Source *ret_source, const char *path, size_t gz_limit) {
    CLEANUP(source_done) Source source = {0};
    TRY(str_dup(path, &source.name));
    TRY(file_map_init(&source.map, path));
    source.data = source.map.data;
    source.size = source.map.size;
    if (path_is_gz(path) && source.size > 0) TRY(source_inflate(&source, gz_limit));
    struct stat st = {0};
    if (source.map.data && stat(path, &st) == 0) {
        source.device = st.st_dev;
        source.inode = st.st_ino;
    }
    if (source.size == 0) return FAILED("%s is empty; expected data", path);
    return MOVE(ret_source, source);
}

Status source_init_owned(Source *ret_source, const char *path, size_t limit) {
    CLEANUP(source_done) Source source = {0};
    if (path_is_gz(path)) {
        TRY(source_init(&source, path, limit));
    } else {
        char *text = NULL;
        TRY(str_dup(path, &source.name));
        TRY(file_read(path, limit, &text, &source.size));
        source.data = source.owned = (unsigned char *)text;
    }
    if (source.size == 0) return FAILED("%s is empty; expected data", path);
    TRY(signature_check_text(path, source.data, source.size, false));
    return MOVE(ret_source, source);
}

Status source_init_memory(Source *ret_source, const char *name, const void *data, size_t size) {
    Source source = {.data = data, .size = size};
    TRY(str_dup(name, &source.name));
    *ret_source = source;
    return OK;
}

void source_advise_random(const Source *source) {
    if (source->map.data) madvise((void *)(uintptr_t)source->map.data, source->map.size, MADV_RANDOM);
}

Status source_check(const Source *source) {
    struct stat st;
    if (!source->map.data || stat(source->name, &st) != 0) return OK;
    bool same = st.st_dev == source->device && st.st_ino == source->inode;
    if (same && (size_t)st.st_size < source->map.size)
        return FAILED("%s: was truncated to %lld bytes while in use; expected %zu", source->name,
                      (long long)st.st_size, source->map.size);
    return OK;
}

void source_done(Source *source) {
    file_map_done(&source->map);
    free(source->owned);
    free(source->name);
    *source = (Source){0};
}
