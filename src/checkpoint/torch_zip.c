/* The directory of a zip archive, of any size (ZIP64), whose members all lie in one folder and are stored. */
#include <string.h>

#include "base/memory.h"
#include "checkpoint/torch_read.h"

enum { END_BYTES = 22, END64_BYTES = 56, LOCATOR_BYTES = 20, ENTRY_BYTES = 46, LOCAL_BYTES = 30 };
enum { MOST_COMMENT = 65535, EXTRA_ZIP64 = 1 };

typedef struct Archive {
    const char *path;
    const unsigned char *data;
    size_t size;
} Archive;

static Status damaged(const Archive *archive, const char *what) {
    return DAMAGED("%s: not a valid zip archive: %s", archive->path, what);
}

static uint64_t number(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* Whether `bytes` bytes at an offset exist and begin with a signature. */
static bool is_at(const Archive *archive, uint64_t at, size_t bytes, const char *signature) {
    return at <= archive->size && bytes <= archive->size - at && !memcmp(archive->data + at, signature, 4);
}

/* The place of the directory and its number of entries. */
static Status find_directory(const Archive *archive, uint64_t *ret_at, uint64_t *ret_entries) {
    size_t least = archive->size > END_BYTES + MOST_COMMENT ? archive->size - END_BYTES - MOST_COMMENT : 0;
    if (archive->size < END_BYTES) return damaged(archive, "it is too short");
    size_t at = archive->size - END_BYTES;
    while (at > least && !is_at(archive, at, END_BYTES, "PK\5\6")) at--;
    if (!is_at(archive, at, END_BYTES, "PK\5\6"))
        return damaged(archive, "it has no directory; is it complete?");
    *ret_entries = number(archive->data + at + 10, 2);
    *ret_at = number(archive->data + at + 16, 4);
    if (at < LOCATOR_BYTES || !is_at(archive, at - LOCATOR_BYTES, LOCATOR_BYTES, "PK\6\7")) return OK;
    uint64_t end64 = number(archive->data + at - LOCATOR_BYTES + 8, 8);
    if (!is_at(archive, end64, END64_BYTES, "PK\6\6")) return damaged(archive, "its directory is damaged");
    *ret_entries = number(archive->data + end64 + 32, 8);
    *ret_at = number(archive->data + end64 + 48, 8);
    return OK;
}

/* The 64-bit fields of an entry whose usual fields are all ones. */
static void read_zip64(const unsigned char *extra, size_t size, uint64_t *full, uint64_t *stored,
                       uint64_t *at) {
    for (size_t i = 0; i + 4 <= size;) {
        size_t bytes = (size_t)number(extra + i + 2, 2), used = 0;
        uint64_t *field[] = {full, stored, at};
        if (bytes > size - i - 4) return;
        for (int k = 0; k < 3 && number(extra + i, 2) == EXTRA_ZIP64; k++) {
            if (*field[k] != UINT32_MAX || used + 8 > bytes) continue;
            *field[k] = number(extra + i + 4 + used, 8);
            used += 8;
        }
        i += 4 + bytes;
    }
}

static Status read_entry(const Archive *archive, uint64_t *at, TorchZip *zip) {
    if (!is_at(archive, *at, ENTRY_BYTES, "PK\1\2")) return damaged(archive, "its directory is damaged");
    const unsigned char *entry = archive->data + *at;
    uint64_t stored = number(entry + 20, 4), full = number(entry + 24, 4), local = number(entry + 42, 4);
    size_t name = (size_t)number(entry + 28, 2), extra = (size_t)number(entry + 30, 2);
    size_t comment = (size_t)number(entry + 32, 2), left = archive->size - (size_t)*at - ENTRY_BYTES;
    if (name > left || extra > left - name || comment > left - name - extra)
        return damaged(archive, "its directory is damaged");
    read_zip64(entry + ENTRY_BYTES + name, extra, &full, &stored, &local);
    TorchMember member = {.name = (const char *)entry + ENTRY_BYTES, .name_size = name};
    bool compressed = number(entry + 10, 2) != 0 || number(entry + 8, 2) & 1 || full != stored;
    if (!compressed) {
        if (!is_at(archive, local, LOCAL_BYTES, "PK\3\4")) return damaged(archive, "a member is not there");
        const unsigned char *head = archive->data + local;
        uint64_t begin = local + LOCAL_BYTES + number(head + 26, 2) + number(head + 28, 2);
        if (begin > archive->size || full > archive->size - begin)
            return damaged(archive, "a member is outside of it; is it complete?");
        member.data = archive->data + begin;
        member.size = (size_t)full;
    }
    TRY(mem_grow(&zip->member, &zip->capacity, zip->count + 1, sizeof *zip->member));
    zip->member[zip->count++] = member;
    *at += ENTRY_BYTES + name + extra + comment;
    return OK;
}

/* The name after the folder. */
static void base_of(const TorchMember *member, const char **ret_name, size_t *ret_size) {
    const char *slash = memchr(member->name, '/', member->name_size);
    *ret_name = slash ? slash + 1 : member->name;
    *ret_size = member->name_size - (size_t)(*ret_name - member->name);
}

static int compare(const char *a, size_t a_size, const char *b, size_t b_size) {
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order ? order : a_size < b_size ? -1 : a_size > b_size;
}

static int by_name(const void *a, const void *b) {
    const char *x, *y;
    size_t x_size, y_size;
    base_of(a, &x, &x_size);
    base_of(b, &y, &y_size);
    return compare(x, x_size, y, y_size);
}

Status torch_zip_open(TorchZip *ret_zip, const char *path, const unsigned char *data, size_t size) {
    Archive archive = {path, data, size};
    CLEANUP(torch_zip_done) TorchZip zip = {0};
    uint64_t at = 0, entries = 0;
    TRY(find_directory(&archive, &at, &entries));
    for (uint64_t i = 0; i < entries; i++) TRY(read_entry(&archive, &at, &zip));
    if (zip.count) qsort(zip.member, zip.count, sizeof *zip.member, by_name);
    return MOVE(ret_zip, zip);
}

void torch_zip_done(TorchZip *zip) {
    free(zip->member);
    *zip = (TorchZip){0};
}

const TorchMember *torch_zip_find(const TorchZip *zip, const char *name, size_t size) {
    size_t low = 0, high = zip->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2, found_size;
        const char *found;
        base_of(&zip->member[middle], &found, &found_size);
        int order = compare(found, found_size, name, size);
        if (order == 0) return &zip->member[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}
