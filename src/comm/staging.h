/* Sizes of messages and of the memory for large collectives, shared by comm/mpi and comm/dryrun.c. */
#ifndef WEFT_COMM_STAGING_H
#define WEFT_COMM_STAGING_H

#include "comm/placement.h"

enum {
    WINDOW = 2,              /* chunks of a flow in flight, and rounds of an exchange */
    PIECE = 512 << 10,       /* maximum chunk size in bytes */
    MESSAGE = 60 << 10,      /* Open MPI sends up to 64 kB over TCP without asking the receiver first */
    PIECE_LEAST = 16 << 10,  /* size of a chunk with many ranks */
    SMALL = 32 << 10,        /* operations of up to this many bytes are latency-optimized ... */
    SMALL_BETWEEN = 4 << 10, /* ... or this many if ranks of a node share the connection to other nodes */
    INPUT_BYTES = 512 << 10,
    RESULT_BYTES = 128 << 10,
    STAGING_BYTES = 1 << 20,
    SEGMENT_HEAD = 512, /* bytes at the start of a segment */
};

/* Messages for a chunk if they are short. */
static inline int messages_of(int64_t bytes) {
    return (int)((bytes + MESSAGE - 1) / MESSAGE);
}

/* Operations of up to this many bytes send directly to every rank that needs the data. */
int64_t small_bytes(const Placement *placement);

/* Bytes per round of an exchange (comm/mpi/exchange.c), the same on all ranks of a group: in shared memory,
 * contributions and results; in private memory, partial sums that are sent and received. */
typedef struct RoundBytes {
    size_t input, result, staging;
} RoundBytes;

RoundBytes round_bytes(const Placement *placement);
/* Bytes that this rank needs in shared memory and in total. */
size_t segment_bytes(const Placement *placement);
size_t exchange_bytes(const Placement *placement);
/* Elements of a part in each round: of a reduction, and bytes of a gather or broadcast. */
int64_t reduce_chunk(const Placement *placement, DType dtype);
int64_t gather_chunk(const Placement *placement);
int64_t broadcast_chunk(const Placement *placement);

#endif
