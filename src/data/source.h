/* The bytes of one input file, however they are kept: a plain file is mapped and costs no memory of
 * its own, a .gz file is decompressed into memory, and a part of the corpus inside the program is
 * pointed at. */
#ifndef WEFT_DATA_SOURCE_H
#define WEFT_DATA_SOURCE_H

#include <sys/types.h>

#include "base/fs.h"

typedef struct Source {
    char *name; /* for messages */
    const unsigned char *data;
    size_t size;
    FileMap map;  /* plain files */
    dev_t device; /* ... and which file that is */
    ino_t inode;
    unsigned char *owned; /* .gz files */
} Source;

/* Decompressed bytes that one .gz file may have. */
#define SOURCE_GZ_LIMIT ((size_t)4 << 30)

/* An empty file is an error. */
MUST_USE Status source_init(Source *ret_source, const char *path, size_t gz_limit);
/* The same in memory of its own, for files that are taken apart once: what happens to the file then does not
 * matter. */
MUST_USE Status source_init_owned(Source *ret_source, const char *path, size_t limit);
/* Borrows `data`. */
MUST_USE Status source_init_memory(Source *ret_source, const char *name, const void *data, size_t size);
void source_done(Source *source);
/* Small pieces will be read from all over: reading ahead would be waste. */
void source_expect_jumps(const Source *source);
/* Fails when the mapped file has been made shorter since: to read on would end the process. */
MUST_USE Status source_check(const Source *source);

/* Does `path` end in `suffix`, a .gz after it aside? */
bool path_has_suffix(const char *path, const char *suffix);

#endif
