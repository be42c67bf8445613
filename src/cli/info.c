/* weft info: describes a path (run, checkpoint, safetensors file, token files, tokenizer), or this machine
 * and build. */
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checksums.h"
#include "checkpoint/hf_files.h"
#include "checkpoint/hf_names.h"
#include "checkpoint/safetensors.h"
#include "cli/command.h"
#include "cli/info.h"
#include "cli/show.h"
#include "data/data.h"
#include "data/released.h"
#include "data/signature.h"
#include "data/token_file.h"
#include "model/head.h"
#include "model/rope.h"
#include "train/run_summary.h"

typedef struct InfoConfig {
    bool verify;
    InfoChats chats;
} InfoConfig;

/* clang-format off */
static const Option table[] = {
    {OPT_FLAG("verify", InfoConfig, verify), .help = "Verify all checksums of token files or a checkpoint, on all cores."},
    {OPT_TEXT("model", InfoConfig, chats.model, "DIR"),
     .help = "Conversations: the checkpoint or run whose chat template and tokenizer show what is trained on."},
    {OPT_ENUM("loss-on", InfoConfig, chats.loss_on, "WORDS", loss_on_names), .fallback = "assistant",
     .help = "Conversations: what is trained on, as in 'weft train'."},
    {OPT_TEXT("chat-template", InfoConfig, chats.chat_template, "FILE"), .shown = "that of --model",
     .help = "Conversations: Jinja template that makes text of them."},
    {OPT_INT("example", InfoConfig, chats.example), .fallback = "1", AT_LEAST(1),
     .help = "Conversations: the number of the one to show."},
};
/* clang-format on */

/* ---- a safetensors file ---- */

static json_t *describe_tensor(const SafeTensor *tensor) {
    json_t *shape = json_array();
    for (int i = 0; i < tensor->ndim; i++) json_array_append_new(shape, json_integer(tensor->dim[i]));
    return json_pack("{s:s, s:s, s:o}", "name", tensor->name, "dtype", tensor->type, "shape", shape);
}

static Status add_tensor(json_t *tensors, json_t *types, int64_t *count, int64_t *bytes,
                         const SafeTensor *tensor) {
    int64_t elements = 1;
    for (int i = 0; i < tensor->ndim; i++) elements *= tensor->dim[i];
    *count += elements;
    *bytes += (int64_t)tensor->bytes;
    int64_t before = json_int_at(types, tensor->type);
    TRY(json_put(types, tensor->type, json_integer(before + elements)));
    if (tensors && json_array_append_new(tensors, describe_tensor(tensor)))
        return FAILED("out of memory while writing the result");
    return OK;
}

static Status describe_file(json_t *result, const char *path) {
    CLEANUP(safe_freep) SafeFile *file = NULL;
    TRY(safe_open(&file, path));
    json_t *tensors = json_array(), *types = json_object();
    TRY(json_put(result, "kind", json_string("safetensors")));
    TRY(json_put(result, "elements_by_dtype", types));
    TRY(json_put(result, "tensors", tensors));
    int64_t count = 0, bytes = 0;
    for (size_t i = 0; i < safe_count(file); i++)
        TRY(add_tensor(tensors, types, &count, &bytes, safe_at(file, i)));
    TRY(json_put(result, "elements", json_integer(count)));
    TRY(json_put(result, "bytes", json_integer(bytes)));
    if (safe_metadata(file)) TRY(json_put(result, "metadata", json_clone_deep(safe_metadata(file))));
    return OK;
}

/* ---- a checkpoint ---- */

static json_t *describe_config(const ModelConfig *config) {
    json_t *list = json_array();
    for (HeadId id = 0; id < HEAD_COUNT; id++)
        if (config->outputs_mask & 1u << id) json_array_append_new(list, json_string(head_name(id)));
    json_t *rope = config->position == POSITION_ROPE ? rope_write(config) : json_null();
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:b, s:b}", "family",
                     config->family->type, "layers", (json_int_t)config->layers, "hidden",
                     (json_int_t)config->hidden, "heads", (json_int_t)config->heads, "kv_heads",
                     (json_int_t)config_kv_heads(config), "inner", (json_int_t)config->inner, "vocab",
                     (json_int_t)config->vocab, "positions", (json_int_t)config->positions, "context",
                     (json_int_t)config_context(config), "rope", rope, "output_heads", list, "pooler",
                     config->pooler, "tied", config->tied);
}

/* Adds the number of zeros in a tensor to *zeros. */
static Status count_zeros(const SafeTensor *tensor, int64_t count, int64_t *zeros) {
    float values[4096];
    for (int64_t at = 0; at < count; at += (int64_t)COUNT_OF(values)) {
        int64_t chunk = count - at < (int64_t)COUNT_OF(values) ? count - at : (int64_t)COUNT_OF(values);
        TRY(values_read(values, tensor, at, chunk));
        for (int64_t i = 0; i < chunk; i++) *zeros += values[i] == 0;
    }
    return OK;
}

/* Adds the zeros and the total size of a block's matrices, to report pruning. */
static Status add_zeros(const Model *model, const Block *block, HfFiles *files, int64_t *zeros,
                        int64_t *total) {
    for (size_t i = 0; i < block->params.count; i++) {
        CLEANUP(hf_tensors_done) HfTensorList part = {0};
        if (!block->params.desc[i].decay || param_is_router(&block->params.desc[i])) continue;
        TRY(hf_tensors(model->config.family, &block->params.desc[i], &part));
        for (size_t k = 0; k < part.count; k++) {
            char name[2 * HF_NAME];
            snprintf(name, sizeof name, "%s%.*s", model->config.family->prefix, HF_NAME - 1,
                     part.tensor[k].name);
            const HfEntry *entry = hf_files_find(files, name);
            if (!entry) entry = hf_files_find(files, part.tensor[k].name);
            if (!entry) continue;
            TRY(count_zeros(entry->tensor, hf_tensor_count(&part.tensor[k]), zeros));
            *total += hf_tensor_count(&part.tensor[k]);
        }
    }
    return OK;
}

static Status add_weights(json_t *result, const char *dir, const Model *model) {
    CLEANUP(hf_files_freep) HfFiles *files = NULL;
    TRY(hf_files_open(&files, dir));
    int64_t zeros = 0, total = 0;
    for (int i = 0; i < model->count; i++)
        if (block_is_layer(&model->block[i])) TRY(add_zeros(model, &model->block[i], files, &zeros, &total));
    if (total) TRY(json_put(result, "sparsity", json_real((double)zeros / (double)total)));
    json_t *types = json_object();
    TRY(json_put(result, "elements_by_dtype", types));
    int64_t count = 0, bytes = 0;
    for (size_t i = 0; i < files->entries; i++)
        TRY(add_tensor(NULL, types, &count, &bytes, files->entry[i].tensor));
    TRY(json_put(result, "files", json_integer((json_int_t)files->count)));
    return json_put(result, "bytes", json_integer(bytes));
}

static Status add_step(json_t *result, const char *dir) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *progress = NULL;
    TRY(path_join(&path, dir, "weft.json"));
    if (!path_exists(path)) return OK;
    TRY(json_read_file(path, &progress));
    int64_t step = -1;
    TRY(json_get_int(progress, path, "step", 0, INT64_MAX, &step));
    return step < 0 ? OK : json_put(result, "step", json_integer(step));
}

static json_t *describe_quantized(const ModelConfig *config) {
    return json_pack("{s:i, s:i, s:s}", "bits", packing_bits(config->packed_layers), "embedding_bits",
                     packing_bits(config->packed_embedding), "activations",
                     config->static_scales ? "static" : "dynamic");
}

/* A checkpoint outside its run may lack the optimizer's state; one that a run resumes from may not. */
static Status add_verified(json_t *result, const char *dir, VerifyScope scope) {
    Verified verified = {0};
    CLEANUP(mem_freep) char *optimizer = NULL;
    TRY(path_join(&optimizer, dir, CHECKPOINT_OPTIMIZER));
    TRY(checksums_verify(dir, path_exists(optimizer) ? VERIFY_ALL : scope, NULL, &verified));
    if (!verified.tensors) return FAILED("%s has no checksums to verify; only checkpoints of runs have", dir);
    return json_put(result, "verified",
                    json_pack("{s:I, s:I}", "tensors", (json_int_t)verified.tensors, "bytes",
                              (json_int_t)verified.bytes));
}

static Status describe_checkpoint(json_t *result, const char *dir) {
    ModelConfig config;
    TRY(hf_config_read(dir, &config));
    CLEANUP(model_freep) Model *model = NULL;
    CLEANUP(load_report_done) LoadReport report = {0};
    TRY(model_new(&model, &config));
    TRY(hf_weights_check(dir, model, &report));
    TRY(json_put(result, "kind", json_string("checkpoint")));
    TRY(json_put(result, "model", describe_config(&config)));
    if (config_quantized(&config)) TRY(json_put(result, "quantized", describe_quantized(&config)));
    TRY(json_put(result, "params_total", json_integer(model_params(model))));
    if (config.experts)
        TRY(json_put(result, "mixture",
                     json_pack("{s:I, s:I, s:I, s:I, s:I}", "experts", (json_int_t)config.experts, "top_k",
                               (json_int_t)config.top_k, "expert_inner", (json_int_t)config.expert_inner,
                               "shared_inner", (json_int_t)config.shared_inner, "params_per_token",
                               (json_int_t)model_active(model))));
    TRY(json_put(result, "missing", show_names(report.missing, report.missing_count)));
    TRY(json_put(result, "unknown", show_names(report.unexpected, report.unexpected_count)));
    TRY(add_weights(result, dir, model));
    return add_step(result, dir);
}

/* ---- a run ---- */

static Status add_summary(json_t *result, const char *run) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, run, RUN_SUMMARY_FILE));
    if (!path_exists(path)) return OK;
    CLEANUP(json_decrefp) json_t *summary = NULL;
    TRY(json_read_file(path, &summary));
    return json_put(result, "summary", json_incref(summary));
}

static Status describe_run(json_t *result, const char *run, const char *newest, bool verify) {
    TRY(json_put(result, "kind", json_string("run")));
    TRY(add_summary(result, run));
    json_t *checkpoint = json_pack("{s:s}", "path", newest);
    TRY(json_put(result, "newest", checkpoint));
    TRY(describe_checkpoint(checkpoint, newest));
    return verify ? add_verified(checkpoint, newest, VERIFY_ALL) : OK;
}

/* Whether a directory contains tokenizer files but no model. */
static Status is_bare_tokenizer(const char *dir, bool *ret_bare) {
    static const char *const weights[] = {HF_WEIGHTS, HF_INDEX, HF_INT8, HF_SPARSE, HF_TORCH, HF_TORCH_INDEX};
    bool bare = tokenizer_exists(dir);
    for (size_t i = 0; bare && i < COUNT_OF(weights); i++) {
        CLEANUP(mem_freep) char *path = NULL;
        TRY(path_join(&path, dir, weights[i]));
        bare = !path_exists(path);
    }
    *ret_bare = bare;
    return OK;
}

/* What to do with a file that cannot be described: train on it, if weft can read it. */
static Status not_described(const char *path) {
    static const char what[] =
        "is not a safetensors file; 'weft info' describes runs, checkpoints, tokenizers "
        "and prepared data";
    CLEANUP(mem_freep) char *word = NULL;
    DataFormat format = FORMAT_AUTO;
    CLEANUP(status_freep) Status unreadable = data_format_find(path, NULL, &format);
    TRY(show_word_text(path, &word));
    if (unreadable) return USAGE("%s %s. As training data: %s", path, what, status_message(unreadable));
    if (format != FORMAT_BYTES && format != FORMAT_TEXT)
        return USAGE("%s %s. As training data, it has the format %s", path, what, data_format_name(format));
    return USAGE("%s %s. To train on a text file: weft train %s", path, what, word);
}

/* Files of other kinds fail with what weft can describe instead of what is wrong with their header. */
static Status describe_plain_file(json_t *result, const char *path) {
    static const char extension[] = ".safetensors";
    size_t length = strlen(path), tail = sizeof extension - 1;
    bool named = length > tail && !strcmp(path + length - tail, extension);
    Status status = describe_file(result, path);
    if (!status || named) return status;
    status_free(status);
    const Signature *known = NULL;
    TRY(data_signature(path, &known));
    if (known)
        return USAGE("%s is %s; 'weft info' describes runs, checkpoint directories, safetensors files, "
                     "tokenizers and prepared data",
                     path, known->name);
    return not_described(path);
}

static Status describe_gguf(json_t *result, const char *path) {
    CLEANUP(model_dir_done) ModelDir dir = {0};
    TRY(model_dir_open(&dir, path));
    return describe_checkpoint(result, dir.path);
}

static Status describe_path(json_t *result, const char *path, const InfoConfig *config) {
    bool verify = config->verify;
    TRY(json_put(result, "path", json_string(path)));
    char hint[RELEASED_HINT];
    if (!path_exists(path)) return FAILED("%s: does not exist%s", path, released_hint(path, false, hint));
    if (path_has_token_files(path)) return info_token_files(result, path, verify);
    if (model_path_is_file(path)) return describe_gguf(result, path);
    if (!path_is_dir(path) && info_has_chats(path)) return info_chats(result, path, &config->chats);
    if (!path_is_dir(path)) return describe_plain_file(result, path);
    CLEANUP(mem_freep) char *newest = NULL;
    bool bare = false;
    TRY(ckpt_latest(path, &newest));
    if (newest) return describe_run(result, path, newest, verify);
    TRY(is_bare_tokenizer(path, &bare));
    if (bare) return info_tokenizer(result, path);
    TRY(describe_checkpoint(result, path));
    return verify ? add_verified(result, path, VERIFY_WEIGHTS) : OK;
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    const InfoConfig *config = arguments;
    CLEANUP(json_decrefp) json_t *result = json_object();
    if (call->operand_count)
        TRY(describe_path(result, call->operands[0], config));
    else
        TRY(machine_describe(result));
    *ret_result = result;
    result = NULL;
    return OK;
}

/* ---- for a person ---- */

static void show_list(FILE *out, const json_t *list, const char *what) {
    size_t index;
    json_t *name;
    json_array_foreach((json_t *)(uintptr_t)list, index, name)
        fprintf(out, "%-12s %s\n", index ? "" : what, json_string_value(name));
}

static void show_types(FILE *out, const json_t *result) {
    const char *type, *between = "";
    json_t *count;
    json_object_foreach(json_object_get(result, "elements_by_dtype"), type, count) {
        char text[FORMAT_SIZE];
        fprintf(out, "%s%s %s", between, format_count(text, json_number_value(count)), type);
        between = ", ";
    }
    fputc('\n', out);
}

static void show_rope(FILE *out, const json_t *model) {
    const json_t *rope = json_object_get(model, "rope");
    double original = json_number_at(rope, "original_max_position_embeddings");
    const char *type = json_string_or(rope, "rope_type", "");
    if (!json_is_object(rope)) return;
    fprintf(out, "positions    rotary, theta %g", json_number_at(rope, "rope_theta"));
    if (strcmp(type, "default") != 0)
        fprintf(out, ", %s scaling, factor %g", type, json_number_at(rope, "factor"));
    if (!strcmp(type, "dynamic")) original = json_number_at(model, "positions");
    if (original > 0) fprintf(out, ", original context %.0f", original);
    fputc('\n', out);
}

static void show_checkpoint(const json_t *result, FILE *out) {
    char text[FORMAT_SIZE];
    const json_t *model = json_object_get(result, "model"), *heads = json_object_get(model, "output_heads");
    fprintf(out,
            "model        %s, %.0f layer%s, hidden size %.0f, %.0f head%s, vocabulary %.0f, context %.0f\n",
            json_string_or(model, "family", ""), json_number_at(model, "layers"),
            PLURAL(json_number_at(model, "layers")), json_number_at(model, "hidden"),
            json_number_at(model, "heads"), PLURAL(json_number_at(model, "heads")),
            json_number_at(model, "vocab"), json_number_at(model, "context"));
    show_rope(out, model);
    show_list(out, heads, "outputs");
    fprintf(out, "parameters   %s\n", format_count(text, json_number_at(result, "params_total")));
    const json_t *mixture = json_object_get(result, "mixture");
    if (mixture)
        fprintf(out, "experts      %.0f, %.0f per token%s; %s parameters per token\n",
                json_number_at(mixture, "experts"), json_number_at(mixture, "top_k"),
                json_number_at(mixture, "shared_inner") > 0 ? " and a shared one" : "",
                format_count(text, json_number_at(mixture, "params_per_token")));
    const json_t *quantized = json_object_get(result, "quantized");
    if (quantized)
        fprintf(out, "quantized    %.0f-bit layers, %.0f-bit embedding, %s activations\n",
                json_number_at(quantized, "bits"), json_number_at(quantized, "embedding_bits"),
                json_string_or(quantized, "activations", ""));
    fprintf(out, "weights      %s in %.0f file%s: ", format_bytes(text, json_number_at(result, "bytes")),
            json_number_at(result, "files"), PLURAL(json_number_at(result, "files")));
    show_types(out, result);
    if (json_number_at(result, "sparsity") > 0)
        fprintf(out, "sparsity     %.2f%% of the layers' weights are zero\n",
                100 * json_number_at(result, "sparsity"));
    if (json_object_get(result, "step")) fprintf(out, "step         %.0f\n", json_number_at(result, "step"));
    const json_t *verified = json_object_get(result, "verified");
    if (verified)
        fprintf(out, "verified     %.0f tensors, %s: all checksums match\n",
                json_number_at(verified, "tensors"), format_bytes(text, json_number_at(verified, "bytes")));
    show_list(out, json_object_get(result, "missing"), "missing");
    show_list(out, json_object_get(result, "unknown"), "unused");
}

static void show_file(const json_t *result, FILE *out) {
    char text[FORMAT_SIZE];
    size_t index;
    json_t *tensor;
    json_array_foreach(json_object_get(result, "tensors"), index, tensor) {
        CLEANUP(mem_freep) char *shape = json_serialize(json_object_get(tensor, "shape"), JSON_COMPACT);
        char name[NAME_TEXT];
        fprintf(out, "%-5s %-16s %s\n", json_string_or(tensor, "dtype", ""), shape ? shape : "",
                name_text(name, json_string_or(tensor, "name", "")));
    }
    fprintf(out, "%zu tensor%s, %s: ", index, PLURAL(index),
            format_bytes(text, json_number_at(result, "bytes")));
    show_types(out, result);
}

/* "ranks 0-3 on node1, ranks 4-7 on node2", for runs on several hosts. */
static void show_hosts(const json_t *ranks, FILE *out) {
    size_t count = json_array_size(ranks), first = 0;
    char text[NAME_TEXT];
    const char *start = "hosts        ";
    for (size_t r = 1; r <= count; r++) {
        const char *host = json_string_or(json_array_get(ranks, first), "host", "");
        if (r < count && !strcmp(json_string_or(json_array_get(ranks, r), "host", ""), host)) continue;
        if (!*host || (first == 0 && r == count)) return;
        fprintf(out, "%srank%s %zu", start, PLURAL(r - first), first);
        if (r - first > 1) fprintf(out, "-%zu", r - 1);
        fprintf(out, " on %s", name_text(text, host));
        start = ", ";
        first = r;
    }
    if (count) fputc('\n', out);
}

static void show_sent(const RunSummary *summary, FILE *out) {
    char all[FORMAT_SIZE], between[FORMAT_SIZE];
    if (!(summary->between_nodes_bytes > 0) || !(summary->steps_measured > 0)) return;
    fprintf(out, "sent         %s per step by all ranks, %s of it between nodes\n",
            format_bytes(all, summary->sent_bytes / summary->steps_measured),
            format_bytes(between, summary->between_nodes_bytes / summary->steps_measured));
}

static void show_run(const json_t *result, FILE *out) {
    const json_t *newest = json_object_get(result, "newest");
    CLEANUP(run_summary_done)
    RunSummary summary = run_summary_take(json_incref(json_object_get(result, "summary")));
    if (summary.json)
        fprintf(out, "run          %.0f step%s, loss %.4f to %.4f\n", summary.steps, PLURAL(summary.steps),
                summary.loss_first, summary.loss_last);
    show_hosts(summary.ranks, out);
    show_sent(&summary, out);
    fprintf(out, "checkpoint   %s\n", json_string_or(newest, "path", ""));
    show_checkpoint(newest, out);
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    (void)call;
    const char *kind = json_string_or(result, "kind", "");
    if (!strcmp(kind, "machine"))
        machine_show(result, out);
    else if (!strcmp(kind, "safetensors"))
        show_file(result, out);
    else if (!strcmp(kind, "run"))
        show_run(result, out);
    else if (!strcmp(kind, "conversations"))
        info_chats_show(result, out);
    else if (!strcmp(kind, "shards"))
        info_token_files_show(result, out);
    else if (!strcmp(kind, "tokenizer"))
        info_tokenizer_show(result, out);
    else
        show_checkpoint(result, out);
    return OK;
}

const Command command_info = {
    .name = "info",
    .summary = "describe a run, checkpoint, tokenizer, data files or this machine",
    .description = "The path may also be a safetensors file. Of a file of conversations, one is shown with "
                   "what is trained on. For a checkpoint, lists parameters that its files lack and "
                   "tensors that the model does not use. Without a path, describes this machine.",
    .operands = "[PATH]",
    .operands_max = 1,
    .reads_operands = true,
    .config_size = sizeof(InfoConfig),
    .groups = GROUPS(OPTION_GROUP("Options", table, 0)),
    .examples = {{"Describe this machine", "weft info"},
                 {"Describe a run and its newest checkpoint", "weft info runs/first"},
                 {"Show what training on conversations trains on", "weft info chats.jsonl --model qwen/"},
                 {"Check token files or a run's checkpoint for damage", "weft info --verify runs/first"}},
    .run = run,
    .show = show,
};
