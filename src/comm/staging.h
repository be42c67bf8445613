/* What a rank's memory holds for operations between ranks that go through the host: the sizes that comm/mpi
 * works with and comm/dryrun.c plans with. */
#ifndef WEFT_COMM_STAGING_H
#define WEFT_COMM_STAGING_H

#include <stddef.h>

enum {
    WINDOW = 2,             /* pieces of a flow under way, and pieces of staging per peer */
    PIECE = 512 << 10,      /* bytes of a piece at most */
    PIECE_LEAST = 16 << 10, /* of a staged piece, however many peers there are */
    SMALL = 32 << 10,       /* reductions of up to as many bytes take the short way */
    SLOTS = 2,              /* staged reductions that receive at the same time, per stream */
    SLOT_BYTES = 2 << 20,   /* staging of one of them */
    AREA_HEAD = 64,         /* bytes before the first slot */
};

/* Bytes of a slot in a world of so many ranks. */
static inline size_t staging_slot_bytes(int world) {
    size_t least = (size_t)(world - 1) * WINDOW * PIECE_LEAST;
    return least > SLOT_BYTES ? least : SLOT_BYTES;
}

#endif
