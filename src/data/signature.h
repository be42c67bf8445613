/* Recognizes files that are not text by their first bytes: archives, documents, images, tables, weights, and
 * text in UTF-16 or UTF-32. */
#ifndef WEFT_DATA_SIGNATURE_H
#define WEFT_DATA_SIGNATURE_H

#include "base/status.h"

enum {
    SIGNATURE_START = 512, /* bytes that are examined */
    SIGNATURE_LONG = 4     /* shorter signatures may also begin a file of token ids */
};

typedef struct Signature {
    const char *name;   /* "a PDF document" */
    const char *advice; /* "extract its text" */
    size_t at, size;    /* `magic` is `size` bytes at this offset */
    const char *magic;
    const char *inside; /* also present in the examined bytes; may be NULL */
} Signature;

/* The format that a file's first bytes show; NULL: none of the known ones. */
const Signature *signature_find(const void *start, size_t size);
/* Fails if the bytes are not text; `or_bytes`: the message offers {format} bytes. */
MUST_USE Status signature_check_text(const char *path, const void *start, size_t size, bool or_bytes);
/* Fails if the bytes, which may be token ids, are of a known format. */
MUST_USE Status signature_check_ids(const char *path, const void *start, size_t size);

#endif
