/* The corpus that weft has by nature: its own source and documents, packed into the program when it
 * is built (cmake/EmbedCorpus.cmake). The path "self" names it where no such file exists. */
#ifndef WEFT_DATA_CORPUS_H
#define WEFT_DATA_CORPUS_H

#include "data/source.h"

bool corpus_is_named(const char *path);
int corpus_count(void); /* its files */
MUST_USE Status corpus_source(Source *ret_source, int index);

#endif
