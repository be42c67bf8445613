/* Saves a model as a Hugging Face directory.
 *
 * A manifest lists every tensor under its checkpoint name and assigns it to a weight file; files are
 * filled in order up to the requested size. Then the tensor data is written (save.h), then config.json and
 * the rest. All of it goes to a temporary directory that is renamed at the end, so a directory under the
 * final name is always complete. */
#include "checkpoint/hf_save.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/staging.h"
#include "chat/template.h"
#include "checkpoint/adapter.h"
#include "checkpoint/hf_files.h"
#include "checkpoint/hf_quantized.h"
#include "checkpoint/hf_sparse.h"
#include "checkpoint/slices.h"
#include "tokenizer/tokenizer.h"

enum { FILE_NAME = 64 };

/* ---- manifest ---- */

void hf_manifest_done(HfManifest *manifest) {
    free(manifest->item);
    *manifest = (HfManifest){0};
}

static Status add_item(HfManifest *manifest, const ModelConfig *config, const HfTensor *tensor, ParamRef ref,
                       const SaveOptions *options) {
    TRY(mem_grow(&manifest->item, &manifest->capacity, manifest->count + 1, sizeof *manifest->item));
    HfItem *item = &manifest->item[manifest->count++];
    *item = (HfItem){.tensor = *tensor, .ref = ref};
    /* As in transformers, tensors of an encoder without output heads have no prefix. */
    bool prefix = tensor->body && (config_is_decoder(config) || config->outputs_mask);
    if (snprintf(item->name, sizeof item->name, "%s%s%s", options->adapter ? ADAPTER_PREFIX : "",
                 prefix ? config->family->prefix : "", tensor->name) >= (int)sizeof item->name)
        return FAILED("internal: tensor name '%s' is too long", tensor->name);
    manifest->bytes += hf_tensor_count(tensor) * (int64_t)dtype_size(options->dtype);
    manifest->numel += hf_tensor_count(tensor);
    return OK;
}

static Status add_param(HfManifest *manifest, const ModelConfig *config, const ParamDesc *desc, ParamRef ref,
                        const SaveOptions *options) {
    CLEANUP(hf_tensors_done) HfTensorList list = {0};
    TRY(hf_tensors(config->family, desc, &list));
    for (size_t i = 0; i < list.count; i++) TRY(add_item(manifest, config, &list.tensor[i], ref, options));
    const char *const *bias = config->family->output_bias;
    if (config->tied || !bias[0] || strcmp(list.tensor[0].name, bias[0])) return OK;
    snprintf(list.tensor[0].name, HF_NAME, "%s", bias[1]);
    return add_item(manifest, config, &list.tensor[0], ref, options);
}

static void assign_files(HfManifest *manifest, const SaveOptions *options) {
    int64_t used = 0;
    manifest->files = 1;
    manifest->quantized = options->quantized != NULL;
    manifest->sparse = options->sparse;
    manifest->adapter = options->adapter;
    bool single = manifest->quantized || manifest->sparse; /* always a single file */
    for (size_t i = 0; i < manifest->count; i++) {
        int64_t bytes = hf_tensor_count(&manifest->item[i].tensor) * (int64_t)dtype_size(options->dtype);
        if (options->max_file_bytes > 0 && !single && used > 0 && used + bytes > options->max_file_bytes) {
            manifest->files++;
            used = 0;
        }
        manifest->item[i].file = manifest->files - 1;
        used += bytes;
    }
}

Status hf_manifest_init(HfManifest *ret_manifest, const Model *model, const SaveOptions *options) {
    CLEANUP(hf_manifest_done) HfManifest manifest = {.model = model};
    for (ModelParam param = {0}; model_param_next(model, &param);)
        if (!param.desc->packing && !(options->sparse && sparse_param(&param)) &&
            !(options->adapter && param.desc->frozen))
            TRY(add_param(&manifest, &model->config, param.desc, param.ref, options));
    assign_files(&manifest, options);
    return MOVE(ret_manifest, manifest);
}

/* ---- weights ---- */

/* Finite values that become infinite in a narrower type. */
typedef struct Overflow {
    int64_t count;
    float largest; /* the value with the largest magnitude */
} Overflow;

static void count_overflow(Overflow *overflow, DType dtype, const float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float value = values[i];
        if (!isfinite(value)) continue;
        float rounded = dtype == DT_F16 ? f16_to_f32(f32_to_f16(value)) : bf16_to_f32(f32_to_bf16(value));
        if (isfinite(rounded)) continue;
        overflow->count++;
        if (fabsf(value) > fabsf(overflow->largest)) overflow->largest = value;
    }
}

static Status check_item(const HfItem *item, DType dtype, const Store *params, Stream *stream) {
    const ParamSlot *slot = &params->unit[item->ref.unit].slot[item->ref.slot];
    int64_t count = hf_tensor_count(&item->tensor),
            first = item->tensor.part > 0 ? item->tensor.part * count : 0;
    const float *data = NULL;
    CLEANUP(mem_freep) float *copy = NULL;
    TRY(values_get(stream, store_values(params, item->ref.unit, slot->offset + first), count, &copy, &data));
    Overflow overflow = {0};
    count_overflow(&overflow, dtype, data, count);
    if (!overflow.count) return OK;
    return FAILED(
        "tensor '%s': %lld value%s (largest %g) would overflow to infinity in %s; save as %s instead",
        item->name, (long long)overflow.count, PLURAL(overflow.count), (double)overflow.largest,
        dtype_name(dtype), dtype == DT_F16 ? "bf16 or fp32" : "fp32");
}

/* A separate pass, so that overflow is reported before anything is written. */
static Status check_values(const HfManifest *manifest, const Store *params, Stream *stream, DType dtype) {
    if (dtype != DT_F16 && dtype != DT_BF16) return OK;
    for (size_t i = 0; i < manifest->count; i++) TRY(check_item(&manifest->item[i], dtype, params, stream));
    return OK;
}

static void weight_file_name(char name[FILE_NAME], const HfManifest *manifest, int file) {
    if (manifest->files == 1)
        snprintf(name, FILE_NAME,
                 manifest->adapter     ? ADAPTER_WEIGHTS
                 : manifest->quantized ? HF_INT8
                 : manifest->sparse    ? HF_SPARSE
                                       : HF_WEIGHTS);
    else
        snprintf(name, FILE_NAME, "model-%05d-of-%05d.safetensors", file + 1, manifest->files);
}

Status hf_manifest_list(const HfManifest *manifest, const char *dir, const Store *params, DType dtype,
                        SaveList *list) {
    int store = save_list_store(list, params, SAVE_SHARED), file = -1;
    for (size_t i = 0; i < manifest->count; i++) {
        const HfItem *item = &manifest->item[i];
        if (i == 0 || item->file != manifest->item[i - 1].file) {
            char name[FILE_NAME];
            weight_file_name(name, manifest, item->file);
            CLEANUP(mem_freep) char *path = NULL;
            TRY(path_join(&path, dir, name));
            TRY(save_list_file(list, path, &file));
        }
        TRY(save_list_add(list, store, 0, file, item->name, item->ref, &item->tensor, dtype));
    }
    return OK;
}

static Status write_index(const char *dir, const HfManifest *manifest) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, HF_INDEX));
    json_t *map = json_object();
    CLEANUP(json_decrefp)
    json_t *json = json_pack("{s:{s:I, s:I}, s:o}", "metadata", "total_size", (json_int_t)manifest->bytes,
                             "total_parameters", (json_int_t)manifest->numel, "weight_map", map);
    if (!json) return FAILED("%s: out of memory", path);
    for (size_t i = 0; i < manifest->count; i++) {
        char name[FILE_NAME];
        weight_file_name(name, manifest, manifest->item[i].file);
        if (json_object_set_new(map, manifest->item[i].name, json_string(name)))
            return FAILED("%s: out of memory", path);
    }
    return json_write_file(path, json);
}

/* ---- config.json and assets ---- */

static bool same_labels(const json_t *a, const json_t *b) {
    return json_is_object(a) && json_is_object(b) && json_object_size(a) == json_object_size(b);
}

/* Copies fields that `json` lacks from another config.json of the same model type, except those that
 * describe how the old files were written. */
static Status keep_fields(json_t *json, const char *assets_dir) {
    static const char *const stale[] = {"torch_dtype",
                                        "dtype",
                                        "transformers_version",
                                        "_name_or_path",
                                        "auto_map",
                                        "num_labels",
                                        "problem_type",
                                        "quantization_config",
                                        "quantization",
                                        "pruned_heads",
                                        "sparsity",
                                        "n_ctx",
                                        "weft",
                                        "num_hidden_layers",
                                        "hidden_size",
                                        "num_attention_heads",
                                        "_num_labels",
                                        "max_position_embeddings"};
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, assets_dir, "config.json"));
    CLEANUP(json_decrefp) json_t *old = NULL;
    CLEANUP(status_freep) Status ignored = json_read_file(path, &old);
    const char *type = json_string_value(json_object_get(json, "model_type"));
    const char *old_type = json_string_value(json_object_get(old, "model_type"));
    if (ignored || !old_type || strcmp(type, old_type)) return OK;
    for (size_t i = 0; i < sizeof stale / sizeof stale[0]; i++) json_object_del(old, stale[i]);
    if (same_labels(json_object_get(json, "id2label"), json_object_get(old, "id2label"))) {
        json_object_del(json, "id2label");
        json_object_del(json, "label2id");
    }
    if (json_object_update_missing(json, old)) return FAILED("config.json: out of memory");
    return OK;
}

static const char *torch_name(DType dtype) {
    return dtype == DT_BF16  ? "bfloat16"
           : dtype == DT_F16 ? "float16"
           : dtype == DT_F64 ? "float64"
                             : "float32";
}

static Status write_config(const char *dir, const ModelConfig *config, const SaveOptions *options) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    ModelConfig written = *config;
    written.sparse = options->sparse;
    TRY(hf_config_json(&written, &json));
    if (options->assets_dir) TRY(keep_fields(json, options->assets_dir));
    /* "dtype" since transformers 4.56, "torch_dtype" before. */
    int failed = json_object_set_new(json, "dtype", json_string(torch_name(options->dtype)));
    failed |= json_object_set_new(json, "torch_dtype", json_string(torch_name(options->dtype)));
    if (options->labels && config_labeled(config) && (int64_t)options->labels->count == config->labels)
        failed |= hf_put_labels(json, config->labels, options->labels);
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, "config.json"));
    if (failed) return FAILED("%s: out of memory", path);
    CLEANUP(mem_freep) char *text = NULL;
    TRY(json_text(json, JSON_INDENT(2) | JSON_SORT_KEYS, &text));
    CLEANUP(file_writer_freep) FileWriter *writer = NULL;
    TRY(file_writer_new(&writer, path));
    TRY(file_print(writer, "%s\n", text));
    return file_commit(writer);
}

static Status write_byte_tokenizer(const char *dir, bool bert) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    TRY(tokenizer_new_bytes(&tokenizer, bert));
    return tokenizer_save(tokenizer, dir);
}

static Status write_chat_template(const char *dir, const char *text) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(file_writer_freep) FileWriter *writer = NULL;
    TRY(path_join(&path, dir, CHAT_TEMPLATE_FILE));
    TRY(file_writer_new(&writer, path));
    TRY(file_write(writer, text, strlen(text)));
    return file_commit(writer);
}

static Status copy_assets(const char *dir, const ModelConfig *config, const SaveOptions *options) {
    static const char *const generation[] = {"generation_config.json", NULL};
    if (options->assets_dir) TRY(dir_copy_files(dir, options->assets_dir, generation));
    const char *from = options->tokenizer_dir ? options->tokenizer_dir : options->assets_dir;
    if (from) TRY(tokenizer_copy(from, dir));
    if (options->chat_template) TRY(write_chat_template(dir, options->chat_template));
    bool bert = config->family->byte_specials;
    if (!options->bytes || tokenizer_exists(dir) ||
        !tokenizer_fits(bert ? BYTE_VOCAB_BERT : BYTE_VOCAB_GPT2, config->vocab))
        return OK;
    return write_byte_tokenizer(dir, bert);
}

Status hf_write_rest(const char *dir, const HfManifest *manifest, const ModelConfig *config,
                     const SaveOptions *options) {
    if (manifest->files > 1) TRY(write_index(dir, manifest));
    TRY(copy_assets(dir, config, options));
    if (options->adapter) TRY(adapter_config_write(dir, manifest->model, options->assets_dir));
    return write_config(dir, config, options);
}

/* ---- the directory ---- */

/* An empty directory is allowed: the rename replaces it. */
Status hf_save_check(const char *path) {
    if (!path_exists(path)) return OK;
    if (!path_is_dir(path)) return FAILED("%s is a file; expected a new or empty directory", path);
    return dir_is_empty(path)
               ? OK
               : FAILED("%s is not empty or cannot be read; choose a new or empty directory", path);
}

Status hf_save(const char *dir, const Store *params, Stream *stream, const SaveOptions *options) {
    CLEANUP(staging_done) StagingDir staging = STAGING_NONE;
    CLEANUP(hf_manifest_done) HfManifest manifest = {0};
    if (config_quantized(&params->model->config) && !options->quantized)
        return FAILED("internal: a quantized model is saved without its quantized parameters");
    TRY(hf_manifest_init(&manifest, params->model, options));
    TRY(check_values(&manifest, params, stream, options->dtype));
    TRY(staging_make(&staging, dir));
    TRY(hf_save_check(staging.target));
    CLEANUP(save_list_done) SaveList list = {0};
    TRY(hf_manifest_list(&manifest, staging.path, params, options->dtype, &list));
    int64_t at = list.count ? safe_writer_declared(list.file[0]) : 0;
    if (options->quantized) TRY(quantized_declare(options->quantized, list.file[0]));
    if (options->sparse) TRY(sparse_declare(params, options->dtype, list.file[0]));
    TRY(save_list_create(&list));
    if (options->quantized) TRY(quantized_write(options->quantized, list.file[0]));
    if (options->sparse) TRY(sparse_write(params, options->dtype, at, list.file[0]));
    TRY(save_list_write(&list, NULL, NULL, stream));
    TRY(hf_write_rest(staging.path, &manifest, &params->model->config, options));
    return staging_commit(&staging, false);
}
