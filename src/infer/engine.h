/* A model ready for generation: a checkpoint's weights on a device, and what a forward pass needs. */
#ifndef WEFT_INFER_ENGINE_H
#define WEFT_INFER_ENGINE_H

#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "model/model.h"

typedef struct EngineOptions {
    const char *device;          /* "cpu", "cuda"; NULL: "cpu" */
    const char *kernels;         /* NULL: the device's default */
    int threads;                 /* 0: all cores that the process may use */
    DType dtype;                 /* compute type, also of the weights */
    const char *rope_scaling;    /* see rope_extend; NULL: the model's */
    const char *const *adapters; /* directories to merge into the weights */
    int adapter_count;
    const char *cache; /* type of the KV cache: "fp32", "bf16", "int8"; NULL: dtype */
    Group *cp;         /* ranks that divide the KV cache, only on CPUs; NULL: one rank */
} EngineOptions;

typedef struct Engine {
    Device *device;
    Stream *stream;
    Group *tp;
    Group *cp; /* of the options */
    Model *model;
    Store *params;
    Exec exec;
    DType cache;       /* type of the KV cache */
    bool run_ahead;    /* let greedy generation run ahead, see session_run_ahead; set for GPUs */
    LoadReport report; /* tensors in the files that the model does not use; no parameter is missing */
} Engine;

/* Finds what engine_new would load. `dir` is a checkpoint, or a run directory, whose newest checkpoint is
 * used. *ret_dir is the checkpoint's directory; *ret_config includes the tokens of
 * generation_config.json. Fails for a model that cannot generate. */
MUST_USE Status engine_find(const char *dir, ModelDir *ret_dir, ModelConfig *ret_config);
MUST_USE Status engine_new(Engine **ret_engine, const char *dir, const EngineOptions *options);
/* The same with randomly initialized weights, for benchmarks. */
MUST_USE Status engine_new_random(Engine **ret_engine, const ModelConfig *config, uint64_t seed,
                                  const EngineOptions *options);
void engine_free(Engine *engine);
DEFINE_FREEP(Engine, engine)

#endif
