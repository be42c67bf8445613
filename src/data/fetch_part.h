/* Downloads or copies a single file: data goes to NAME.part, which becomes NAME once it is complete and
 * verified. */
#ifndef WEFT_DATA_FETCH_PART_H
#define WEFT_DATA_FETCH_PART_H

#include "base/sha256.h"
#include "data/fetch.h"
#include "data/http.h"

#define PART_LIMIT ((int64_t)64 << 30) /* bytes, of any file */

typedef struct PartSpec {
    const FetchSpec *fetch;
    const FetchFile *file;
    const char *path;     /* destination */
    const char *from;     /* a URL, or a path if http is NULL */
    Http *http;           /* NULL: copy a local file */
    const char *expected; /* SHA-256; NULL: not known */
    bool recorded;        /* `expected` was recorded at the first download, not published */
    int64_t limit;        /* bytes to accept if nothing tells the file's size */
    int retries;          /* attempts after a temporary failure */
} PartSpec;

/* Why a file could not be fetched. */
typedef enum {
    PART_HERE,      /* another source would not help: stopped by a signal, the disk is full */
    PART_TEMPORARY, /* the source may recover */
    PART_REFUSED,   /* the source fails, or has something else */
    PART_ABSENT,    /* the source has no such file */
} PartFailure;

/* *ret_why is set on failure. */
MUST_USE Status part_fetch(const PartSpec *spec, FetchedFile *ret_file, PartFailure *ret_why);

/* Adds to a failure that another call would resume the download, if it would. */
MUST_USE Status part_resumable(const char *path, Status failure);

/* Computes the size and SHA-256 of a file. */
MUST_USE Status part_sum(const FetchSpec *spec, const char *path, int64_t *ret_size,
                         char ret_text[SHA256_TEXT]);

#endif
