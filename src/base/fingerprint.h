/* What a file contains, in a few bytes, to compare it with a copy elsewhere. */
#ifndef WEFT_BASE_FINGERPRINT_H
#define WEFT_BASE_FINGERPRINT_H

#include <stdint.h>

#include "base/status.h"

typedef struct Fingerprint {
    uint64_t size;
    uint32_t crc; /* CRC-32C of the bytes that were read */
} Fingerprint;

/* Reads a file up to `limit` bytes completely; of a larger one, parts that are spread evenly over it, first
 * and last bytes included, `limit` bytes in total. With 0, only its size is taken. */
MUST_USE Status fingerprint_file(const char *path, uint64_t limit, Fingerprint *ret_print);

#endif
