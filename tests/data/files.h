/* Fixture of the data tests: a temporary directory per test program, files in it, and a default DataSpec. */
#ifndef WEFT_TESTS_DATA_FILES_H
#define WEFT_TESTS_DATA_FILES_H

#include <unistd.h>
#include <zlib.h>

#include "base/fs.h"
#include "base/memory.h"
#include "data/data.h"
#include "test.h"

typedef struct Files {
    char dir[64];
    const char *list[8];
    char *owned[8];
    int count;
} Files;

static inline int files_setup(void **state) {
    Files *files = calloc(1, sizeof *files);
    if (!files) return -1;
    snprintf(files->dir, sizeof files->dir, "/tmp/weft-data-XXXXXX");
    *state = files;
    return mkdtemp(files->dir) ? 0 : -1;
}

static inline int files_teardown(void **state) {
    Files *files = *state;
    Status status = dir_remove(files->dir);
    bool removed = !status;
    status_free(status);
    for (int i = 0; i < 8; i++) free(files->owned[i]);
    free(files);
    return removed ? 0 : -1;
}

/* Adds the path of a file in the directory to the list; the file is not created. */
static inline const char *files_name(Files *files, const char *name) {
    assert_true(files->count < 8);
    char **path = &files->owned[files->count];
    free(*path);
    assert_ok(path_join(path, files->dir, name));
    files->list[files->count++] = *path;
    return *path;
}

static inline void files_write(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Adds a file to the list and writes it. */
static inline const char *files_add(Files *files, const char *name, const void *data, size_t size) {
    const char *path = files_name(files, name);
    files_write(path, data, size);
    return path;
}

static inline const char *files_add_text(Files *files, const char *name, const char *text) {
    return files_add(files, name, text, strlen(text));
}

static inline const char *files_add_gz(Files *files, const char *name, const void *data, size_t size) {
    const char *path = files_name(files, name);
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, data, (unsigned)size), size);
    assert_int_equal(gzclose(file), Z_OK);
    return path;
}

/* All files in the list, for the LM task. */
static inline DataSpec files_spec(const Files *files, int64_t T) {
    return (DataSpec){.paths = files->list,
                      .path_count = files->count,
                      .seq = T,
                      .vocab = BYTE_VOCAB_BERT,
                      .types = 2,
                      .labels = 3,
                      .special = {BYTE_PAD, BYTE_CLS, BYTE_SEP, BYTE_MASK, BYTE_UNK, -1},
                      .mask_rate = 0.15,
                      .seed = 7};
}

static inline void assert_tokens(const int32_t *found, const int32_t *expected, int count) {
    for (int i = 0; i < count; i++) assert_int_equal(found[i], expected[i]);
}

#endif
