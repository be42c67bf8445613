/* The embedded corpus: weft's own source and documentation, packed into the program at build time
 * (cmake/EmbedCorpus.cmake). Unless a file named "self" exists, the path "self" refers to it. */
#ifndef WEFT_DATA_CORPUS_H
#define WEFT_DATA_CORPUS_H

#include "data/source.h"

bool corpus_is_named(const char *path);
/* Files follow each other; a place is 0 at first and moves to the next file with each. */
bool corpus_ends(size_t place);
MUST_USE Status corpus_next(Source *ret_source, size_t *place);

#endif
