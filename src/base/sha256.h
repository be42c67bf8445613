/* Incremental SHA-256 (FIPS 180-4). */
#ifndef WEFT_BASE_SHA256_H
#define WEFT_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_TEXT = 65 }; /* 64 hexadecimal digits and a NUL */

typedef struct Sha256 {
    uint32_t state[8];
    uint64_t size; /* bytes so far */
    unsigned char block[64];
} Sha256;

void sha256_init(Sha256 *hash);
void sha256_add(Sha256 *hash, const void *data, size_t size);
/* The lowercase hexadecimal digest of all bytes so far. More bytes may follow. */
void sha256_text(const Sha256 *hash, char text[SHA256_TEXT]);

#endif
