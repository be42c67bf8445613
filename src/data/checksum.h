/* A fast 64-bit checksum of bytes: any single changed byte changes it. Not for secrets. */
#ifndef WEFT_DATA_CHECKSUM_H
#define WEFT_DATA_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t checksum(const void *data, size_t size, uint64_t seed);

#endif
