/* Fast 64-bit checksum: changing any single byte changes it. Not cryptographic. */
#ifndef WEFT_DATA_CHECKSUM_H
#define WEFT_DATA_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t checksum(const void *data, size_t size, uint64_t seed);

#endif
