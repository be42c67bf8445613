/* Saving a model as a Hugging Face directory.
 *
 * First a plan: every tensor of the model under its checkpoint name, and the shard it goes to (filled in
 * order up to the size asked for). Then each shard is streamed, a tensor at a time. The whole is written
 * beside its place and renamed, so a directory under the final name is always complete. */
#include "checkpoint/hf_save.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "checkpoint/convert.h"
#include "checkpoint/hf_files.h"
#include "checkpoint/hf_names.h"

enum { PIECE = 1 << 20 /* elements */, FILE_NAME = 64, FULL_NAME = HF_NAME + 16 };

typedef struct Item {
    char name[FULL_NAME];
    HfTensor tensor;
    Tensor values; /* the part of the parameter */
    int64_t bytes; /* in the file */
    int shard;
} Item;

typedef struct Plan {
    Item *item;
    size_t count, capacity;
    int shards;
    int64_t bytes, numel;
} Plan;

static void plan_done(Plan *plan) {
    free(plan->item);
}

/* ---- the plan ---- */

static Status add_item(Plan *plan, const ModelConfig *config, const HfTensor *tensor, Tensor view,
                       DType dtype) {
    TRY(mem_grow(&plan->item, &plan->capacity, plan->count + 1, sizeof *plan->item));
    Item *item = &plan->item[plan->count++];
    *item = (Item){.tensor = *tensor, .values = view};
    if (tensor->part >= 0) {
        item->values = tensor_slice(view, tensor->part, 1);
        for (int i = 1; i < view.ndim; i++) item->values.dim[i - 1] = view.dim[i];
        item->values.ndim--;
    }
    /* A bare encoder's tensors carry no prefix, as transformers writes them. */
    bool prefix = tensor->body && (config->family == FAMILY_GPT2 || config->heads_mask);
    if (snprintf(item->name, FULL_NAME, "%s%s", prefix ? hf_prefix(config->family) : "", tensor->name) >=
        FULL_NAME)
        return FAILED("internal: the name '%s' is too long", tensor->name);
    int64_t count = tensor_count(item->values);
    item->bytes = count * (int64_t)dtype_size(dtype);
    plan->bytes += item->bytes;
    plan->numel += count;
    return OK;
}

static Status add_param(Plan *plan, const ModelConfig *config, const ParamDesc *desc, Tensor view,
                        DType dtype) {
    HfTensor tensor[HF_PARTS];
    int count;
    TRY(hf_tensors(config->family, desc, tensor, &count));
    for (int i = 0; i < count; i++) TRY(add_item(plan, config, &tensor[i], view, dtype));
    if (config->tied || strcmp(desc->name, "head.mlm.bias")) return OK;
    /* transformers computes with the decoder's own bias when nothing is tied. */
    snprintf(tensor[0].name, HF_NAME, "cls.predictions.decoder.bias");
    return add_item(plan, config, &tensor[0], view, dtype);
}

static Status make_plan(Plan *plan, const Store *params, const SaveOptions *options) {
    const Model *model = params->model;
    for (int i = 0; i < model->count; i++) {
        const ParamList *list = &model->block[i].params;
        for (size_t j = 0; j < list->count; j++)
            if (!list->desc[j].tied)
                TRY(add_param(plan, &model->config, &list->desc[j], params->view[i][j], options->dtype));
    }
    int64_t used = 0;
    plan->shards = 1;
    for (size_t i = 0; i < plan->count; i++) {
        Item *item = &plan->item[i];
        if (options->shard_bytes > 0 && used > 0 && used + item->bytes > options->shard_bytes) {
            plan->shards++;
            used = 0;
        }
        item->shard = plan->shards - 1;
        used += item->bytes;
    }
    return OK;
}

/* ---- weights ---- */

static Status copy_piece(float *host, Tensor values, int64_t at, int64_t count, Stream *stream) {
    TRY(stream_copy(stream, host, tensor_f32(values) + at, (size_t)count * sizeof *host, COPY_TO_HOST));
    return stream_sync(stream);
}

/* Finite values that a narrower type would turn into infinities. */
typedef struct Overflow {
    int64_t count;
    float largest; /* in magnitude, with its sign */
} Overflow;

static void count_overflow(Overflow *overflow, DType dtype, const float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float value = values[i];
        if (!isfinite(value)) continue;
        float kept = dtype == DT_F16 ? f16_to_f32(f32_to_f16(value)) : bf16_to_f32(f32_to_bf16(value));
        if (isfinite(kept)) continue;
        overflow->count++;
        if (fabsf(value) > fabsf(overflow->largest)) overflow->largest = value;
    }
}

static Status check_item(const Item *item, DType dtype, float *host, Stream *stream) {
    int64_t count = tensor_count(item->values);
    Overflow overflow = {0};
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t n = count - at < PIECE ? count - at : PIECE;
        TRY(copy_piece(host, item->values, at, n, stream));
        count_overflow(&overflow, dtype, host, n);
    }
    if (!overflow.count) return OK;
    return FAILED(
        "tensor '%s': %lld of its values, the largest %g, lie outside the range of %s and would become "
        "infinite; save as %s instead",
        item->name, (long long)overflow.count, (double)overflow.largest, dtype_name(dtype),
        dtype == DT_F16 ? "bf16 or fp32" : "fp32");
}

/* A pass of its own, so that a model that does not fit its type is refused before anything is written. */
static Status check_values(const Store *params, Stream *stream, const SaveOptions *options) {
    if (options->dtype != DT_F16 && options->dtype != DT_BF16) return OK;
    CLEANUP(plan_done) Plan plan = {0};
    TRY(make_plan(&plan, params, options));
    CLEANUP(mem_freep) float *host = NULL;
    TRY(mem_new(PIECE, sizeof *host, &host));
    for (size_t i = 0; i < plan.count; i++) TRY(check_item(&plan.item[i], options->dtype, host, stream));
    return OK;
}

Status hf_write_values(SafeWriter *writer, DType dtype, Tensor values, bool turned, Stream *stream) {
    int64_t count = tensor_count(values), piece = turned || count < PIECE ? count : PIECE;
    CLEANUP(mem_freep) float *host = NULL;
    TRY(mem_new((size_t)piece, sizeof *host, &host));
    for (int64_t at = 0; at < count; at += piece) {
        int64_t n = count - at < piece ? count - at : piece;
        TRY(copy_piece(host, values, at, n, stream));
        if (turned)
            TRY(values_write(writer, dtype, host, tensor_rows(values), tensor_cols(values), true));
        else
            TRY(values_write(writer, dtype, host, 1, n, false));
    }
    return OK;
}

static void shard_name(char name[FILE_NAME], const Plan *plan, int shard) {
    if (plan->shards == 1)
        snprintf(name, FILE_NAME, HF_WEIGHTS);
    else
        snprintf(name, FILE_NAME, "model-%05d-of-%05d.safetensors", shard + 1, plan->shards);
}

static Status write_shard(const char *dir, const Plan *plan, int shard, Stream *stream, DType dtype) {
    char name[FILE_NAME];
    shard_name(name, plan, shard);
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, name));
    CLEANUP(safe_writer_freep) SafeWriter *writer = NULL;
    TRY(safe_writer_new(&writer, path));
    for (size_t i = 0; i < plan->count; i++) {
        const Item *item = &plan->item[i];
        if (item->shard == shard)
            TRY(safe_writer_declare(writer, item->name, dtype, item->tensor.ndim, item->tensor.dim));
    }
    for (size_t i = 0; i < plan->count; i++) {
        const Item *item = &plan->item[i];
        if (item->shard == shard)
            TRY(hf_write_values(writer, dtype, item->values, item->tensor.turned, stream));
    }
    return safe_writer_commit(writer);
}

static Status write_index(const char *dir, const Plan *plan) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, HF_INDEX));
    json_t *map = json_object();
    CLEANUP(json_decrefp)
    json_t *json = json_pack("{s:{s:I, s:I}, s:o}", "metadata", "total_size", (json_int_t)plan->bytes,
                             "total_parameters", (json_int_t)plan->numel, "weight_map", map);
    if (!json) return FAILED("%s: out of memory", path);
    for (size_t i = 0; i < plan->count; i++) {
        char name[FILE_NAME];
        shard_name(name, plan, plan->item[i].shard);
        if (json_object_set_new(map, plan->item[i].name, json_string(name)))
            return FAILED("%s: out of memory", path);
    }
    return json_write_file(path, json);
}

/* ---- config.json and what lies beside it ---- */

static bool same_labels(const json_t *a, const json_t *b) {
    return json_is_object(a) && json_is_object(b) && json_object_size(a) == json_object_size(b);
}

/* Adds the fields of another config.json of the same kind that `json` does not have and that say nothing
 * about how the old files were written. */
static Status keep_fields(json_t *json, const char *assets_dir) {
    static const char *const stale[] = {"torch_dtype",
                                        "dtype",
                                        "transformers_version",
                                        "_name_or_path",
                                        "auto_map",
                                        "num_labels",
                                        "quantization_config",
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
    TRY(hf_config_json(config, &json));
    if (options->assets_dir) TRY(keep_fields(json, options->assets_dir));
    /* The name since transformers 4.56, and the one before it. */
    int failed = json_object_set_new(json, "dtype", json_string(torch_name(options->dtype)));
    failed |= json_object_set_new(json, "torch_dtype", json_string(torch_name(options->dtype)));
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, "config.json"));
    /* 15 digits show a decimal as it was meant: 0.1. */
    CLEANUP(mem_freep)
    char *text = failed ? NULL : json_dumps(json, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
    if (!text) return FAILED("%s: out of memory", path);
    CLEANUP(file_writer_freep) FileWriter *writer = NULL;
    TRY(file_writer_new(&writer, path));
    TRY(file_print(writer, "%s\n", text));
    return file_commit(writer);
}

static Status copy_files(const char *dir, const char *from_dir, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        CLEANUP(mem_freep) char *from = NULL, *to = NULL;
        TRY(path_join(&from, from_dir, names[i]));
        TRY(path_join(&to, dir, names[i]));
        if (!path_exists(from)) continue;
        CLEANUP(file_map_done) FileMap map = {0};
        TRY(file_map_init(&map, from));
        TRY(file_replace(to, map.data, map.size));
    }
    return OK;
}

static Status copy_assets(const char *dir, const SaveOptions *options) {
    static const char *const generation[] = {"generation_config.json"};
    static const char *const tokenizer[] = {
        "tokenizer.json", "tokenizer_config.json",   "vocab.json",       "merges.txt",
        "vocab.txt",      "special_tokens_map.json", "added_tokens.json"};
    if (options->assets_dir) TRY(copy_files(dir, options->assets_dir, generation, 1));
    const char *from = options->tokenizer_dir ? options->tokenizer_dir : options->assets_dir;
    return from ? copy_files(dir, from, tokenizer, sizeof tokenizer / sizeof tokenizer[0]) : OK;
}

Status hf_write(const char *dir, const Store *params, Stream *stream, const SaveOptions *options) {
    CLEANUP(plan_done) Plan plan = {0};
    TRY(make_plan(&plan, params, options));
    for (int i = 0; i < plan.shards; i++) TRY(write_shard(dir, &plan, i, stream, options->dtype));
    if (plan.shards > 1) TRY(write_index(dir, &plan));
    TRY(copy_assets(dir, options));
    return write_config(dir, &params->model->config, options);
}

/* ---- the directory ---- */

/* "a/b/" as "a/b" and its parent "a". */
static Status split_path(const char *dir, char **ret_dir, char **ret_parent) {
    CLEANUP(mem_freep) char *plain = NULL;
    TRY(str_dup(dir, &plain));
    for (size_t n = strlen(plain); n > 1 && plain[n - 1] == '/'; n--) plain[n - 1] = 0;
    const char *slash = strrchr(plain, '/');
    if (!slash)
        TRY(str_dup(".", ret_parent));
    else
        TRY(str_format(ret_parent, "%.*s", slash == plain ? 1 : (int)(slash - plain), plain));
    *ret_dir = plain;
    plain = NULL;
    return OK;
}

static void dir_closep(DIR **dir) {
    if (*dir) closedir(*dir);
}

/* An empty directory is fine: the rename will replace it. */
Status hf_save_check(const char *path) {
    if (!path_exists(path)) return OK;
    CLEANUP(dir_closep) DIR *dir = opendir(path);
    if (!dir) return FAILED("%s: %s, expected a new or empty directory", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            return FAILED("%s: is not empty, expected a new or empty directory", path);
    return OK;
}

static void drop_dirp(char **dir) {
    if (!*dir) return;
    Status status = dir_remove(*dir);
    status_free(status);
    free(*dir);
}

Status hf_save(const char *dir, const Store *params, Stream *stream, const SaveOptions *options) {
    CLEANUP(mem_freep) char *plain = NULL, *parent = NULL;
    TRY(split_path(dir, &plain, &parent));
    TRY(check_values(params, stream, options));
    TRY(dir_make(parent));
    TRY(hf_save_check(plain));
    CLEANUP(drop_dirp) char *temporary = NULL;
    TRY(str_format(&temporary, "%s.tmp.%ld", plain, (long)getpid()));
    TRY(dir_remove(temporary));
    TRY(dir_make(temporary));
    TRY(hf_write(temporary, params, stream, options));
    if (rename(temporary, plain) != 0)
        return FAILED("%s: cannot be put in place: %s", plain, strerror(errno));
    return dir_sync(parent);
}
