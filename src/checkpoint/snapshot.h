/* What one rank writes of a checkpoint: straight from its stores or, while training continues, from a copy in
 * host memory.
 *
 * A rank writes the elements that it has, at their positions in the files: its own shards and, of what all
 * replicas hold in full, an equal part. So ranks need not exchange anything. With a copy, the values may
 * change as soon as they are copied; its memory is kept from one checkpoint to the next.
 */
#ifndef WEFT_CHECKPOINT_SNAPSHOT_H
#define WEFT_CHECKPOINT_SNAPSHOT_H

#include <stdatomic.h>

#include "checkpoint/save.h"

/* Consecutive elements of a unit's flat buffer. */
typedef struct SnapshotPart {
    int store, unit;
    int64_t first, count;
    int64_t at; /* index of the first one in the copy */
} SnapshotPart;

typedef struct Snapshot {
    const Store *store[SAVE_STORES]; /* as in SaveList */
    int stores;
    SaveOwner owner[SAVE_STORES];
    int tp, worker, replica; /* this rank's tensor-parallel coordinate, worker and replica */
    SnapshotPart *part;
    size_t parts;
    int64_t numel;
    int64_t largest; /* elements of the largest snapshot that a rank of this stage has */
    Buffer buffer;   /* the copy; empty until snapshot_alloc */
    Stream *stream;  /* without a copy: values are written from the stores, through this stream */
} Snapshot;

/* Assigns the elements. `replica` is this rank's number on the data axis; `ours` has the units that its stage
 * saves, see save_find_units. `owner`: of each store; NULL: all are shared. */
MUST_USE Status snapshot_assign(Snapshot *ret_snapshot, const Store *const *store, const SaveOwner *owner,
                                int stores, const bool *ours, int replica, int worker, int tp);
/* The same for a rank of a mesh (NULL: a single rank). Collective. */
MUST_USE Status snapshot_init(Snapshot *ret_snapshot, const Store *const *store, const SaveOwner *owner,
                              int stores, Mesh *mesh);
/* Allocates memory for a copy, on all threads of the device. */
MUST_USE Status snapshot_alloc(Snapshot *snapshot, Device *device);
void snapshot_done(Snapshot *snapshot);
size_t snapshot_bytes(const Snapshot *snapshot);

/* How far the values are written; zeros at the start. */
typedef struct SnapshotCursor {
    size_t part, item;
    int64_t at; /* elements of the item */
    bool done;
} SnapshotCursor;

/* Copies the values, or starts copying if the stream is asynchronous. */
MUST_USE Status snapshot_copy(const Snapshot *snapshot, Stream *stream);
/* Writes the elements to the files, which are open, from `cursor` on. The list must be of the same stores.
 * With a copy, it uses no device. Does not communicate, unless the list has a collector. Ends early once
 * *pause is set; another call continues. */
MUST_USE Status snapshot_write(const Snapshot *snapshot, SaveList *list, SnapshotCursor *cursor,
                               const atomic_bool *pause);

#endif
