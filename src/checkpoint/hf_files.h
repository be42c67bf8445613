/* All tensors of a checkpoint directory, wherever its shards keep them. */
#ifndef WEFT_CHECKPOINT_HF_FILES_H
#define WEFT_CHECKPOINT_HF_FILES_H

#include "checkpoint/safetensors.h"

#define HF_WEIGHTS "model.safetensors"
#define HF_INT8    "int8.safetensors"
#define HF_SPARSE  "sparse.safetensors"
#define HF_INDEX   "model.safetensors.index.json"

typedef struct HfEntry {
    const SafeTensor *tensor;
    const char *path; /* of its file */
    bool used;        /* for the reader's own marks */
} HfEntry;

typedef struct HfFiles {
    char *dir;
    SafeFile **file;
    size_t count, capacity;
    HfEntry *entry; /* sorted by name */
    size_t entries, entries_capacity;
} HfFiles;

/* Opens model.safetensors, int8.safetensors or sparse.safetensors instead, or the shards that
 * model.safetensors.index.json lists. */
MUST_USE Status hf_files_open(HfFiles **ret_files, const char *dir);
void hf_files_free(HfFiles *files);
DEFINE_FREEP(HfFiles, hf_files)

/* The floating type that most of the bytes have; DT_F32 when none has any. */
DType hf_files_dtype(const HfFiles *files);
HfEntry *hf_files_find(HfFiles *files, const char *name); /* NULL when there is none */

#endif
