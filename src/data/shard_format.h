/* A shard's header, between the file and memory. */
#ifndef WEFT_DATA_SHARD_FORMAT_H
#define WEFT_DATA_SHARD_FORMAT_H

#include "data/shard.h"

typedef struct ShardHeader {
    ShardInfo info;
    uint64_t sums; /* checksum of the checksums */
} ShardHeader;

/* Bytes of each part; false when the counts cannot be a file's. */
typedef struct ShardLayout {
    uint64_t tokens;    /* with the zeroes after them */
    uint64_t documents; /* tokens and documents */
    uint64_t body;      /* and sentences */
    uint64_t blocks;    /* of the body */
    uint64_t file_size; /* all of it */
} ShardLayout;
bool shard_layout(const ShardInfo *info, ShardLayout *ret_layout);

void shard_header_pack(const ShardHeader *header, unsigned char out[SHARD_HEADER]);
/* Refuses what is no shard, of another version, or damaged; `path` is for messages. */
MUST_USE Status shard_header_parse(const unsigned char *data, size_t size, const char *path,
                                   ShardHeader *ret_header);

#endif
