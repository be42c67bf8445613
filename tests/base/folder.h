/* Test fixture: a temporary folder per test, removed by the teardown. */
#ifndef WEFT_TESTS_BASE_FOLDER_H
#define WEFT_TESTS_BASE_FOLDER_H

#include <dirent.h>
#include <unistd.h>

#include "base/fs.h"
#include "test.h"

enum { FOLDER_PATHS = 32 };

typedef struct Folder {
    char dir[64];
    char *path[FOLDER_PATHS];
    int paths;
} Folder;

static inline int folder_setup(void **state) {
    Folder *folder = calloc(1, sizeof *folder);
    snprintf(folder->dir, sizeof folder->dir, "/tmp/weft-base-XXXXXX");
    *state = folder;
    return mkdtemp(folder->dir) ? 0 : -1;
}

static inline int folder_teardown(void **state) {
    Folder *folder = *state;
    assert_ok(dir_remove(folder->dir));
    for (int i = 0; i < folder->paths; i++) free(folder->path[i]);
    free(folder);
    return 0;
}

/* Joins the folder's path and `name`. The fixture owns the result. */
static inline const char *folder_path(Folder *folder, const char *name) {
    assert_true(folder->paths < FOLDER_PATHS);
    assert_ok(path_join(&folder->path[folder->paths], folder->dir, name));
    return folder->path[folder->paths++];
}

static inline void assert_content(const char *path, const char *text) {
    char *found = NULL;
    assert_ok(file_read(path, 1 << 20, &found, NULL));
    assert_string_equal(found, text);
    free(found);
}

/* Asserts that `dir` has exactly `count` entries, not counting hidden ones. */
static inline void assert_entries(const char *dir, int count) {
    DIR *stream = opendir(dir);
    assert_non_null(stream);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(stream));) found += entry->d_name[0] != '.';
    closedir(stream);
    assert_int_equal(found, count);
}

#endif
