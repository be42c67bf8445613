/* One file on its way: from a server or a directory to NAME.part and, whole and verified, to NAME. */
#ifndef WEFT_DATA_FETCH_PART_H
#define WEFT_DATA_FETCH_PART_H

#include "base/sha256.h"
#include "data/fetch.h"
#include "data/http.h"

typedef struct PartSpec {
    const FetchSpec *fetch;
    const FetchFile *file;
    const char *path;     /* where it goes */
    const char *from;     /* a URL, or a path when http is NULL */
    Http *http;           /* NULL: a copy */
    const char *expected; /* SHA-256; NULL: not known */
    bool recorded;        /* `expected` is what came the first time, not what was published */
} PartSpec;

/* *ret_absent: the server, or the directory, has no such file; then it is a failure too. */
MUST_USE Status part_fetch(const PartSpec *spec, FetchedFile *ret_file, bool *ret_absent);

/* The size and SHA-256 of a file. */
MUST_USE Status part_sum(const FetchSpec *spec, const char *path, int64_t *ret_size,
                         char ret_text[SHA256_TEXT]);

#endif
