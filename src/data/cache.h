/* Cache of token files for text that is passed directly to a run.
 *
 * Each list of input files has a directory whose name is a hash of everything the token files depend on: the
 * tokenizer's fingerprint, how the files are split into documents, and each file's path, size, modification
 * time and inode. A changed file or another tokenizer therefore selects another directory, and a second run
 * reuses the first one's.
 */
#ifndef WEFT_DATA_CACHE_H
#define WEFT_DATA_CACHE_H

#include "data/prepare.h"

/* Directory that contains the cache: user_cache() of base/fs.h. The caller frees it. */
MUST_USE Status cache_root(char **ret_root);

/* Returns the directory below `root` with the token files of spec->paths, creating it if necessary; *ret_made
 * tells whether it was created. If two processes need the same directory, the second waits for the first.
 * `log` receives progress messages; with `reused`, they say that later runs need not prepare again. */
MUST_USE Status cache_prepare(const PrepareSpec *spec, const char *root, bool reused, Progress *log,
                              char **ret_dir, bool *ret_made);

/* Repeats the warnings of the preparation, one line each, so that later runs show them too. */
MUST_USE Status cache_tell_notes(const char *dir, Progress *log);

#endif
