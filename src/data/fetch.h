/* Data sets, tokenizers and weights from their public homes.
 *
 * What there is stands in a table (fetch_sets.c). A set's files come into a directory of its name. A file is
 * written as NAME.part, with NAME.part.json beside it saying of which file it is the beginning, so that an
 * interrupted download goes on; it gets its name when it is whole and its checksum is right. fetched.json in
 * the directory records every file's size, SHA-256 and origin, which is what a file without a published
 * checksum is held against later. Archives stay beside what was unpacked from them.
 */
#ifndef WEFT_DATA_FETCH_H
#define WEFT_DATA_FETCH_H

#include <signal.h>
#include <stdint.h>

#include "base/status.h"

typedef struct FetchFile {
    const char *name;           /* in the set's directory and below its home */
    int64_t size;               /* 0: not known beforehand */
    const char *sha256;         /* NULL: none is published that we know of */
    const char *const *members; /* of a zip archive: the names to unpack, NULL-terminated; NULL: not one */
} FetchFile;

typedef struct FetchSet {
    const char *name, *title, *licence;
    const char *home; /* a URL that ends in a slash */
    const FetchFile *files;
    size_t file_count;
    int64_t about;    /* bytes in all, roughly, where not all sizes are known */
    const char *next; /* a command to go on with; DIR stands for the set's directory */
} FetchSet;

const FetchSet *fetch_sets(size_t *ret_count);
/* By its name; an unknown one is a usage error that suggests the nearest. */
MUST_USE Status fetch_find(const char *name, const FetchSet **ret_set);
/* Where sets are kept: $WEFT_DATA, else data below user_cache() of base/fs.h. */
MUST_USE Status fetch_root(char **ret_root);

typedef struct FetchSpec {
    const char *root;
    const char
        *from; /* a mirror's URL or a directory, with the files in a folder of the set's name; NULL: home */
    bool from_flat;   /* in `from`, files may also lie without that folder */
    double timeout_s; /* a server that sends nothing for so long has failed */
    int retries;      /* after a failure that may pass */
    double backoff_s; /* before the first of them; twice as long before the next */
    FILE *log;        /* for progress */
    bool quiet;       /* which is not wanted */
    const volatile sig_atomic_t *stop;
} FetchSpec;

/* What a checksum was held against. */
typedef enum {
    FETCH_PUBLISHED, /* the published one */
    FETCH_RECORDED,  /* that of the first time */
    FETCH_STATED,    /* the first time: what its home says of it */
    FETCH_FIRST,     /* the first time, and nothing is said */
    FETCH_ARCHIVE,   /* unpacked from an archive that was held against its own */
} FetchProof;

extern const char *const fetch_proof_names[];

typedef struct FetchedFile {
    char *name, *path;
    int64_t size, received; /* received: bytes that came this time */
    char sha256[65];
    FetchProof proof;
    bool was_there;
} FetchedFile;

typedef struct Fetched {
    char *dir;
    FetchedFile *files;
    size_t count, capacity;
} Fetched;

/* Brings a set in; what is there is verified and not fetched again. */
MUST_USE Status fetch_set(const FetchSet *set, const FetchSpec *spec, Fetched *ret_fetched);
void fetched_done(Fetched *fetched);

#endif
