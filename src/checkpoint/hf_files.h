/* All tensors of a checkpoint directory, across its weight files. */
#ifndef WEFT_CHECKPOINT_HF_FILES_H
#define WEFT_CHECKPOINT_HF_FILES_H

#include "checkpoint/safetensors.h"

#define HF_WEIGHTS "model.safetensors"
#define HF_INT8    "int8.safetensors"
#define HF_SPARSE  "sparse.safetensors"
#define HF_INDEX   "model.safetensors.index.json"
/* The same, pickled by PyTorch (torch_read.h). */
#define HF_TORCH       "pytorch_model.bin"
#define HF_TORCH_INDEX "pytorch_model.bin.index.json"

typedef struct HfEntry {
    const SafeTensor *tensor;
    const char *path; /* the file that contains it */
    bool used;        /* set by readers for tensors they use */
} HfEntry;

typedef struct HfFiles {
    char *dir;
    SafeFile **file;
    size_t count, capacity;
    HfEntry *entry; /* sorted by name */
    size_t entries, entries_capacity;
    bool gguf; /* the tensors have the names of GGUF (gguf_read.h) */
} HfFiles;

/* Opens model.safetensors; if absent, int8.safetensors or sparse.safetensors; or the weight files that
 * model.safetensors.index.json lists; or model.gguf; or pytorch_model.bin or what its index lists. Of an
 * adapter's directory, those of its base model. */
MUST_USE Status hf_files_open(HfFiles **ret_files, const char *dir);
/* Opens the file of that name; NULL: the model's, as above, but not those of a base model. */
MUST_USE Status hf_files_open_single(HfFiles **ret_files, const char *dir, const char *name);
void hf_files_free(HfFiles *files);
DEFINE_FREEP(HfFiles, hf_files)

/* The floating-point type with the most bytes; DT_F32 if there is no floating-point tensor. */
DType hf_files_dtype(const HfFiles *files);
/* DT_F32 instead, if values of fp32 tensors would change: GGUF files have norms in fp32 beside other types.
 */
MUST_USE Status hf_files_exact_dtype(const HfFiles *files, DType *ret_dtype);
HfEntry *hf_files_find(HfFiles *files, const char *name); /* NULL if not found */
/* The tensor outer + prefix + name, or else outer + name. */
HfEntry *hf_files_find_prefixed(HfFiles *files, const char *outer, const char *prefix, const char *name);

#endif
