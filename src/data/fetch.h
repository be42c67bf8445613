/* Downloads datasets, tokenizers and weights from their public sources.
 *
 * fetch_sets.c lists what is available. The files of a set go to a directory with the set's name. A download
 * is written to NAME.part, and NAME.part.json records which file it belongs to, so that an interrupted
 * download can resume. The file gets its final name once it is complete and its checksum matches.
 * fetched.json in the same directory records the size, SHA-256 and origin of every file; files without a
 * published checksum are later verified against that record. Archives are kept next to the files unpacked
 * from them. A host that fails, or sends a damaged file, gives way to the next one that has the file.
 */
#ifndef WEFT_DATA_FETCH_H
#define WEFT_DATA_FETCH_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct FetchFile {
    const char *name;           /* relative to the set's directory and to its base URL */
    int64_t size;               /* bytes; 0: not known in advance */
    const char *sha256;         /* NULL: no published checksum is known */
    const char *const *members; /* zip archive: members to unpack, NULL-terminated; else NULL */
} FetchFile;

typedef struct FetchSet {
    const char *name, *title, *licence;
    const char *home; /* base URL, ends in a slash */
    const FetchFile *files;
    size_t file_count;
    int64_t about; /* approximate total in bytes, for sets whose sizes are not all known */
} FetchSet;

/* Another host that has files of sets. */
typedef struct FetchMirror {
    const char *of; /* beginning of base URLs, or SHA-256 of one file */
    const char *at; /* what replaces that beginning, or URL of that file */
} FetchMirror;

const FetchSet *fetch_sets(size_t *ret_count);
const FetchMirror *fetch_mirrors(size_t *ret_count);
/* The part of a base URL that a mirror keeps; NULL: it does not mirror this URL. */
const char *fetch_mirrored(const FetchMirror *mirror, const char *home);
/* Whether this is the set's name, or that of its model on the Hugging Face hub, with or without the owner. */
bool fetch_is_named(const FetchSet *set, const char *name);
/* Looks a set up by such a name; an unknown name is a usage error that suggests the closest match. */
MUST_USE Status fetch_find(const char *name, const FetchSet **ret_set);
/* Directory for all sets: $WEFT_DATA, else the subdirectory data of user_cache() (base/fs.h). The caller
 * frees it. */
MUST_USE Status fetch_root(char **ret_root);

typedef struct FetchSpec {
    const char *root;
    const char *const
        *from; /* mirrors instead of the sets' URLs: URL or directory with a subdirectory per set */
    int from_count;
    const FetchMirror *mirrors; /* tried after the sets' URLs */
    size_t mirror_count;
    bool from_flat;   /* files may also be directly in a mirror */
    double timeout_s; /* a server that sends nothing for this long has failed */
    int retries;      /* attempts after a temporary failure */
    double backoff_s; /* delay before the first retry; doubles with each one */
    FILE *log;        /* receives progress output */
    bool quiet;       /* no progress output */
    const volatile sig_atomic_t *stop;
} FetchSpec;

/* What a file's checksum was compared with. */
typedef enum {
    FETCH_PUBLISHED, /* the published checksum */
    FETCH_RECORDED,  /* the checksum recorded at the first download */
    FETCH_STATED,    /* first download: the checksum that the server reported */
    FETCH_FIRST,     /* first download, and no checksum is known */
    FETCH_ARCHIVE,   /* unpacked from an archive that was itself verified */
} FetchProof;

extern const char *const fetch_proof_names[];

typedef struct FetchedFile {
    char *name, *path, *from; /* from: URL or path of its source; NULL if it was there */
    int64_t size, received;   /* received: bytes downloaded by this call */
    char sha256[65];
    FetchProof proof;
    bool was_there;
} FetchedFile;

typedef struct Fetched {
    char *dir;
    FetchedFile *files;
    size_t count, capacity;
} Fetched;

/* Fetches a set. Existing files are verified instead of downloaded again. */
MUST_USE Status fetch_set(const FetchSet *set, const FetchSpec *spec, Fetched *ret_fetched);
void fetched_done(Fetched *fetched);

#endif
