/* The embedded corpus: weft's own source and documentation, packed into the program at build time
 * (cmake/EmbedCorpus.cmake). Unless a file named "self" exists, the path "self" refers to it. */
#ifndef WEFT_DATA_CORPUS_H
#define WEFT_DATA_CORPUS_H

#include "data/source.h"

bool corpus_is_named(const char *path);
int corpus_count(void); /* number of files */
MUST_USE Status corpus_source(Source *ret_source, int index);

#endif
