/* Safetensors files as inputs: the header, a NUL and the data, without the length of the header, so that
 * mutations get past it. */
#ifndef WEFT_TESTS_FUZZ_HEADER_H
#define WEFT_TESTS_FUZZ_HEADER_H

#include "dir.h"

enum { LENGTH_BYTES = 8 };

/* Writes an input as a file of fuzz_dir_path(). */
static inline void put_header_file(const char *name, const uint8_t *data, size_t size) {
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t header = nul ? (size_t)(nul - data) : size, rest = nul ? size - header - 1 : 0;
    uint8_t length[LENGTH_BYTES];
    char path[128];
    for (int i = 0; i < LENGTH_BYTES; i++) length[i] = (uint8_t)(header >> (8 * i));
    snprintf(path, sizeof path, "%s/%s", fuzz_dir_path(), name);
    FILE *file = fopen(path, "wb");
    fuzz_require(file && fwrite(length, 1, sizeof length, file) == sizeof length);
    fuzz_require(!header || fwrite(data, 1, header, file) == header);
    fuzz_require(!rest || fwrite(nul + 1, 1, rest, file) == rest);
    fclose(file);
}

/* Reads a file as an input of up to `limit` bytes; returns its size. */
static inline size_t read_header_file(const char *path, uint8_t *out, size_t limit) {
    CLEANUP(file_map_done) FileMap map = {0};
    fuzz_require(fuzz_succeeded(file_map_init(&map, path)));
    const uint8_t *data = map.data;
    size_t header = 0;
    for (int i = 0; i < LENGTH_BYTES; i++) header |= (size_t)data[i] << (8 * i);
    fuzz_require(map.size + 1 - LENGTH_BYTES <= limit && LENGTH_BYTES + header <= map.size);
    memcpy(out, data + LENGTH_BYTES, header);
    out[header] = 0;
    memcpy(out + header + 1, data + LENGTH_BYTES + header, map.size - LENGTH_BYTES - header);
    return map.size - LENGTH_BYTES + 1;
}

#endif
