/* Files: whole reads, read-only maps, and writes that are either whole or absent. */
#ifndef WEFT_BASE_FS_H
#define WEFT_BASE_FS_H

#include <stdint.h>

#include "base/status.h"

/* A read-only map of a whole file. */
typedef struct FileMap {
    const unsigned char *data; /* NULL when size is 0 */
    size_t size;
} FileMap;

MUST_USE Status file_map_init(FileMap *ret_map, const char *path);
void file_map_done(FileMap *map);

/* The whole file, with a NUL after it. Refuses files larger than `limit` bytes. */
MUST_USE Status file_read(const char *path, size_t limit, char **ret_text, size_t *ret_size);

bool path_exists(const char *path);
bool path_is_dir(const char *path);
MUST_USE Status path_join(char **ret_path, const char *dir, const char *name);
/* Where this user's files that can be made again belong: $WEFT_CACHE, else $XDG_CACHE_HOME/weft, else
 * ~/.cache/weft; NULL where none of these is set. It need not be there. */
MUST_USE Status user_cache(char **ret_dir);
MUST_USE Status dir_make(const char *path); /* with its parents; fine when it is there */
MUST_USE Status dir_sync(const char *path);
/* Removes a directory and all below it; fine when it is absent. */
MUST_USE Status dir_remove(const char *path);

/* A file written beside its place and moved there by file_commit, after fsync; the directory is
 * fsynced last. file_writer_free without a commit removes what was written. */
typedef struct FileWriter FileWriter;

MUST_USE Status file_writer_new(FileWriter **ret_writer, const char *path);
MUST_USE Status file_write(FileWriter *writer, const void *data, size_t size);
/* Writes over bytes that have been written already: a header whose contents are known last. */
MUST_USE Status file_write_at(FileWriter *writer, size_t at, const void *data, size_t size);
MUST_USE Status file_print(FileWriter *writer, const char *fmt, ...) PRINTF_LIKE(2, 3);
MUST_USE Status file_commit(FileWriter *writer);
void file_writer_free(FileWriter *writer);
DEFINE_FREEP(FileWriter, file_writer)

/* Write a whole small file through a FileWriter. */
MUST_USE Status file_replace(const char *path, const void *data, size_t size);
/* Point the symbolic link `path` at `target`, atomically. */
MUST_USE Status link_replace(const char *path, const char *target);

#endif
