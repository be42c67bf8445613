/* Loading a checkpoint for generation. */
#include "infer/engine.h"

#include <string.h>

#include "base/fs.h"
#include "checkpoint/adapter.h"
#include "checkpoint/checksums.h"
#include "data/released.h"
#include "model/family.h"
#include "model/rope.h"

static Status check_generates(const char *dir, const ModelConfig *config) {
    char titles[FAMILY_TITLES];
    if (config_is_decoder(config) && !config_causal(config))
        return FAILED("%s: the model attends in both directions ('is_causal' is false in config.json), so it "
                      "cannot generate text",
                      dir);
    if (!config_causal(config))
        return FAILED("%s: %s models cannot generate text; use a checkpoint of %s", dir,
                      config->family->title, family_titles(OUTPUT_LM, "or", titles));
    if (!config_has(config, OUTPUT_LM))
        return FAILED("%s: the model has no language-modeling head, so it cannot generate text", dir);
    return OK;
}

Status engine_find(const char *dir, ModelDir *ret_dir, ModelConfig *ret_config) {
    char hint[RELEASED_HINT];
    if (!path_is_dir(dir) && !model_path_is_file(dir))
        return FAILED("%s: %s; expected a checkpoint directory%s", dir,
                      path_exists(dir) ? "not a directory" : "no such directory",
                      path_exists(dir) ? "" : released_hint(dir, false, hint));
    CLEANUP(model_dir_done) ModelDir from = {0};
    TRY(model_dir_open(&from, dir));
    ModelConfig config;
    TRY(hf_config_read(from.path, &config));
    TRY(check_generates(from.path, &config));
    TRY(hf_generation_read(from.path, &config));
    *ret_config = config;
    return MOVE(ret_dir, from);
}

static Status load_params(Engine *engine, const char *dir, const EngineOptions *options) {
    TRY(hf_weights_check(dir, engine->model, &engine->report));
    TRY(load_report_check(&engine->report, dir, &engine->model->config, false));
    load_report_done(&engine->report);
    TRY(checksums_verify(dir, VERIFY_WEIGHTS, NULL, NULL));
    TRY(hf_quantized_load(dir, engine->model, &engine->exec));
    TRY(hf_sparse_load(dir, engine->model, &engine->exec));
    TRY(store_new(&engine->params, engine->model, engine->device, MEM_PARAMS));
    TRY(hf_weights_load(dir, engine->params, engine->stream, &engine->report));
    return adapters_merge(options->adapters, options->adapter_count, engine->params, NULL, engine->stream);
}

static Status set_cache_type(Engine *engine, const EngineOptions *options) {
    static const struct {
        const char *name;
        DType dtype;
    } types[] = {{"fp32", DT_F32}, {"bf16", DT_BF16}, {"int8", DT_I8}};
    engine->cache = options->dtype;
    if (!options->cache) return OK;
    int i = 0, count = (int)(sizeof types / sizeof *types);
    while (i < count && strcmp(options->cache, types[i].name)) i++;
    if (i == count) return USAGE("unknown KV cache type '%s'; expected fp32, bf16 or int8", options->cache);
    engine->cache = types[i].dtype;
    if (engine->cache == options->dtype) return OK;
    if (engine->cache == DT_I8 || (engine->cache == DT_BF16 && options->dtype == DT_F32)) return OK;
    return USAGE("a KV cache of type %s cannot be used when computing in %s; use %s or int8", options->cache,
                 dtype_name(options->dtype), dtype_name(options->dtype));
}

/* Creates everything but the model and its weights. */
static Status engine_begin(Engine **ret_engine, const EngineOptions *options) {
    const char *device = options->device ? options->device : "cpu";
    CLEANUP(engine_freep) Engine *engine = NULL;
    TRY(mem_new(1, sizeof *engine, &engine));
    TRY(device_new(&engine->device, device, 0, options->threads));
    engine->run_ahead = !device_is_host(engine->device);
    TRY(set_cache_type(engine, options));
    TRY(kernels_for(device, options->kernels, &engine->exec.table));
    TRY(stream_new(&engine->stream, engine->device));
    engine->exec.stream = engine->stream;
    engine->cp = options->cp && options->cp->size > 1 ? options->cp : NULL;
    TRY(group_new_self(&engine->tp));
    return MOVE(ret_engine, engine);
}

Status engine_new(Engine **ret_engine, const char *dir, const EngineOptions *options) {
    CLEANUP(model_dir_done) ModelDir from = {0};
    CLEANUP(engine_freep) Engine *engine = NULL;
    ModelConfig config;
    TRY(kernels_check_device(options->device ? options->device : "cpu", options->kernels));
    TRY(engine_find(dir, &from, &config));
    if (options->rope_scaling) TRY(rope_extend(options->rope_scaling, &config));
    TRY(engine_begin(&engine, options));
    TRY(hf_quantized_check(from.path, &config, engine->device, options->dtype));
    hf_sparse_choose(&config, engine->device, options->dtype);
    TRY(model_new(&engine->model, &config));
    TRY(load_params(engine, from.path, options));
    TRY(store_convert(engine->params, &engine->exec, options->dtype));
    return MOVE(ret_engine, engine);
}

Status engine_new_random(Engine **ret_engine, const ModelConfig *config, uint64_t seed,
                         const EngineOptions *options) {
    CLEANUP(engine_freep) Engine *engine = NULL;
    TRY(kernels_check_device(options->device ? options->device : "cpu", options->kernels));
    TRY(check_generates("the model", config));
    TRY(engine_begin(&engine, options));
    TRY(model_new(&engine->model, config));
    TRY(store_new(&engine->params, engine->model, engine->device, MEM_PARAMS));
    TRY(store_init_params(engine->params, engine->stream, seed));
    TRY(store_convert(engine->params, &engine->exec, options->dtype));
    return MOVE(ret_engine, engine);
}

void engine_free(Engine *engine) {
    if (!engine) return;
    load_report_done(&engine->report);
    store_free(engine->params);
    model_free(engine->model);
    group_free(engine->tp);
    stream_free(engine->stream);
    device_free(engine->device);
    free(engine);
}
