#include "data/zstd.h"

#include <dlfcn.h>
#include <string.h>

/* POSIX guarantees that pointers to functions have the representation of others. */
static bool find(void *library, const char *name, void *ret_function) {
    void *symbol = dlsym(library, name);
    if (symbol) memcpy(ret_function, &symbol, sizeof symbol);
    return symbol;
}

Status zstd_load(Zstd *zstd, const char *path) {
    Zstd loaded;
    if (zstd->decompress) return OK;
    void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return FAILED(
            "%s is compressed with zstd, which needs libzstd (Debian, Ubuntu: apt install libzstd1)", path);
    if (!find(library, "ZSTD_decompress", &loaded.decompress) ||
        !find(library, "ZSTD_isError", &loaded.is_error))
        return FAILED("%s: libzstd lacks a function; install version 1.0 or later", path);
    *zstd = loaded;
    return OK;
}

bool zstd_decompress(const Zstd *zstd, void *to, size_t size, const void *from, size_t from_size) {
    size_t got = zstd->decompress(to, size, from, from_size);
    return !zstd->is_error(got) && got == size;
}
