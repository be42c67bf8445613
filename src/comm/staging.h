/* Sizes of staging memory for communication through the host, shared by comm/mpi and comm/dryrun.c. */
#ifndef WEFT_COMM_STAGING_H
#define WEFT_COMM_STAGING_H

#include <stddef.h>

enum {
    WINDOW = 2,             /* chunks of a flow in flight, and staging chunks per peer */
    PIECE = 512 << 10,      /* maximum chunk size in bytes */
    PIECE_LEAST = 16 << 10, /* minimum size of a staged chunk, for any number of peers */
    SMALL = 32 << 10,       /* reductions of up to this many bytes are latency-optimized */
    SLOTS = 2,              /* concurrent staged reductions per stream */
    SLOT_BYTES = 2 << 20,   /* staging bytes of each */
    AREA_HEAD = 64,         /* bytes before the first slot */
};

/* Bytes per slot for `world` ranks. */
static inline size_t staging_slot_bytes(int world) {
    size_t least = (size_t)(world - 1) * WINDOW * PIECE_LEAST;
    return least > SLOT_BYTES ? least : SLOT_BYTES;
}

#endif
