/* Files: reading, mapping, and atomic replacement. */
#ifndef WEFT_BASE_FS_H
#define WEFT_BASE_FS_H

#include <dirent.h>
#include <stdint.h>

#include "base/status.h"

/* A file mapped read-only. */
typedef struct FileMap {
    const unsigned char *data; /* NULL when size is 0 */
    size_t size;
} FileMap;

MUST_USE Status file_map_init(FileMap *ret_map, const char *path);
void file_map_done(FileMap *map);

/* Reads the file and appends a NUL. Fails if it is larger than `limit` bytes. The caller frees *ret_text. */
MUST_USE Status file_read(const char *path, size_t limit, char **ret_text, size_t *ret_size);

bool path_exists(const char *path);
bool path_is_dir(const char *path);
bool path_is_special(const char *path);  /* a device, FIFO or socket */
bool dir_is_empty(const char *path);     /* false if it cannot be read */
const char *path_base(const char *path); /* what follows the last slash */
/* Whether a path has this ending, and something before it. */
bool path_ends_with(const char *path, const char *ending);
MUST_USE Status path_join(char **ret_path, const char *dir, const char *name);
/* The user's cache directory: $WEFT_CACHE, else $XDG_CACHE_HOME/weft, else ~/.cache/weft. *ret_dir is NULL if
 * no variable names one. The directory may not exist yet. */
MUST_USE Status user_cache(char **ret_dir);
MUST_USE Status dir_make(const char *path); /* like mkdir -p */
/* A new directory in TMPDIR or /tmp. If this process ends without removing it, it is removed then. */
MUST_USE Status dir_make_temporary(char **ret_dir);
MUST_USE Status dir_sync(const char *path);
/* Like rm -rf: an absent directory is not an error. */
MUST_USE Status dir_remove(const char *path);

/* Files and directories are written as "PATH.tmp.PID" and renamed. Removes what killed processes have left:
 * it is this user's, no process of this host has that id, and none on any host holds it. */
MUST_USE Status path_clear_leftovers(const char *path);
/* Holds a temporary directory; close the descriptor to release it. -1: the file system has no locks. */
int path_hold(const char *path);

/* For CLEANUP; negative descriptors and NULL are not open. */
void fd_closep(int *fd);
void dir_closep(DIR **dir);

/* Replaces a file atomically: writes a temporary file next to it; file_commit fsyncs it, renames it and
 * fsyncs the directory. file_writer_free without a commit removes the temporary file. A symbolic link stays,
 * and the file that it leads to is replaced. Devices and FIFOs cannot be replaced: they receive the data as
 * it is written. */
typedef struct FileWriter FileWriter;

MUST_USE Status file_writer_new(FileWriter **ret_writer, const char *path);
MUST_USE Status file_write(FileWriter *writer, const void *data, size_t size);
/* Overwrites bytes written earlier, for a header whose contents are known last. */
MUST_USE Status file_write_at(FileWriter *writer, size_t at, const void *data, size_t size);
MUST_USE Status file_print(FileWriter *writer, const char *fmt, ...) PRINTF_LIKE(2, 3);
MUST_USE Status file_commit(FileWriter *writer);
void file_writer_free(FileWriter *writer);
DEFINE_FREEP(FileWriter, file_writer)

/* Replaces a small file through a FileWriter. */
MUST_USE Status file_replace(const char *path, const void *data, size_t size);
/* Copies those of the named files (NULL-terminated) that exist in `from` to the directory `to`, creating it
 * if necessary. */
MUST_USE Status dir_copy_files(const char *to, const char *from, const char *const *names);
/* Points the symbolic link `path` at `target`, atomically. */
MUST_USE Status link_replace(const char *path, const char *target);

#endif
