/* Adapters as PEFT keeps them: a directory with adapter_config.json and adapter_model.safetensors.
 *
 * A tensor of the model's files that is a linear layer of transformers, such as q_proj, is a module there. It
 * may be a part of a matrix here (LoraTarget). Other parameters that a run trains are in the file as a whole
 * ("modules_to_save"). */
#ifndef WEFT_CHECKPOINT_ADAPTER_H
#define WEFT_CHECKPOINT_ADAPTER_H

#include "checkpoint/hf_names.h"
#include "checkpoint/root_disk.h"
#include "model/model.h"

#define ADAPTER_CONFIG  "adapter_config.json"
#define ADAPTER_WEIGHTS "adapter_model.safetensors"
#define ADAPTER_PREFIX  "base_model.model." /* of all tensors */

typedef struct LoraTargets {
    LoraTarget *target;
    int count;
    size_t capacity;
} LoraTargets;

void lora_targets_done(LoraTargets *targets);
/* The linear layers that one of the patterns matches, of all layers' attention and MLPs; without patterns,
 * all of them. A pattern is a shell pattern of names in transformers or of their ends from a dot on
 * ("q_proj"), or of names of weft, as in model_freeze. Each must match. */
MUST_USE Status lora_targets_find(const Model *model, const char *const *patterns, int count,
                                  LoraTargets *ret_targets);

/* Adds adapters of such layers to a model. They alone are trained, besides a head that classifies or finds
 * spans and what `freeze`, further patterns of model_freeze, trains. */
MUST_USE Status lora_adapt(Model *model, LoraConfig lora, const char *const *targets, int target_count,
                           const char *const *freeze, int freeze_count);

/* Whether a directory has an adapter and no model's weights. */
MUST_USE Status adapter_in(const char *dir, bool *ret_adapter);
/* Its base model's directory, which the caller frees; NULL if there is no adapter. Fails if the model is not
 * here. */
MUST_USE Status adapter_base(const char *dir, char **ret_base);
/* Writes adapter_config.json for a model with adapters of the model in `base`, which may be NULL. */
MUST_USE Status adapter_config_write(const char *dir, const Model *model, const char *base);

/* An adapter for a model without any. */
typedef struct Adapter Adapter;
/* Opens it and checks that all of its tensors belong to the model. */
MUST_USE Status adapter_open(Adapter **ret_adapter, const char *dir, const Model *model);
void adapter_free(Adapter *adapter);
DEFINE_FREEP(Adapter, adapter)
/* Whether it has all of a parameter. */
bool adapter_replaces(Adapter *adapter, const ParamDesc *desc);
/* Adds its products to an fp32 store's parameters and replaces those that it has as a whole. Collective with
 * `disk`: only rank 0 has the files' data. */
MUST_USE Status adapter_merge(Adapter *adapter, Store *params, const RootDisk *disk, Stream *stream);
/* Merges the adapters of several directories, or of runs' newest checkpoints, one after the other. */
MUST_USE Status adapters_merge(const char *const *dirs, int count, Store *params, const RootDisk *disk,
                               Stream *stream);
/* Loads an adapter, or a run's newest, into those of a model with adapters, which must be alike. Collective
 * with `disk`. */
MUST_USE Status adapter_load(const char *path, Store *params, const RootDisk *disk, Stream *stream);

#endif
