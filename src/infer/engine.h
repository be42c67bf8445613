/* A model ready to generate: a checkpoint's weights on a device, with everything a pass needs. */
#ifndef WEFT_INFER_ENGINE_H
#define WEFT_INFER_ENGINE_H

#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "model/model.h"

typedef struct EngineOptions {
    const char *device;  /* "cpu", "cuda"; NULL: "cpu" */
    const char *kernels; /* NULL: the device's own */
    int threads;         /* 0: all that the process may use */
    DType dtype;         /* what it computes with, and keeps weights in */
    const char *cache;   /* what it keeps keys and values in: "fp32", "bf16", "int8"; NULL: as dtype */
} EngineOptions;

typedef struct Engine {
    Device *device;
    Stream *stream;
    Group *tp;
    Model *model;
    Store *params;
    Exec exec;
    DType cache;       /* of keys and values */
    LoadReport report; /* tensors of the files that were not used; nothing is missing */
} Engine;

/* What engine_new would load: the checkpoint's directory, owned by the caller, and its configuration with
 * the tokens of generation_config.json. `dir` is a checkpoint, or a run, whose newest checkpoint is taken. A
 * model that cannot generate is refused. */
MUST_USE Status engine_find(const char *dir, char **ret_dir, ModelConfig *ret_config);
MUST_USE Status engine_new(Engine **ret_engine, const char *dir, const EngineOptions *options);
/* The same with weights drawn as at the start of a training, for measuring. */
MUST_USE Status engine_new_random(Engine **ret_engine, const ModelConfig *config, uint64_t seed,
                                  const EngineOptions *options);
void engine_free(Engine *engine);
DEFINE_FREEP(Engine, engine)

#endif
