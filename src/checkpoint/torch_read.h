/* Reads state dicts that torch.save wrote (pytorch_model.bin), as zip archives or in the older format,
 * without executing anything (pickle.h). Tensors are used in the mapped file. */
#ifndef WEFT_CHECKPOINT_TORCH_READ_H
#define WEFT_CHECKPOINT_TORCH_READ_H

#include "base/fs.h"
#include "checkpoint/safetensors.h"

/* The tensors of a file, validated. Values other than tensors are ignored. */
MUST_USE Status torch_open(SafeFile **ret_file, const char *path);

/* ---- archives (torch_zip.c) ---- */

/* A stored member of a zip archive. */
typedef struct TorchMember {
    const char *name; /* not terminated */
    size_t name_size;
    const unsigned char *data;
    size_t size;
} TorchMember;

typedef struct TorchZip {
    TorchMember *member; /* sorted by name */
    size_t count, capacity;
} TorchZip;

/* Lists an archive in memory, which must outlive it; compressed members have no data. */
MUST_USE Status torch_zip_open(TorchZip *ret_zip, const char *path, const unsigned char *data, size_t size);
void torch_zip_done(TorchZip *zip);
/* A member by its name without the archive's folder: "data.pkl", "data/7"; NULL: not found. */
const TorchMember *torch_zip_find(const TorchZip *zip, const char *name, size_t size);

#endif
