/* Writing a model's files to a temporary directory that is renamed later. */
#ifndef WEFT_CHECKPOINT_HF_SAVE_H
#define WEFT_CHECKPOINT_HF_SAVE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/save.h"

/* One tensor of the weight files. */
typedef struct HfItem {
    char name[HF_NAME + 32];
    HfTensor tensor;
    ParamRef ref;
    int file; /* index of its weight file */
} HfItem;

/* All tensors in file order, each assigned to a weight file. */
typedef struct HfManifest {
    HfItem *item;
    size_t count, capacity;
    const Model *model;
    int files;
    bool quantized;       /* a single file that also has the quantized parameters */
    bool adapter;         /* what PEFT stores, in a single file */
    bool sparse;          /* a single file; the layers' matrices are not items but stored as in hf_sparse.h */
    int64_t bytes, numel; /* totals over the items */
} HfManifest;

MUST_USE Status hf_manifest_init(HfManifest *ret_manifest, const Model *model, const SaveOptions *options);
void hf_manifest_done(HfManifest *manifest);
/* Adds the weight files in `dir` and their tensors to the list. */
MUST_USE Status hf_manifest_list(const HfManifest *manifest, const char *dir, const Store *params,
                                 DType dtype, SaveList *list);
/* Writes everything else: config.json, the index, the assets. */
MUST_USE Status hf_write_rest(const char *dir, const HfManifest *manifest, const ModelConfig *config,
                              const SaveOptions *options);

/* Adds the names of labels to config.json, "LABEL_0" and so on without them; not 0: out of memory. */
int hf_put_labels(json_t *json, int64_t count, const LabelSet *labels);

#endif
