/* libzstd, loaded on first use: the program builds without its headers, and without the library only files
 * that need it fail. */
#ifndef WEFT_DATA_ZSTD_H
#define WEFT_DATA_ZSTD_H

#include "base/status.h"

/* The library functions in use, under their own names; {0}: not loaded yet. */
typedef struct Zstd {
    size_t (*decompress)(void *to, size_t capacity, const void *from, size_t size);
    unsigned (*is_error)(size_t code);
} Zstd;

/* Loads the library, which stays loaded until the program exits. `path` is the file that needs it. */
MUST_USE Status zstd_load(Zstd *zstd, const char *path);
/* Fills `to` exactly; false if the data is damaged or has another size. */
bool zstd_decompress(const Zstd *zstd, void *to, size_t size, const void *from, size_t from_size);

#endif
