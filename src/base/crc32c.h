/* CRC-32C (Castagnoli), by the CPU's instruction where it has one. Detects every change within 32 bits. */
#ifndef WEFT_BASE_CRC32C_H
#define WEFT_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of `size` bytes after bytes whose CRC is `before`; 0 for the first. */
uint32_t crc32c(uint32_t before, const void *data, size_t size);

/* A contribution to the CRC of a longer sequence: that of a part with CRC `part` and `after` bytes behind it.
 * The CRC of the sequence is the XOR of the contributions of its parts, in any order. */
uint32_t crc32c_part(uint32_t part, uint64_t after);

#endif
