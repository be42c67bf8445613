/* Text that a run takes as it is, prepared once.
 *
 * The shards of a list of files lie in a directory named after what they depend on: the tokenizer's
 * fingerprint, how the files are read, and each file's path, size, time of change and inode. So a changed
 * file, or another tokenizer, means another directory, and a second run finds the first one's.
 */
#ifndef WEFT_DATA_CACHE_H
#define WEFT_DATA_CACHE_H

#include "data/prepare.h"

/* Where prepared data is kept: user_cache() of base/fs.h. */
MUST_USE Status cache_root(char **ret_root);

/* The directory below `root` that holds the shards of spec->paths, made when it is not there yet; of two
 * processes that want the same one, the second waits for the first. `log` gets lines about making it;
 * *ret_made tells whether it was. */
MUST_USE Status cache_prepare(const PrepareSpec *spec, const char *root, Progress *log, char **ret_dir,
                              bool *ret_made);

/* What preparing found to say about the text, in a line each; later runs hear it, too. */
MUST_USE Status cache_tell_notes(const char *dir, Progress *log);

#endif
