/* weft convert: rewrites a checkpoint with another data type, file size or output heads, as a mixture of
 * experts, or as GGUF. */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/progress.h"
#include "checkpoint/adapter.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checksums.h"
#include "checkpoint/gguf.h"
#include "checkpoint/hf_files.h"
#include "cli/command.h"
#include "cli/show.h"
#include "model/head.h"
#include "model/upcycle.h"

typedef struct ConvertConfig {
    const char *model, *out, *dtype;
    int64_t max_file_bytes, labels, experts, top_k;
    bool sparse;
    const char **heads, **adapters;
    int heads_count, adapters_count;
    uint64_t seed;
} ConvertConfig;

static const char *const dtype_choices[] = {"same", "fp32", "bf16", "fp16", "q8_0", "q4_0", NULL};

/* clang-format off */
static const Option table[] = {
    {OPT_TEXT("model", ConvertConfig, model, "DIR"), .required = true,
     .help = "Checkpoint directory, run directory (its newest checkpoint), or GGUF file."},
    {OPT_TEXT("out", ConvertConfig, out, "DIR"), .required = true,
     .help = "New or empty directory for the converted checkpoint, or a new file NAME.gguf for llama.cpp."},
    {OPT_LIST("adapter", ConvertConfig, adapters, "DIR"), .one_each = true, .shown = "none",
     .help = "Merge a PEFT adapter, or the newest of a run with --lora, into the weights; several are added up."},
    {OPT_CHOICE("dtype", ConvertConfig, dtype, "TYPE", dtype_choices), .fallback = "same",
     .help = "Data type of the stored weights; q8_0 and q4_0 (8 and 4 bits in blocks of 32) only in GGUF files."},
    {OPT_SIZE("max-shard-size", ConvertConfig, max_file_bytes), .fallback = "0", AT_LEAST(1),
     .shown = "one file", .help = "Split the weights into files of at most this size."},
    {OPT_FLAG("sparse", ConvertConfig, sparse),
     .help = "Store only the nonzero weights of a pruned model's layers: smaller and, on CPUs, faster at "
             "high sparsity. Only weft reads the result; converting it without --sparse restores a regular "
             "checkpoint."},
    {OPT_LIST("head", ConvertConfig, heads, "NAME"),
     .help = "BERT output heads of the new model: mlm, nsp, span, classify or none. Heads that the "
             "checkpoint lacks are initialized randomly."},
    {OPT_INT("labels", ConvertConfig, labels), .fallback = "0", RANGE(1, MAX_LABELS),
     .shown = "the model's own", .help = "Number of labels of a classify head."},
    {OPT_INT("experts", ConvertConfig, experts), .fallback = "0", RANGE(1, MOST_EXPERTS), .shown = "dense",
     .help = "Make a dense Llama, Mistral, Qwen2 or Qwen3 a mixture of this many experts, to be trained further: "
             "each expert is a copy of the MLP, so the result computes what the dense model does."},
    {OPT_INT("top-k", ConvertConfig, top_k), .fallback = "0", RANGE(1, MOST_EXPERTS), .shown = "2",
     .help = "Experts that each token uses."},
    {OPT_SEED("seed", ConvertConfig, seed), .fallback = "0", .help = "Random seed for new heads and routers."},
};
/* clang-format on */

/* State of one conversion. */
typedef struct Work {
    ModelDir from;
    const char *dir; /* its path */
    ModelConfig config;
    DType dtype;
    Model *model;
    Device *device;
    Stream *stream;
    Store *params;
    Model *dense; /* the source of a new mixture, else NULL */
    Store *dense_params;
    LoadReport report;
} Work;

static void work_done(Work *work) {
    load_report_done(&work->report);
    store_free(work->params);
    store_free(work->dense_params);
    stream_free(work->stream);
    device_free(work->device);
    model_free(work->model);
    model_free(work->dense);
    model_dir_done(&work->from);
}

/* The result is a directory or a .gguf file. A name that ends like another format's file expects that format.
 */
static Status check_out(const char *out) {
    static const struct {
        const char *suffix, *advice;
    } formats[] = {
        {".onnx",
         "weft writes no ONNX; convert to a directory and export that with 'optimum-cli export onnx'"},
        {".pt", "PyTorch loads checkpoint directories through transformers"},
        {".pth", "PyTorch loads checkpoint directories through transformers"},
        {".bin", "weft writes safetensors, which transformers loads like pytorch_model.bin"},
        {".ckpt", "weft writes Hugging Face directories"},
        {".h5", "weft writes no Keras files; transformers loads checkpoint directories"},
        {".msgpack", "weft writes no Flax files; transformers loads checkpoint directories"},
        {".npz", "weft writes safetensors"},
        {".tflite", "weft writes no TensorFlow Lite files"},
        {".mlmodel", "weft writes no Core ML files"},
        {".safetensors", "the directory will contain model.safetensors"},
    };
    size_t length = strlen(out);
    for (size_t i = 0; i < COUNT_OF(formats) && !path_is_dir(out); i++) {
        size_t tail = strlen(formats[i].suffix);
        if (length > tail && !strcasecmp(out + length - tail, formats[i].suffix))
            return USAGE("--out %s: expected a directory, not a %s file: %s", out, formats[i].suffix,
                         formats[i].advice);
    }
    return OK;
}

/* The heads that --head names. */
static Status parse_heads(const ConvertConfig *config, unsigned supported, unsigned *ret_mask) {
    unsigned mask = 0;
    char known[HEAD_NAMES];
    bool none = false;
    for (int i = 0; i < config->heads_count; i++) {
        const char *name = config->heads[i];
        unsigned bit = head_find(name, supported);
        if (!bit && strcmp(name, "none"))
            return USAGE("--head: unknown head '%s'; expected %s", name,
                         head_names(supported, "none", known));
        mask |= bit;
        none |= !bit;
    }
    if (none && mask) return USAGE("--head none cannot be combined with other heads; use one or the other");
    *ret_mask = mask;
    return OK;
}

static Status choose_heads(const ConvertConfig *config, ModelConfig *model) {
    unsigned mask = model->outputs_mask;
    if (config->heads_count && config_is_decoder(model))
        return USAGE("--head: only the output heads of encoders such as BERT can be replaced");
    if (config->heads_count) TRY(parse_heads(config, model->family->outputs, &mask));
    if (config->labels && config_is_decoder(model))
        return USAGE("--labels applies only to a classify head, which a %s cannot have",
                     model->family->title);
    if (config->labels && !heads_traits(mask).labeled)
        return USAGE("--labels applies only to a classify head; add --head classify");
    if (config->labels) model->labels = config->labels;
    if (model->labels == 1 && model->problem == PROBLEM_SINGLE_LABEL) model->problem = PROBLEM_AUTO;
    if (config->heads_count == 0) return OK;
    model->outputs_mask = mask;
    /* Keep the pooler if a head uses it, or if it is the encoder's only output. */
    model->pooler = heads_traits(mask).pooled || (mask == 0 && model->pooler);
    return OK;
}

static Status choose_dtype(const ConvertConfig *config, const char *dir, DType *ret_dtype) {
    if (strcmp(config->dtype, "same")) {
        *ret_dtype = !strcmp(config->dtype, "bf16")   ? DT_BF16
                     : !strcmp(config->dtype, "fp16") ? DT_F16
                                                      : DT_F32;
        return OK;
    }
    CLEANUP(hf_files_freep) HfFiles *files = NULL;
    TRY(hf_files_open(&files, dir));
    DType dtype = hf_files_dtype(files);
    if (files->gguf) TRY(hf_files_exact_dtype(files, &dtype));
    *ret_dtype = dtype == DT_F64 ? DT_F32 : dtype; /* weft has no fp64 weights */
    return OK;
}

static bool is_gguf(const ConvertConfig *config) {
    return gguf_is_path(config->out);
}

static Status check_gguf(const ConvertConfig *config) {
    bool blocks = !strcmp(config->dtype, "q8_0") || !strcmp(config->dtype, "q4_0");
    if (blocks && !is_gguf(config))
        return USAGE("--dtype %s needs a GGUF file; use --out NAME.gguf, or weft quantize for int8 and int4",
                     config->dtype);
    if (is_gguf(config) &&
        (config->sparse || config->max_file_bytes || config->heads_count || config->labels))
        return USAGE(
            "--out %s: a GGUF file cannot be combined with --sparse, --max-shard-size, --head or --labels",
            config->out);
    return OK;
}

static bool is_missing(const LoadReport *report, const char *name) {
    for (size_t i = 0; i < report->missing_count; i++)
        if (!strcmp(report->missing[i], name)) return true;
    return false;
}

static Status choose_experts(Work *work, const ConvertConfig *config) {
    TRY(config_upcycle(&work->config, config->experts, config->top_k));
    work->dense = work->model;
    work->model = NULL;
    return model_new(&work->model, &work->config);
}

/* Builds the model and checks the files against it before allocating the weights. */
static Status prepare(Work *work, const ConvertConfig *config) {
    TRY(model_dir_open(&work->from, config->model));
    work->dir = work->from.path;
    TRY(hf_config_read(work->dir, &work->config));
    if (config_quantized(&work->config))
        return FAILED("%s is quantized to int%d; convert the original model instead", work->dir,
                      packing_bits(work->config.packed_layers));
    if (config->sparse && config->max_file_bytes)
        return USAGE("--sparse writes a single file; remove --max-shard-size");
    TRY(choose_heads(config, &work->config));
    TRY(choose_dtype(config, work->dir, &work->dtype));
    TRY(model_new(&work->model, &work->config));
    TRY(hf_weights_check(work->dir, work->model, &work->report));
    if (config->experts) TRY(choose_experts(work, config));
    if (is_gguf(config)) TRY(gguf_check(config->out, &work->config));
    if (work->config.outputs_mask == 0 && is_missing(&work->report, "head.pooler.weight")) {
        /* The encoder may have been saved without its pooler. */
        work->config.pooler = false;
        model_free(work->model);
        work->model = NULL;
        load_report_done(&work->report);
        TRY(model_new(&work->model, &work->config));
        TRY(hf_weights_check(work->dir, work->model, &work->report));
    }
    return load_report_check(&work->report, work->dir, &work->config, config->heads_count > 0);
}

static Status load(Work *work, const ConvertConfig *config) {
    TRY(device_new_cpu(&work->device, 0));
    TRY(stream_new(&work->stream, work->device));
    TRY(store_new(&work->params, work->model, work->device, MEM_PARAMS));
    Store **loaded = &work->params;
    if (work->dense) {
        TRY(store_new(&work->dense_params, work->dense, work->device, MEM_PARAMS));
        loaded = &work->dense_params;
    }
    if (work->report.missing_count) TRY(store_init_params(*loaded, work->stream, config->seed));
    TRY(checksums_verify(work->dir, VERIFY_WEIGHTS, NULL, NULL));
    TRY(hf_weights_load(work->dir, *loaded, work->stream, NULL));
    TRY(adapters_merge(config->adapters, config->adapters_count, *loaded, NULL, work->stream));
    return work->dense ? store_upcycle(work->params, work->dense_params, config->seed) : OK;
}

static Status save(const Work *work, const ConvertConfig *config) {
    SaveOptions options = {.dtype = work->dtype,
                           .max_file_bytes = config->max_file_bytes,
                           .assets_dir = work->dir,
                           .sparse = config->sparse};
    return hf_save(config->out, work->params, work->stream, &options);
}

static Status save_gguf(const Work *work, const ConvertConfig *config, const char **ret_dtype) {
    GgufType type = work->dtype == DT_BF16 ? GGUF_BF16 : work->dtype == DT_F16 ? GGUF_F16 : GGUF_F32;
    gguf_type_find(config->dtype, &type);
    *ret_dtype = gguf_type_name(type);
    return gguf_save(config->out, work->dir, work->params, work->stream, type);
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    (void)call;
    const ConvertConfig *config = arguments;
    CLEANUP(work_done) Work work = {0};
    TRY(check_out(config->out));
    TRY(check_gguf(config));
    if (!is_gguf(config)) TRY(hf_save_check(config->out));
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(progress_new_phase(&progress, stderr, "converting", 0, false));
    TRY(prepare(&work, config));
    TRY(load(&work, config));
    const char *dtype = dtype_name(work.dtype);
    TRY(is_gguf(config) ? save_gguf(&work, config, &dtype) : save(&work, config));
    int64_t count = model_params(work.model);
    json_t *result = json_pack("{s:s, s:s, s:s, s:I, s:o, s:o}", "model", config->model, "out", config->out,
                               "dtype", dtype, "params_total", (json_int_t)count, "fresh",
                               show_names(work.report.missing, work.report.missing_count), "left_out",
                               show_names(work.report.unexpected, work.report.unexpected_count));
    if (!result) return FAILED("out of memory while writing the result");
    if (config->experts)
        json_object_update_new(result, json_pack("{s:I, s:I}", "experts", (json_int_t)work.config.experts,
                                                 "top_k", (json_int_t)work.config.top_k));
    *ret_result = result;
    return OK;
}

static void show_list(FILE *out, const json_t *list, const char *what) {
    size_t count = json_array_size(list), index;
    json_t *name;
    if (count) fprintf(out, "%s:\n", what);
    json_array_foreach((json_t *)(uintptr_t)list, index, name)
        fprintf(out, "  %s\n", json_string_value(name));
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    (void)call;
    char text[FORMAT_SIZE];
    fprintf(out, "%s: %s parameters in %s\n", json_string_at(result, "out"),
            format_count(text, (double)json_int_at(result, "params_total")), json_string_at(result, "dtype"));
    if (json_object_get(result, "experts"))
        fprintf(out, "%lld experts, %lld per token; the routers are random and need training\n",
                (long long)json_int_at(result, "experts"), (long long)json_int_at(result, "top_k"));
    show_list(out, json_object_get(result, "fresh"), "randomly initialized parameters, to be trained");
    show_list(out, json_object_get(result, "left_out"), "dropped tensors, not part of the model");
    return OK;
}

const Command command_convert = {
    .name = "convert",
    .summary = "change a checkpoint's data type, file size, heads or experts",
    .description =
        "Reads a checkpoint from weft or Hugging Face transformers, or a GGUF file in fp32, fp16, bf16, q8_0 "
        "or q4_0, "
        "and writes one that both load, including the tokenizer files. Never overwrites files.\n"
        "A name that ends in .gguf writes one file for llama.cpp, vocabulary included; BERT becomes an "
        "embedding model with mean pooling, without its output heads. Norms, biases, position and type "
        "embeddings stay fp32; in q4_0 files the token embedding and the output matrix are q8_0. llama.cpp "
        "ignores Mistral's sliding window, so the file's context length is at most the window.\n"
        "With --experts, a Llama or Mistral becomes a Mixtral, a Qwen2 a Qwen2-MoE and a Qwen3 a Qwen3-MoE. "
        "The "
        "shared expert of a Qwen2-MoE has the size of the MLP and a down matrix of zeros.",
    .positional = POSITIONAL("model", "out"),
    .config_size = sizeof(ConvertConfig),
    .groups = GROUPS(OPTION_GROUP("Options", table, 0)),
    .examples = {{"Halve the size, for inference", "weft convert runs/first small --dtype bf16"},
                 {"Write a file for llama.cpp", "weft convert runs/first first.gguf --dtype q8_0"},
                 {"Turn a dense model into a mixture of 8 experts", "weft convert llama mixtral --experts 8"},
                 {"Put a question-answering head on a pretrained BERT",
                  "weft convert --model bert --out qa --head span"}},
    .run = run,
    .show = show,
};
