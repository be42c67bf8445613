/* Writing stores' numbers into files, by all ranks of a mesh together.
 *
 * A SaveList says which tensors of which files come from which parameters; it is the same on all ranks.
 * The numbers of a unit come together on one rank, which writes them at their places in the files. Units
 * are shared out so that all ranks write at the same time and about equally much; a rank holds one unit
 * at a time beyond its own part.
 */
#ifndef WEFT_CHECKPOINT_SAVE_H
#define WEFT_CHECKPOINT_SAVE_H

#include "checkpoint/hf_names.h"
#include "checkpoint/safetensors.h"
#include "comm/mesh.h"
#include "model/model.h"

enum { SAVE_STORES = 3 };

typedef struct SaveItem {
    int store, file; /* of the list */
    ParamRef ref;
    HfTensor tensor;
    DType dtype;
    int64_t at; /* the tensor's first byte in the file's data */
} SaveItem;

typedef struct SaveList {
    const Store *store[SAVE_STORES];
    int stores;
    SafeWriter **file;
    size_t files, files_capacity;
    SaveItem *item;
    size_t count, capacity;
} SaveList;

void save_list_done(SaveList *list);
/* Their places in the list. A store must outlive it. */
int save_list_store(SaveList *list, const Store *store);
MUST_USE Status save_list_file(SaveList *list, const char *path, int *ret_file);
/* Declares a tensor of a file. */
MUST_USE Status save_list_add(SaveList *list, int store, int file, const char *name, ParamRef ref,
                              const HfTensor *tensor, DType dtype);

/* Creates the files; for one rank, before all the others go on. */
MUST_USE Status save_list_create(SaveList *list);
/* Writes everything into the files, synced and closed when it returns. Collective; the status is agreed. */
MUST_USE Status save_list_write(SaveList *list, Mesh *mesh, Stream *stream);

/* What all ranks say together: OK, or the failure of the lowest rank that has one, with its sentence. It
 * takes `status`. A mesh that is NULL is one rank. Collective, and so a barrier. */
MUST_USE Status save_agree(Mesh *mesh, Status status);

#endif
