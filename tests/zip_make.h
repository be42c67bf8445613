/* Builds small zip archives in memory for tests. */
#ifndef WEFT_TESTS_ZIP_MAKE_H
#define WEFT_TESTS_ZIP_MAKE_H

#include <stdint.h>
#include <string.h>
#include <zlib.h>

typedef struct ZipMaker {
    unsigned char data[1 << 16], directory[4096]; /* local entries, and the central directory so far */
    size_t size, directory_size;
    unsigned count;
} ZipMaker;

/* Stores `value` as `bytes` little-endian bytes and returns the position after them. */
static inline unsigned char *zip_put(unsigned char *at, unsigned bytes, uint32_t value) {
    for (unsigned i = 0; i < bytes; i++) at[i] = (unsigned char)(value >> 8 * i);
    return at + bytes;
}

/* Adds a member, deflated or stored; at most 32 KiB. */
static inline void zip_make_add(ZipMaker *zip, const char *name, const void *data, size_t size,
                                int deflated) {
    unsigned char packed[1 << 15], *at = zip->data + zip->size;
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)data,
                  .avail_in = (uInt)size,
                  .next_out = packed,
                  .avail_out = sizeof packed};
    if (deflated) {
        deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
        deflate(&z, Z_FINISH);
        deflateEnd(&z);
    } else {
        memcpy(packed, data, size);
    }
    uint32_t packed_size = deflated ? (uint32_t)(sizeof packed - z.avail_out) : (uint32_t)size;
    uint32_t crc = (uint32_t)crc32(0, data, (uInt)size), length = (uint32_t)strlen(name);
    uint32_t offset = (uint32_t)zip->size;
    at = zip_put(zip_put(at, 4, 0x04034b50), 2, 20);
    at = zip_put(zip_put(zip_put(at, 2, 0), 2, deflated ? 8 : 0), 4, 0);
    at = zip_put(zip_put(zip_put(at, 4, crc), 4, packed_size), 4, (uint32_t)size);
    at = zip_put(zip_put(at, 2, length), 2, 0);
    memcpy(at, name, length);
    memcpy(at + length, packed, packed_size);
    zip->size += 30 + length + packed_size;
    at = zip->directory + zip->directory_size;
    at = zip_put(zip_put(zip_put(at, 4, 0x02014b50), 2, 20), 2, 20);
    at = zip_put(zip_put(zip_put(at, 2, 0), 2, deflated ? 8 : 0), 4, 0);
    at = zip_put(zip_put(zip_put(at, 4, crc), 4, packed_size), 4, (uint32_t)size);
    at = zip_put(zip_put(zip_put(at, 4, length), 4, 0), 4, 0);
    at = zip_put(zip_put(at, 2, 0), 4, offset);
    memcpy(at, name, length);
    zip->directory_size += 46 + length;
    zip->count++;
}

/* Appends the central directory and the end record; the archive is then data[0 .. size). */
static inline void zip_make_end(ZipMaker *zip) {
    uint32_t offset = (uint32_t)zip->size;
    memcpy(zip->data + zip->size, zip->directory, zip->directory_size);
    unsigned char *at = zip->data + zip->size + zip->directory_size;
    at = zip_put(zip_put(at, 4, 0x06054b50), 4, 0);
    at = zip_put(zip_put(at, 2, zip->count), 2, zip->count);
    at = zip_put(zip_put(zip_put(at, 4, (uint32_t)zip->directory_size), 4, offset), 2, 0);
    zip->size = (size_t)(at - zip->data);
}

#endif
