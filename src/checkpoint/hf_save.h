/* A model's files, written into a directory that is not yet in its place. */
#ifndef WEFT_CHECKPOINT_HF_SAVE_H
#define WEFT_CHECKPOINT_HF_SAVE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/save.h"

/* One tensor of the weights. */
typedef struct HfItem {
    char name[HF_NAME + 16];
    HfTensor tensor;
    ParamRef ref;
    int file;
} HfItem;

/* All of them in the order of the files, and the shard that each goes to. */
typedef struct HfManifest {
    HfItem *item;
    size_t count, capacity;
    int files;
    bool int8;   /* in one file with the int8 parameters */
    bool sparse; /* the layers' matrices lie beside the items */
    int64_t bytes, numel;
} HfManifest;

MUST_USE Status hf_manifest_init(HfManifest *ret_manifest, const Model *model, const SaveOptions *options);
void hf_manifest_done(HfManifest *manifest);
/* Puts the weights' files in `dir`, and what goes into them, on the list. */
MUST_USE Status hf_manifest_list(const HfManifest *manifest, const char *dir, const Store *params,
                                 DType dtype, SaveList *list);
/* Everything else: config.json, the index, the assets. */
MUST_USE Status hf_write_rest(const char *dir, const HfManifest *manifest, const ModelConfig *config,
                              const SaveOptions *options);

#endif
