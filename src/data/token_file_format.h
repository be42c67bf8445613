/* Encodes and decodes the header of a token file; data/token_file.h describes the format. */
#ifndef WEFT_DATA_TOKEN_FILE_FORMAT_H
#define WEFT_DATA_TOKEN_FILE_FORMAT_H

#include "data/token_file.h"

typedef struct TokenFileHeader {
    TokenFileInfo info;
    uint64_t sums; /* checksum of the block checksums */
} TokenFileHeader;

/* Sizes in bytes, cumulative from the start of the body. token_file_layout returns false if no file can have
 * these counts. */
typedef struct TokenFileLayout {
    uint64_t tokens;    /* tokens and their padding */
    uint64_t documents; /* tokens and documents */
    uint64_t body;      /* tokens, documents and sentences */
    uint64_t blocks;    /* number of blocks in the body */
    uint64_t file_size; /* total file size */
} TokenFileLayout;
bool token_file_layout(const TokenFileInfo *info, TokenFileLayout *ret_layout);

void token_file_header_pack(const TokenFileHeader *header, unsigned char out[TOKEN_FILE_HEADER]);
/* Fails if the data is not a token file, has an unsupported version, or is damaged; `path` is
 * for messages. */
MUST_USE Status token_file_header_parse(const unsigned char *data, size_t size, const char *path,
                                        TokenFileHeader *ret_header);

#endif
