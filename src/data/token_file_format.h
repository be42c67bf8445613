/* A shard's header, between the file and memory. */
#ifndef WEFT_DATA_TOKEN_FILE_FORMAT_H
#define WEFT_DATA_TOKEN_FILE_FORMAT_H

#include "data/token_file.h"

typedef struct TokenFileHeader {
    TokenFileInfo info;
    uint64_t sums; /* checksum of the checksums */
} TokenFileHeader;

/* Bytes of each part; false when the counts cannot be a file's. */
typedef struct TokenFileLayout {
    uint64_t tokens;    /* with the zeroes after them */
    uint64_t documents; /* tokens and documents */
    uint64_t body;      /* and sentences */
    uint64_t blocks;    /* of the body */
    uint64_t file_size; /* all of it */
} TokenFileLayout;
bool token_file_layout(const TokenFileInfo *info, TokenFileLayout *ret_layout);

void token_file_header_pack(const TokenFileHeader *header, unsigned char out[TOKEN_FILE_HEADER]);
/* Refuses what is no shard, of another version, or damaged; `path` is for messages. */
MUST_USE Status token_file_header_parse(const unsigned char *data, size_t size, const char *path,
                                        TokenFileHeader *ret_header);

#endif
