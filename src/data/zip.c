/* Zip archive reader.
 *
 * The central directory at the end of the file lists the members. It is located through the end record, which
 * may be followed by a comment. A member's local header is used only to find its data; sizes, method and
 * checksum come from the central directory. Every offset and size is checked against the file size before
 * use.
 */
#include "data/zip.h"

#include <string.h>
#include <zlib.h>

#include "base/fs.h"
#include "base/memory.h"

enum {
    END_SIZE = 22,
    ENTRY_SIZE = 46,
    LOCAL_SIZE = 30,
    COMMENT_LIMIT = 65535,
    STORED = 0,
    DEFLATED = 8,
    FLAG_ENCRYPTED = 1,
};
#define END_MARK   0x06054b50u
#define ENTRY_MARK 0x02014b50u
#define LOCAL_MARK 0x04034b50u

typedef struct Member {
    char *name;
    uint32_t crc, packed, size, offset;
    unsigned method, flags;
} Member;

struct Zip {
    char *path;
    FileMap map;
    Member *members;
    size_t count;
};

static unsigned get16(const unsigned char *at) {
    return at[0] | (unsigned)at[1] << 8;
}

static uint32_t get32(const unsigned char *at) {
    return get16(at) | (uint32_t)get16(at + 2) << 16;
}

void zip_free(Zip *zip) {
    if (!zip) return;
    for (size_t i = 0; i < zip->count; i++) free(zip->members[i].name);
    free(zip->members);
    file_map_done(&zip->map);
    free(zip->path);
    free(zip);
}

size_t zip_count(const Zip *zip) {
    return zip->count;
}

const char *zip_name(const Zip *zip, size_t member) {
    return member < zip->count ? zip->members[member].name : NULL;
}

int64_t zip_size(const Zip *zip, size_t member) {
    return zip->members[member].size;
}

/* Finds the end record. */
static Status find_end(const Zip *zip, size_t *ret_at) {
    const FileMap *map = &zip->map;
    for (size_t back = END_SIZE; back <= map->size && back <= END_SIZE + COMMENT_LIMIT; back++) {
        const unsigned char *at = map->data + (map->size - back);
        if (get32(at) != END_MARK || get16(at + 20) != back - END_SIZE) continue;
        *ret_at = map->size - back;
        return OK;
    }
    return FAILED("%s: not a zip archive, or its end is missing", zip->path);
}

/* Reads the directory entry at *at and advances *at; the directory ends at `end`. Entries for directories are
 * skipped. */
static Status read_entry(Zip *zip, size_t *at, size_t end) {
    const unsigned char *entry = zip->map.data + *at;
    if (end - *at < ENTRY_SIZE || get32(entry) != ENTRY_MARK)
        return FAILED("%s: the archive's directory is damaged at byte %zu", zip->path, *at);
    size_t name_size = get16(entry + 28);
    size_t size = ENTRY_SIZE + name_size + get16(entry + 30) + get16(entry + 32);
    if (end - *at < size) return FAILED("%s: the archive's directory is damaged at byte %zu", zip->path, *at);
    const char *name = (const char *)entry + ENTRY_SIZE;
    *at += size;
    if (name_size && name[name_size - 1] == '/') return OK;
    Member *member = &zip->members[zip->count];
    *member = (Member){.flags = get16(entry + 8),
                       .method = get16(entry + 10),
                       .crc = get32(entry + 16),
                       .packed = get32(entry + 20),
                       .size = get32(entry + 24),
                       .offset = get32(entry + 42)};
    TRY(mem_new(name_size + 1, 1, &member->name));
    memcpy(member->name, name, name_size);
    zip->count++;
    return OK;
}

static Status read_directory(Zip *zip) {
    size_t at_end = 0;
    TRY(find_end(zip, &at_end));
    const unsigned char *record = zip->map.data + at_end;
    size_t count = get16(record + 10), size = get32(record + 12), at = get32(record + 16);
    if (count == 0xffff || size == 0xffffffffu || at == 0xffffffffu)
        return FAILED("%s: archives of more than 4 GiB or 65534 members are not supported", zip->path);
    if (get16(record + 4) != 0 || get16(record + 8) != count)
        return FAILED("%s: archives split into several files are not supported", zip->path);
    if (at > at_end || size > at_end - at)
        return FAILED("%s: the archive's directory is outside of the file", zip->path);
    TRY(mem_new(count + 1, sizeof *zip->members, &zip->members));
    for (size_t i = 0, end = at + size; i < count; i++) TRY(read_entry(zip, &at, end));
    return OK;
}

Status zip_open(Zip **ret_zip, const char *path) {
    CLEANUP(zip_freep) Zip *zip = NULL;
    TRY(mem_new(1, sizeof *zip, &zip));
    TRY(str_dup(path, &zip->path));
    TRY(file_map_init(&zip->map, path));
    TRY(read_directory(zip));
    return MOVE(ret_zip, zip);
}

Status zip_find(const Zip *zip, const char *name, size_t *ret_member) {
    size_t found = zip->count;
    for (size_t i = 0; i < zip->count; i++) {
        const char *slash = strrchr(zip->members[i].name, '/');
        if (strcmp(slash ? slash + 1 : zip->members[i].name, name) != 0) continue;
        if (found < zip->count) return FAILED("%s: contains '%s' more than once", zip->path, name);
        found = i;
    }
    if (found == zip->count) return FAILED("%s: does not contain '%s'", zip->path, name);
    *ret_member = found;
    return OK;
}

/* Finds the member's compressed data in the file. */
static Status locate(const Zip *zip, const Member *member, const unsigned char **ret_data) {
    if (member->flags & FLAG_ENCRYPTED) return FAILED("%s: '%s' is encrypted", zip->path, member->name);
    if (member->method != STORED && member->method != DEFLATED)
        return FAILED("%s: '%s' uses compression method %u; only stored and deflated members are supported",
                      zip->path, member->name, member->method);
    size_t at = member->offset, size = zip->map.size;
    if (at > size || size - at < LOCAL_SIZE || get32(zip->map.data + at) != LOCAL_MARK)
        return FAILED("%s: '%s' is not where the archive's directory points", zip->path, member->name);
    size_t head = LOCAL_SIZE + get16(zip->map.data + at + 26) + get16(zip->map.data + at + 28);
    if (size - at < head || size - at - head < member->packed)
        return FAILED("%s: '%s' extends past the end of the file", zip->path, member->name);
    *ret_data = zip->map.data + at + head;
    return OK;
}

/* Progress of unpacking one member. */
typedef struct Unpacked {
    const Zip *zip;
    const Member *member;
    uint64_t size;
    uint32_t crc;
    ZipSink sink;
    void *user;
} Unpacked;

static Status emit(Unpacked *out, const unsigned char *data, size_t size) {
    if (size > out->member->size - out->size)
        return FAILED("%s: '%s' is longer than the archive's directory states", out->zip->path,
                      out->member->name);
    out->size += size;
    out->crc = (uint32_t)crc32(out->crc, data, (uInt)size);
    return out->sink(out->user, data, size);
}

static void inflate_done(z_stream *z) {
    inflateEnd(z);
}

static Status unpack_deflated(Unpacked *out, const unsigned char *data) {
    unsigned char buffer[1 << 15];
    CLEANUP(inflate_done)
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)data, .avail_in = out->member->packed};
    if (inflateInit2(&z, -15) != Z_OK) return FAILED("out of memory while unpacking %s", out->zip->path);
    for (int code = Z_OK; code != Z_STREAM_END;) {
        z.next_out = buffer;
        z.avail_out = sizeof buffer;
        code = inflate(&z, Z_NO_FLUSH);
        if (code != Z_OK && code != Z_STREAM_END)
            return FAILED("%s: '%s' is damaged", out->zip->path, out->member->name);
        TRY(emit(out, buffer, sizeof buffer - z.avail_out));
    }
    if (z.avail_in) return FAILED("%s: '%s' is damaged", out->zip->path, out->member->name);
    return OK;
}

static Status unpack_stored(Unpacked *out, const unsigned char *data) {
    enum { CHUNK = 1 << 16 };
    for (size_t at = 0; at < out->member->packed; at += CHUNK) {
        size_t left = out->member->packed - at;
        TRY(emit(out, data + at, left < CHUNK ? left : CHUNK));
    }
    return OK;
}

Status zip_unpack(const Zip *zip, size_t member, ZipSink sink, void *user) {
    const unsigned char *data = NULL;
    Unpacked out = {.zip = zip, .member = &zip->members[member], .sink = sink, .user = user};
    TRY(locate(zip, out.member, &data));
    TRY(out.member->method == STORED ? unpack_stored(&out, data) : unpack_deflated(&out, data));
    if (out.size != out.member->size)
        return FAILED("%s: '%s' is %llu bytes, but the archive's directory states %llu", zip->path,
                      out.member->name, (unsigned long long)out.size, (unsigned long long)out.member->size);
    if (out.crc != out.member->crc)
        return FAILED("%s: '%s' is damaged (checksum mismatch)", zip->path, out.member->name);
    return OK;
}
