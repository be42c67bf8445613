/* Collective writing of stores' values to files, by all ranks of a mesh.
 *
 * A SaveList maps parameters to tensors of files; it is the same on all ranks. Each rank writes what it has
 * at its offsets in the files (snapshot.h), so nothing is sent, and nothing needs memory. Only if rank 0
 * alone has the files, the others send it what they write (collect.h).
 *
 * Some stores are the same on all replicas. Others are those of a worker (parallel/shard.h) or of a replica,
 * and each of them writes tensors of its own. What all have, the first worker writes; without workers, that
 * is the first shard group.
 */
#ifndef WEFT_CHECKPOINT_SAVE_H
#define WEFT_CHECKPOINT_SAVE_H

#include "checkpoint/hf_names.h"
#include "checkpoint/root_disk.h"
#include "checkpoint/safetensors.h"
#include "comm/mesh.h"
#include "model/model.h"
#include "optim/optim.h"

enum { SAVE_STORES = 5 + OPTIM_STATES };

/* Who has a store for itself. */
typedef enum { SAVE_SHARED, SAVE_WORKER, SAVE_REPLICA } SaveOwner;

typedef struct SaveItem {
    int store, file; /* indices in the list */
    int writer;      /* the worker that writes it; the replica, of a store with SAVE_REPLICA */
    ParamRef ref;
    HfTensor tensor;
    DType dtype;
    int64_t at; /* the tensor's offset in the file's data */
} SaveItem;

typedef struct SaveList {
    const Store *store[SAVE_STORES];
    SaveOwner owner[SAVE_STORES];
    int stores;
    SafeWriter **file;
    size_t files, files_capacity;
    SaveItem *item;
    size_t count, capacity;
    bool finite;                 /* refuse NaN and Inf (DIVERGED) */
    struct Collector *collector; /* sends what is written to rank 0 (collect.h); NULL: all ranks write */
} SaveList;

void save_list_done(SaveList *list);
/* Add a store or a file and return its index. Stores must outlive the list; at most SAVE_STORES. */
int save_list_store(SaveList *list, const Store *store, SaveOwner owner);
MUST_USE Status save_list_file(SaveList *list, const char *path, int *ret_file);
/* Declares a tensor of a file, to be filled from parameter `ref` of the writer's store. */
MUST_USE Status save_list_add(SaveList *list, int store, int writer, int file, const char *name, ParamRef ref,
                              const HfTensor *tensor, DType dtype);

/* Creates the files. Called on one rank, before the others call save_list_write. */
MUST_USE Status save_list_create(SaveList *list);
/* Opens the files on this rank, unless it created them. */
MUST_USE Status save_list_open(SaveList *list);
/* Syncs and closes the files. */
MUST_USE Status save_list_close(SaveList *list);
/* Combines the ranks' checksums of the tensors. Collective. */
MUST_USE Status save_list_share_sums(SaveList *list, Mesh *mesh);
/* Fails with DIVERGED if the list refuses NaN and Inf and a value of the item's parameter is one. */
MUST_USE Status save_check_finite(const SaveList *list, const SaveItem *item, const float *values,
                                  int64_t count);
/* Marks the units of a model that this stage writes: those of its stores that no earlier stage has.
 * Collective over the stages. */
MUST_USE Status save_find_units(const Store *params, Mesh *mesh, bool *ours);
/* Writes all tensors, straight from the stores, then syncs and closes the files; afterwards safe_writer_sums
 * has the tensors' checksums on every rank. `disk`: only rank 0 has the files, else NULL; mesh NULL: a single
 * rank. Collective; all ranks return the same outcome. */
MUST_USE Status save_list_write(SaveList *list, const RootDisk *disk, Mesh *mesh, Stream *stream);

/* The combined outcome of all ranks: OK, or the error of the lowest rank that failed. Takes ownership of
 * `status`. Collective, and so a barrier; with mesh NULL (a single rank) it returns `status`. */
MUST_USE Status save_agree(Mesh *mesh, Status status);

#endif
