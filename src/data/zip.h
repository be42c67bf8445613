/* Zip archives, as far as data sets are packed in them: members stored or deflated, below 4 GiB, not
 * encrypted. A member is taken out under a name that the caller chooses, so no name in an archive leads
 * anywhere. */
#ifndef WEFT_DATA_ZIP_H
#define WEFT_DATA_ZIP_H

#include <stdint.h>

#include "base/status.h"

typedef struct Zip Zip;

MUST_USE Status zip_open(Zip **ret_zip, const char *path);
void zip_free(Zip *zip);
DEFINE_FREEP(Zip, zip)

size_t zip_count(const Zip *zip);
/* Not of a member that is a directory. NULL past the end. */
const char *zip_name(const Zip *zip, size_t member);
int64_t zip_size(const Zip *zip, size_t member); /* unpacked */
/* The member whose name without folders is `name`; an archive without one, or with two, is an error. */
MUST_USE Status zip_find(const Zip *zip, const char *name, size_t *ret_member);

/* Gets a member's bytes in order. */
typedef Status (*ZipSink)(void *user, const void *data, size_t size);
/* Size and CRC-32 are checked against what the archive says of it. */
MUST_USE Status zip_unpack(const Zip *zip, size_t member, ZipSink sink, void *user);

#endif
