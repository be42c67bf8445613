#include "checkpoint/adapter.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checksums.h"
#include "checkpoint/hf_files.h"
#include "checkpoint/slices.h"
#include "model/fields.h"
#include "model/head.h"

void lora_targets_done(LoraTargets *targets) {
    free(targets->target);
    *targets = (LoraTargets){0};
}

/* ---- targets ---- */

/* Whether a pattern matches a module's name, or what follows a dot in it. */
static bool module_matches(const char *pattern, const char *module) {
    for (const char *at = module; at; at = strchr(at, '.')) {
        at += *at == '.';
        if (!fnmatch(pattern, at, 0)) return true;
    }
    return false;
}

/* A tensor's name without ".weight", and with the family's prefix. */
static void module_name(const Family *family, const HfTensor *tensor, char name[2 * HF_NAME]) {
    const char *end = strrchr(tensor->name, '.');
    snprintf(name, 2 * HF_NAME, "%s%.*s", tensor->body ? family->prefix : "", (int)(end - tensor->name),
             tensor->name);
}

/* Looks a module up in the patterns and notes which match it. */
static bool is_wanted(const char *const *patterns, int count, const ParamDesc *desc, const char *module,
                      bool *found) {
    bool wanted = !count;
    for (int i = 0; i < count; i++)
        if (module_matches(patterns[i], module) || param_matches(desc, patterns[i])) wanted = found[i] = true;
    return wanted;
}

static Status add_modules(const Model *model, const ParamDesc *desc, const char *const *patterns, int count,
                          bool *found, LoraTargets *targets) {
    CLEANUP(hf_tensors_done) HfTensorList list = {0};
    TRY(hf_tensors(model->config.family, desc, &list));
    for (size_t i = 0; i < list.count; i++) {
        char module[2 * HF_NAME];
        module_name(model->config.family, &list.tensor[i], module);
        if (!is_wanted(patterns, count, desc, module, found)) continue;
        TRY(mem_grow(&targets->target, &targets->capacity, (size_t)targets->count + 1,
                     sizeof *targets->target));
        LoraTarget *target = &targets->target[targets->count++];
        *target = (LoraTarget){.part = list.tensor[i].part};
        snprintf(target->matrix, sizeof target->matrix, "%s", desc->name);
    }
    return OK;
}

Status lora_targets_find(const Model *model, const char *const *patterns, int count,
                         LoraTargets *ret_targets) {
    CLEANUP(lora_targets_done) LoraTargets targets = {0};
    CLEANUP(mem_freep) bool *found = NULL;
    TRY(mem_new((size_t)count + 1, sizeof *found, &found));
    for (ModelParam param = {0}; model_param_next(model, &param);)
        if (param_takes_adapter(param.desc))
            TRY(add_modules(model, param.desc, patterns, count, found, &targets));
    for (int i = 0; i < count; i++)
        if (!found[i])
            return USAGE("no linear layer of attention or an MLP matches '%s'; names are like 'q_proj', "
                         "'self_attn.*' and 'layer.0.attn'",
                         patterns[i]);
    return MOVE(ret_targets, targets);
}

Status lora_adapt(Model *model, LoraConfig lora, const char *const *targets, int target_count,
                  const char *const *freeze, int freeze_count) {
    enum { OWN = 4 };
    CLEANUP(lora_targets_done) LoraTargets found = {0};
    CLEANUP(mem_freep) const char **pattern = NULL;
    int count = 0;
    TRY(lora_targets_find(model, targets, target_count, &found));
    TRY(model_adapt(model, lora, found.target, found.count));
    TRY(mem_new(OWN + (size_t)freeze_count, sizeof *pattern, &pattern));
    pattern[count++] = "*";
    pattern[count++] = "!*.lora_[ab]";
    if (config_has(&model->config, OUTPUT_CLASSIFY)) pattern[count++] = "!head.classify";
    if (config_has(&model->config, OUTPUT_SPAN)) pattern[count++] = "!head.span";
    for (int i = 0; i < freeze_count; i++) pattern[count++] = freeze[i];
    return model_freeze(model, pattern, count);
}

/* ---- directories ---- */

static Status exists_in(const char *dir, const char *name, bool *ret_exists) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, name));
    *ret_exists = path_exists(path);
    return OK;
}

Status adapter_in(const char *dir, bool *ret_adapter) {
    bool adapter = false, weights = false, index = false;
    TRY(exists_in(dir, ADAPTER_CONFIG, &adapter));
    TRY(exists_in(dir, HF_WEIGHTS, &weights));
    TRY(exists_in(dir, HF_INDEX, &index));
    *ret_adapter = adapter && !weights && !index;
    return OK;
}

Status adapter_base(const char *dir, char **ret_base) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
    bool adapter = false, again = false;
    TRY(adapter_in(dir, &adapter));
    *ret_base = NULL;
    if (!adapter) return OK;
    TRY(path_join(&path, dir, ADAPTER_CONFIG));
    TRY(json_read_file(path, &json));
    const char *base = json_string_value(json_object_get(json, "base_model_name_or_path"));
    if (!base || !path_is_dir(base))
        return FAILED(
            "%s is an adapter of the model %s, which is not a directory here; give the model's directory "
            "instead, and this one as {adapter}",
            dir, base ? base : "that it does not name");
    TRY(adapter_in(base, &again));
    if (again) return FAILED("%s is an adapter of %s, which is an adapter itself", dir, base);
    return str_dup(base, ret_base);
}

/* ---- adapter_config.json ---- */

/* Modules, and whether each of them has an adapter. */
typedef struct Modules {
    char (*name)[2 * HF_NAME];
    bool *chosen;
    size_t count, capacity, flags;
    bool transposed; /* one with an adapter is stored as (in, out) */
} Modules;

static void modules_done(Modules *modules) {
    free(modules->name);
    free(modules->chosen);
}

static Status add_module(Modules *modules, const Family *family, const HfTensor *tensor, bool chosen) {
    TRY(mem_grow(&modules->name, &modules->capacity, modules->count + 1, sizeof *modules->name));
    TRY(mem_grow(&modules->chosen, &modules->flags, modules->count + 1, sizeof *modules->chosen));
    module_name(family, tensor, modules->name[modules->count]);
    modules->chosen[modules->count++] = chosen;
    modules->transposed |= chosen && tensor->transposed;
    return OK;
}

/* Whether a model has an adapter of the tensor that is a part of a matrix. */
static bool has_adapter(const Model *model, const ParamDesc *matrix, int part) {
    char name[2 * PARAM_NAME];
    int stem = (int)(strrchr(matrix->name, '.') - matrix->name);
    if (part < 0)
        snprintf(name, sizeof name, "%.*s.lora_a", stem, matrix->name);
    else
        snprintf(name, sizeof name, "%.*s.%d.lora_a", stem, matrix->name, part);
    for (ModelParam param = {0}; model_param_next(model, &param);)
        if (!strcmp(param.desc->name, name)) return true;
    return false;
}

/* All matrices of the model's files. */
static Status list_modules(const Model *model, Modules *modules) {
    for (ModelParam param = {0}; model_param_next(model, &param);) {
        CLEANUP(hf_tensors_done) HfTensorList list = {0};
        const ParamDesc *desc = param.desc;
        if (param_is_adapter(desc) || !path_ends_with(desc->name, ".weight")) continue;
        TRY(hf_tensors(model->config.family, desc, &list));
        for (size_t i = 0; i < list.count; i++) {
            bool chosen = param_takes_adapter(desc) && has_adapter(model, desc, list.tensor[i].part);
            TRY(add_module(modules, model->config.family, &list.tensor[i], chosen));
        }
    }
    return OK;
}

/* The shortest end of a chosen module's name that no other module has which is not chosen. */
static const char *target_name(const Modules *modules, const char *name) {
    for (const char *at = name + strlen(name); at > name; at--) {
        bool own = at[-1] == '.';
        for (size_t i = 0; own && i < modules->count; i++)
            own = modules->chosen[i] || !module_matches(at, modules->name[i]);
        if (own) return at;
    }
    return name;
}

static Status add_once(json_t *list, const char *text) {
    size_t i;
    json_t *value;
    json_array_foreach(list, i, value) if (!strcmp(json_string_value(value), text)) return OK;
    return json_array_append_new(list, json_string(text)) ? FAILED("out of memory") : OK;
}

static Status list_targets(const Modules *modules, json_t *list) {
    for (size_t i = 0; i < modules->count; i++)
        if (modules->chosen[i]) TRY(add_once(list, target_name(modules, modules->name[i])));
    return OK;
}

/* The modules of what is trained besides adapters. */
static Status list_saved(const Model *model, json_t *list) {
    for (ModelParam param = {0}; model_param_next(model, &param);) {
        CLEANUP(hf_tensors_done) HfTensorList tensors = {0};
        if (param.desc->frozen || param_is_adapter(param.desc)) continue;
        TRY(hf_tensors(model->config.family, param.desc, &tensors));
        for (size_t i = 0; i < tensors.count; i++) {
            char name[2 * HF_NAME];
            module_name(model->config.family, &tensors.tensor[i], name);
            TRY(add_once(list, name));
        }
    }
    return OK;
}

static const char *task_type(const ModelConfig *config) {
    return config_is_decoder(config)             ? "CAUSAL_LM"
           : config_has(config, OUTPUT_CLASSIFY) ? "SEQ_CLS"
           : config_has(config, OUTPUT_SPAN)     ? "QUESTION_ANS"
                                                 : NULL;
}

Status adapter_config_write(const char *dir, const Model *model, const char *base) {
    const LoraConfig *lora = &model->config.lora;
    CLEANUP(modules_done) Modules modules = {0};
    CLEANUP(json_decrefp) json_t *targets = json_array(), *saved = json_array();
    CLEANUP(mem_freep) char *path = NULL, *real = base ? realpath(base, NULL) : NULL;
    TRY(path_join(&path, dir, ADAPTER_CONFIG));
    TRY(list_modules(model, &modules));
    TRY(list_targets(&modules, targets));
    TRY(list_saved(model, saved));
    CLEANUP(json_decrefp)
    json_t *json = json_pack(
        "{s:s, s:s?, s:s?, s:i, s:o, s:o, s:O, s:O, s:s, s:b, s:b, s:b, s:b, s:b}", "peft_type", "LORA",
        "task_type", task_type(&model->config), "base_model_name_or_path", real, "r", lora->rank,
        "lora_alpha", field_real(lora->alpha), "lora_dropout", field_real(lora->dropout), "target_modules",
        targets, "modules_to_save", saved, "bias", "none", "use_rslora", lora->rslora, "use_dora", 0,
        "fan_in_fan_out", modules.transposed, "inference_mode", 1, "init_lora_weights", 1);
    if (!json) return FAILED("%s: out of memory", path);
    if (!json_array_size(saved)) json_object_set_new(json, "modules_to_save", json_null());
    return json_write_file(path, json);
}

/* ---- merging ---- */

struct Adapter {
    char *path; /* of adapter_config.json */
    json_t *config;
    HfFiles *files;
    const Family *family;
    double alpha;
    bool rslora;
};

void adapter_free(Adapter *adapter) {
    if (!adapter) return;
    free(adapter->path);
    json_decref(adapter->config);
    hf_files_free(adapter->files);
    free(adapter);
}

/* The tensors of a module's product; both or neither. */
typedef struct Product {
    const SafeTensor *a, *b;
} Product;

static HfEntry *find_named(Adapter *adapter, const HfTensor *tensor, const char *end) {
    char name[2 * HF_NAME];
    const char *dot = end ? strrchr(tensor->name, '.') : tensor->name + strlen(tensor->name);
    snprintf(name, sizeof name, "%.*s%s", (int)(dot - tensor->name), tensor->name, end ? end : "");
    HfEntry *entry = hf_files_find_prefixed(adapter->files, ADAPTER_PREFIX,
                                            tensor->body ? adapter->family->prefix : "", name);
    if (entry) entry->used = true;
    return entry;
}

static Status check_shape(const HfEntry *entry, int64_t rows, int64_t cols) {
    char found[SHAPE_TEXT], expected[SHAPE_TEXT];
    const SafeTensor *t = entry->tensor;
    if (t->dtype <= DT_F64 && t->ndim == 2 && t->dim[0] == rows && t->dim[1] == cols) return OK;
    return FAILED(
        "%s: tensor '%s' is %s of shape %s, but the model expects a floating-point one of shape %s; is "
        "this an adapter of another model?",
        entry->path, t->name, t->type, safe_shape_text(found, t->ndim, t->dim),
        safe_shape_text(expected, 2, (const int64_t[]){rows, cols}));
}

static Status find_product(Adapter *adapter, const HfTensor *tensor, Product *ret_product) {
    *ret_product = (Product){0};
    if (tensor->ndim != 2 || !path_ends_with(tensor->name, ".weight")) return OK;
    HfEntry *a = find_named(adapter, tensor, ".lora_A.weight"),
            *b = find_named(adapter, tensor, ".lora_B.weight");
    if (!a && !b) return OK;
    if (!a || !b)
        return FAILED("%s: '%s' has no %s", (a ? a : b)->path, (a ? a : b)->tensor->name,
                      a ? "lora_B" : "lora_A");
    int64_t rank = b->tensor->ndim == 2 ? b->tensor->dim[1] : 0;
    TRY(check_shape(a, rank, tensor->dim[!tensor->transposed]));
    TRY(check_shape(b, tensor->dim[tensor->transposed], rank));
    *ret_product = (Product){a->tensor, b->tensor};
    return OK;
}

static Status find_whole(Adapter *adapter, const HfTensor *tensor, const SafeTensor **ret_whole) {
    char found[SHAPE_TEXT], expected[SHAPE_TEXT];
    const HfEntry *entry = find_named(adapter, tensor, NULL);
    *ret_whole = NULL;
    if (!entry) return OK;
    const SafeTensor *t = entry->tensor;
    bool same = t->dtype <= DT_F64 && t->ndim == tensor->ndim;
    for (int i = 0; same && i < t->ndim; i++) same = t->dim[i] == tensor->dim[i];
    *ret_whole = t;
    if (same) return OK;
    return FAILED(
        "%s: tensor '%s' has shape %s, but the model expects %s; is this an adapter of another model?",
        entry->path, t->name, safe_shape_text(found, t->ndim, t->dim),
        safe_shape_text(expected, tensor->ndim, tensor->dim));
}

bool adapter_replaces(Adapter *adapter, const ParamDesc *desc) {
    CLEANUP(hf_tensors_done) HfTensorList list = {0};
    CLEANUP(status_freep) Status unnamed = hf_tensors(adapter->family, desc, &list);
    bool all = list.count > 0;
    for (size_t i = 0; i < list.count; i++) all &= find_named(adapter, &list.tensor[i], NULL) != NULL;
    return all;
}

/* What weft does not compute. */
static Status check_config(const Adapter *adapter) {
    const char *type = NULL, *bias = "none";
    bool dora = false;
    TRY(json_get_string(adapter->config, adapter->path, "peft_type", &type));
    if (!type || strcmp(type, "LORA"))
        return FAILED("%s: 'peft_type' is %s; weft reads adapters of type LORA", adapter->path,
                      type ? type : "missing");
    TRY(json_get_string(adapter->config, adapter->path, "bias", &bias));
    TRY(json_get_bool(adapter->config, adapter->path, "use_dora", &dora));
    if (dora) return FAILED("%s: 'use_dora' is true; weft reads adapters without magnitudes", adapter->path);
    const char *const patterns[] = {"alpha_pattern", "rank_pattern"};
    for (int i = 0; i < 2; i++)
        if (json_object_size(json_object_get(adapter->config, patterns[i])))
            return FAILED("%s: '%s' is set; weft reads adapters with one rank and alpha", adapter->path,
                          patterns[i]);
    return OK;
}

static Status check_tensors(Adapter *adapter, const Model *model) {
    char shown[NAME_TEXT];
    for (ModelParam param = {0}; model_param_next(model, &param);) {
        CLEANUP(hf_tensors_done) HfTensorList list = {0};
        Product product;
        const SafeTensor *whole;
        TRY(hf_tensors(adapter->family, param.desc, &list));
        for (size_t i = 0; i < list.count; i++) {
            TRY(find_product(adapter, &list.tensor[i], &product));
            TRY(find_whole(adapter, &list.tensor[i], &whole));
            if (product.a && param.desc->packing)
                return FAILED("%s cannot be merged into quantized weights; merge it into the original model",
                              adapter->files->dir);
        }
    }
    for (size_t i = 0; i < adapter->files->entries; i++)
        if (!adapter->files->entry[i].used)
            return FAILED(
                "%s: the model has nothing that tensor '%s' belongs to; is this an adapter of another "
                "model?",
                adapter->files->entry[i].path, name_text(shown, adapter->files->entry[i].tensor->name));
    return OK;
}

static Status read_config(Adapter *adapter, const char *dir) {
    TRY(path_join(&adapter->path, dir, ADAPTER_CONFIG));
    if (!path_exists(adapter->path)) return FAILED("%s is no adapter: it has no %s", dir, ADAPTER_CONFIG);
    TRY(json_read_file(adapter->path, &adapter->config));
    TRY(check_config(adapter));
    TRY(json_get_double(adapter->config, adapter->path, "lora_alpha", 0, 1e9, &adapter->alpha));
    return json_get_bool(adapter->config, adapter->path, "use_rslora", &adapter->rslora);
}

Status adapter_open(Adapter **ret_adapter, const char *dir, const Model *model) {
    CLEANUP(adapter_freep) Adapter *adapter = NULL;
    TRY(mem_new(1, sizeof *adapter, &adapter));
    adapter->family = model->config.family;
    TRY(read_config(adapter, dir));
    TRY(hf_files_open_single(&adapter->files, dir, ADAPTER_WEIGHTS));
    TRY(check_tensors(adapter, model));
    return MOVE(ret_adapter, adapter);
}

/* scale * B A, in fp32 (out,in). */
static Status multiply(const Adapter *adapter, Product product, float **ret_result) {
    int64_t r = product.a->dim[0], in = product.a->dim[1], out = product.b->dim[0];
    CLEANUP(mem_freep) float *a = NULL, *b = NULL, *result = NULL;
    float scale = (float)(adapter->alpha / (adapter->rslora ? sqrt((double)r) : (double)r));
    TRY(mem_new((size_t)(r * in), sizeof *a, &a));
    TRY(mem_new((size_t)(out * r), sizeof *b, &b));
    TRY(mem_new((size_t)(out * in), sizeof *result, &result));
    TRY(values_read(a, product.a, 0, r * in));
    TRY(values_read(b, product.b, 0, out * r));
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < out; o++) {
        float *row = result + o * in;
        for (int64_t k = 0; k < r; k++)
            for (int64_t i = 0; i < in; i++) row[i] += b[o * r + k] * a[k * in + i];
        for (int64_t i = 0; i < in; i++) row[i] *= scale;
    }
    return MOVE(ret_result, result);
}

/* Adds values to the elements that this rank has of a parameter. */
static Status add_part(const StorePart *part, const float *more, Stream *stream) {
    const float *old = NULL;
    float *sum = NULL;
    CLEANUP(mem_freep) float *copy = NULL, *staging = NULL;
    TRY(values_get(stream, part->values, part->count, &copy, &old));
    TRY(values_space(stream, part->values, part->count, &staging, &sum));
    for (int64_t i = 0; i < part->count; i++) sum[i] = old[i] + more[i];
    return values_set(stream, part->values, part->count, staging);
}

/* Adds the product that belongs to one tensor of a parameter. */
static Status merge_tensor(const Adapter *adapter, Store *params, ParamRef ref, const HfTensor *tensor,
                           Product product, const RootDisk *disk, Stream *stream) {
    StorePart part;
    CLEANUP(mem_freep) float *all = NULL, *own = NULL;
    HfTensor wanted = {.part = tensor->part, .ndim = 2, .dim = {product.b->dim[0], product.a->dim[1]}};
    SafeTensor made = {.name = tensor->name,
                       .type = "F32",
                       .dtype = DT_F32,
                       .ndim = 2,
                       .dim = {wanted.dim[0], wanted.dim[1]},
                       .bytes = (size_t)hf_tensor_count(&wanted) * sizeof *all};
    bool here = store_part(params, ref, &part);
    if (disk ? disk->group->rank == 0 : here) TRY(multiply(adapter, product, &all));
    made.data = (const unsigned char *)all;
    const SafeTensor *const from[] = {&made};
    if (here) TRY(mem_new((size_t)part.count, sizeof *own, &own));
    if (disk)
        TRY(slice_receive(own, part.slot, part.from, part.count, &wanted, from, 1, disk));
    else if (here)
        TRY(slice_read(own, part.slot, part.from, part.count, &wanted, from, 1));
    return here ? add_part(&part, own, stream) : OK;
}

static Status merge_param(Adapter *adapter, Store *params, const ModelParam *param, const RootDisk *disk,
                          Stream *stream) {
    CLEANUP(hf_tensors_done) HfTensorList list = {0};
    CLEANUP(mem_freep) const SafeTensor **whole = NULL;
    Product product;
    size_t found = 0;
    TRY(hf_tensors(adapter->family, param->desc, &list));
    TRY(mem_new(list.count, sizeof *whole, &whole));
    for (size_t i = 0; i < list.count; i++) {
        TRY(find_whole(adapter, &list.tensor[i], &whole[i]));
        found += whole[i] != NULL;
    }
    if (found && found == list.count)
        TRY(store_read_slot(params, param->ref, list.tensor, whole, (int)list.count, disk, stream));
    for (size_t i = 0; i < list.count; i++) {
        TRY(find_product(adapter, &list.tensor[i], &product));
        if (product.a) TRY(merge_tensor(adapter, params, param->ref, &list.tensor[i], product, disk, stream));
    }
    return OK;
}

Status adapter_merge(Adapter *adapter, Store *params, const RootDisk *disk, Stream *stream) {
    for (ModelParam param = {0}; model_param_next(params->model, &param);)
        TRY(merge_param(adapter, params, &param, disk, stream));
    return OK;
}

/* A directory that is open, or a mirror of it. */
typedef struct Source {
    ModelDir dir;
    Mirror mirror;
    const char *path;
} Source;

static void source_done(Source *source) {
    model_dir_done(&source->dir);
    mirror_done(&source->mirror);
}

static Status source_open(Source *source, const char *path, const RootDisk *disk) {
    TRY(model_dir_open(&source->dir, path));
    source->path = source->dir.path;
    if (disk) TRY(mirror_init(&source->mirror, disk, source->path));
    if (disk) source->path = source->mirror.path;
    if (!source->path) return FAILED("%s: no such directory", path);
    return checksums_verify_at(source->path, disk, VERIFY_WEIGHTS, NULL);
}

static Status merge_dir(const char *path, Store *params, const RootDisk *disk, Stream *stream) {
    CLEANUP(source_done) Source source = {0};
    CLEANUP(adapter_freep) Adapter *adapter = NULL;
    TRY(source_open(&source, path, disk));
    TRY(adapter_open(&adapter, source.path, params->model));
    return adapter_merge(adapter, params, disk, stream);
}

/* Whether adapters have the same scale; their ranks and layers show in their tensors. */
static Status check_scale(const Adapter *adapter, const LoraConfig *lora) {
    if (adapter->alpha == (double)lora->alpha && adapter->rslora == lora->rslora) return OK;
    return USAGE("%s has a scale of its own; use {lora-alpha} %g %s {rslora}", adapter->path, adapter->alpha,
                 adapter->rslora ? "and" : "without");
}

Status adapter_load(const char *path, Store *params, const RootDisk *disk, Stream *stream) {
    CLEANUP(source_done) Source source = {0};
    CLEANUP(adapter_freep) Adapter *adapter = NULL;
    CLEANUP(load_report_done) LoadReport report = {0};
    TRY(source_open(&source, path, disk));
    TRY(mem_new(1, sizeof *adapter, &adapter));
    TRY(read_config(adapter, source.path));
    TRY(check_scale(adapter, &params->model->config.lora));
    TRY(hf_weights_receive(source.path, disk, params, stream, &report));
    if (report.missing_count)
        return USAGE("%s has no tensor for %s; use its {lora-targets}", path, report.missing[0]);
    if (report.unexpected_count)
        return USAGE("%s has the tensor '%s', but the model has no such adapter; use its {lora-targets}",
                     path, report.unexpected[0]);
    return OK;
}

Status adapters_merge(const char *const *dirs, int count, Store *params, const RootDisk *disk,
                      Stream *stream) {
    for (int i = 0; i < count; i++) TRY(merge_dir(dirs[i], params, disk, stream));
    return OK;
}
