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

static const unsigned char *next_file(const unsigned char *at) {
    const unsigned char *separator = memchr(at, FILE_SEPARATOR, (size_t)(weft_corpus_end - at));
    return separator ? separator + 1 : weft_corpus_end;
}

int corpus_count(void) {
    int count = 0;
    for (const unsigned char *at = weft_corpus_begin; at < weft_corpus_end; at = next_file(at)) count++;
    return count;
}

Status corpus_source(Source *ret_source, int index) {
    const unsigned char *at = weft_corpus_begin;
    while (index-- > 0) at = next_file(at);
    return source_init_memory(ret_source, "self", at, (size_t)(next_file(at) - at) - 1);
}
