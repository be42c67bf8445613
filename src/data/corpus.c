/* The packed data is a concatenation of files, each followed by the ASCII file separator, which no text in
 * the project contains. */
#include "data/corpus.h"

#include <string.h>

enum { FILE_SEPARATOR = 0x1c };

/* Defined by the generated corpus_data.c. */
extern const unsigned char weft_corpus_begin[], weft_corpus_end[];

bool corpus_is_named(const char *path) {
    return !strcmp(path, "self") && !path_exists(path);
}

bool corpus_ends(size_t place) {
    return place == (size_t)(weft_corpus_end - weft_corpus_begin);
}

Status corpus_next(Source *ret_source, size_t *place) {
    const unsigned char *file = weft_corpus_begin + *place;
    const unsigned char *end = memchr(file, FILE_SEPARATOR, (size_t)(weft_corpus_end - file));
    if (!end) return FAILED("the embedded corpus ends without a separator");
    *place += (size_t)(end - file) + 1;
    return source_init_memory(ret_source, "self", file, (size_t)(end - file));
}
