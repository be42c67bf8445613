/* A directory for readers of files, with the parts of an input as files. */
#ifndef WEFT_TESTS_FUZZ_DIR_H
#define WEFT_TESTS_FUZZ_DIR_H

#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "fuzz.h"

static char fuzz_dir[64];

static inline void fuzz_dir_remove(void) {
    status_free(dir_remove(fuzz_dir));
}

/* The directory, in memory if possible, since every input rewrites its files. */
static inline const char *fuzz_dir_path(void) {
    if (fuzz_dir[0]) return fuzz_dir;
    strcpy(fuzz_dir, "/dev/shm/weft-fuzz-XXXXXX");
    if (!mkdtemp(fuzz_dir)) {
        strcpy(fuzz_dir, "/tmp/weft-fuzz-XXXXXX");
        fuzz_require(mkdtemp(fuzz_dir));
    }
    atexit(fuzz_dir_remove);
    return fuzz_dir;
}

/* A file in it. */
static inline char *fuzz_file(void) {
    static char path[80];
    snprintf(path, sizeof path, "%s/input", fuzz_dir_path());
    return path;
}

/* Writes the parts of an input, which NULs separate, to these files; a file without a part, or with an empty
 * one, does not exist. */
static inline void fuzz_dir_fill(const char *const *names, int count, const uint8_t *data, size_t size) {
    for (int i = 0; i < count; i++) {
        char path[128];
        const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
        size_t part = nul && i + 1 < count ? (size_t)(nul - data) : size;
        snprintf(path, sizeof path, "%s/%s", fuzz_dir_path(), names[i]);
        unlink(path);
        if (part) {
            FILE *file = fopen(path, "wb");
            fuzz_require(file && fwrite(data, 1, part, file) == part);
            fclose(file);
        }
        size_t used = part < size ? part + 1 : part;
        data += used;
        size -= used;
    }
}

#endif
