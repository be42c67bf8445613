/* Reads zip archives of the kind that datasets come in: stored or deflated members, below 4 GiB, not
 * encrypted. The caller chooses the output of every member, so member names cannot cause path traversal. */
#ifndef WEFT_DATA_ZIP_H
#define WEFT_DATA_ZIP_H

#include <stdint.h>

#include "base/status.h"

typedef struct Zip Zip;

MUST_USE Status zip_open(Zip **ret_zip, const char *path);
void zip_free(Zip *zip);
DEFINE_FREEP(Zip, zip)

size_t zip_count(const Zip *zip);
/* Path of a member in the archive; directories are not members. NULL past the end. */
const char *zip_name(const Zip *zip, size_t member);
int64_t zip_size(const Zip *zip, size_t member); /* uncompressed */
/* Finds the member whose name without directories is `name`; an archive without such a member, or with two,
 * is an error. */
MUST_USE Status zip_find(const Zip *zip, const char *name, size_t *ret_member);

/* Receives a member's bytes in order. */
typedef Status (*ZipSink)(void *user, const void *data, size_t size);
/* Fails if the size or the CRC-32 does not match the archive's directory. */
MUST_USE Status zip_unpack(const Zip *zip, size_t member, ZipSink sink, void *user);

#endif
