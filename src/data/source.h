/* The contents of one input file: a plain file is memory-mapped, a .gz file is decompressed into memory, and
 * a file of the embedded corpus is used in place. */
#ifndef WEFT_DATA_SOURCE_H
#define WEFT_DATA_SOURCE_H

#include <sys/types.h>

#include "base/fs.h"

typedef struct Source {
    char *name; /* for messages */
    const unsigned char *data;
    size_t size;
    FileMap map;  /* plain files only */
    dev_t device; /* identify the mapped file, for source_check */
    ino_t inode;
    unsigned char *owned; /* .gz files and source_init_owned */
    bool lines;           /* JSON lines, whatever the file's name is: made of its rows */
} Source;

/* Maximum decompressed size of a .gz file, in bytes. */
#define SOURCE_GZ_LIMIT ((size_t)4 << 30)

/* Maps the file, or decompresses it up to gz_limit bytes. An empty file is an error. */
MUST_USE Status source_init(Source *ret_source, const char *path, size_t gz_limit);
/* Like source_init, but reads plain files into memory as well, up to `limit` bytes. For text that is parsed
 * once: later changes to the file do not matter, and a file of another kind is an error. */
MUST_USE Status source_init_owned(Source *ret_source, const char *path, size_t limit);
/* Borrows `data`, which must outlive the source. */
MUST_USE Status source_init_memory(Source *ret_source, const char *name, const void *data, size_t size);
void source_done(Source *source);
/* Advises the kernel to expect random access in small chunks, for which read-ahead would be wasted. */
void source_advise_random(const Source *source);
/* Fails if the mapped file has been truncated since it was opened; accessing it would raise SIGBUS. */
MUST_USE Status source_check(const Source *source);

/* Like source_init_owned; the rows of a JSON array or a Parquet table (data/rows.h) become JSON lines. Of a
 * table, only columns among the names (NULL-terminated) are read; NULL: all. */
MUST_USE Status source_init_rows(Source *ret_source, const char *path, size_t limit,
                                 const char *const *names);

/* Like source_init_owned; the rows of any table become JSON lines, while JSON stays as it is. */
MUST_USE Status source_init_objects(Source *ret_source, const char *path, size_t limit);

/* Whether `path` ends in .gz. */
bool path_is_gz(const char *path);
/* Whether `path` ends in `suffix`, ignoring case and a final .gz. */
bool path_has_suffix(const char *path, const char *suffix);
/* Whether `path` ends in .csv or .tsv. */
bool path_is_separated(const char *path);

#endif
