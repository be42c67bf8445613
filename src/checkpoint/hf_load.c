/* Loads a checkpoint directory into a store.
 *
 * Tensors are looked up by every name that any version of transformers gives them: with or without the
 * family's prefix, and LayerNorm's weight and bias also as gamma and beta. Every rank first checks all
 * shapes against the model, whatever part of it the rank holds, then reads only the elements its store
 * contains from the mapped files. Parameters without a tensor and tensors without a parameter are reported
 * by name. */
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "checkpoint/adapter.h"
#include "checkpoint/bnb.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf_read.h"
#include "checkpoint/hf_files.h"
#include "checkpoint/hf_names.h"
#include "checkpoint/hf_quantized.h"
#include "checkpoint/hf_sparse.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/slices.h"
#include "model/head.h"

typedef struct Loader {
    HfFiles *files;
    const Model *model;
    Store *store; /* NULL: check only */
    Stream *stream;
    const RootDisk *disk; /* only rank 0 has the tensors' data; NULL: every rank has it */
    bool adapter;         /* the files have what a run of adapters trains, and nothing else */
    bool checked;         /* the checking pass is done; now copying */
    LoadReport report;
} Loader;

static void names_done(char **names, size_t count) {
    for (size_t i = 0; i < count; i++) free(names[i]);
    free(names);
}

void load_report_done(LoadReport *report) {
    names_done(report->missing, report->missing_count);
    names_done(report->unexpected, report->unexpected_count);
    *report = (LoadReport){0};
}

static Status add_name(char ***names, size_t *count, size_t *capacity, const char *name) {
    TRY(mem_grow(names, capacity, *count + 1, sizeof **names));
    TRY(str_dup(name, &(*names)[*count]));
    (*count)++;
    return OK;
}

static HfEntry *find_prefixed(Loader *loader, const char *name, bool body) {
    const char *outer = loader->adapter ? ADAPTER_PREFIX : "";
    return hf_files_find_prefixed(loader->files, outer, body ? loader->model->config.family->prefix : "",
                                  name);
}

/* LayerNorm's parameters are gamma and beta in checkpoints converted from TensorFlow. */
static HfEntry *find_old_norm(Loader *loader, const char *name, bool body) {
    const char *dot = strrchr(name, '.');
    if (!dot || !strstr(name, "LayerNorm.")) return NULL;
    char old[HF_NAME];
    snprintf(old, sizeof old, "%.*s.%s", (int)(dot - name), name, !strcmp(dot, ".weight") ? "gamma" : "beta");
    return find_prefixed(loader, old, body);
}

static Status expect_equal(const Loader *loader, const HfEntry *a, const HfEntry *b) {
    if (loader->checked) return OK;
    bool equal = false;
    if (a->tensor->dtype <= DT_F64 && b->tensor->dtype <= DT_F64)
        TRY(values_equal(a->tensor, b->tensor, &equal));
    if (equal) return OK;
    return FAILED("%s: '%s' differs from '%s', but 'tie_word_embeddings' in config.json is true; "
                  "set it to false if the two are meant to differ",
                  a->path, a->tensor->name, b->tensor->name);
}

/* The output bias may be stored under one or both of two names; an untied model uses the decoder's. */
static Status find_output_bias(Loader *loader, HfEntry **ret_entry) {
    const Family *family = loader->model->config.family;
    HfEntry *own = hf_files_find(loader->files, family->output_bias[0]);
    HfEntry *decoder = hf_files_find(loader->files, family->output_bias[1]);
    if (own && decoder) {
        own->used = decoder->used = true;
        if (loader->model->config.tied) TRY(expect_equal(loader, decoder, own));
    }
    *ret_entry = loader->model->config.tied ? (own ? own : decoder) : (decoder ? decoder : own);
    return OK;
}

/* A tied model's embedding matrix may be stored under either or both of two names. */
static Status find_tied(Loader *loader, HfEntry **entry) {
    const ModelConfig *config = &loader->model->config;
    if (!config->tied || !heads_traits(config->outputs_mask).vocab) return OK;
    HfEntry *output = hf_files_find(loader->files, config->family->output_matrix);
    if (!output) return OK;
    output->used = true;
    if (*entry) return expect_equal(loader, output, *entry);
    *entry = output;
    return OK;
}

static Status find_tensor(Loader *loader, const ParamDesc *desc, const HfTensor *wanted,
                          HfEntry **ret_entry) {
    HfEntry *entry = find_prefixed(loader, wanted->name, wanted->body);
    if (!entry) entry = find_old_norm(loader, wanted->name, wanted->body);
    const char *bias = loader->model->config.family->output_bias[0];
    if (bias && !strcmp(wanted->name, bias)) TRY(find_output_bias(loader, &entry));
    if (!strcmp(desc->name, "embed.token")) TRY(find_tied(loader, &entry));
    if (entry) entry->used = true;
    *ret_entry = entry;
    return OK;
}

static Status check_tensor(const Loader *loader, const ParamDesc *desc, const HfTensor *wanted,
                           const HfEntry *entry) {
    const SafeTensor *tensor = entry->tensor;
    if (tensor->dtype > DT_F64)
        return FAILED("%s: tensor '%s' has dtype %s; expected F32, F16, BF16 or F64", entry->path,
                      tensor->name, tensor->type);
    bool same = tensor->ndim == wanted->ndim;
    for (int i = 0; same && i < wanted->ndim; i++) same = tensor->dim[i] == wanted->dim[i];
    if (same) return OK;
    if (!strcmp(desc->name, "embed.token") && tensor->ndim == 2 && tensor->dim[0] != wanted->dim[0])
        return FAILED("%s: vocabulary size mismatch: vocab_size is %lld, but '%s' has %lld rows", entry->path,
                      (long long)loader->model->config.vocab, tensor->name, (long long)tensor->dim[0]);
    char found[SHAPE_TEXT], expected[SHAPE_TEXT];
    return FAILED("%s: tensor '%s' has shape %s, but the model expects %s", entry->path, tensor->name,
                  safe_shape_text(found, tensor->ndim, tensor->dim),
                  safe_shape_text(expected, wanted->ndim, wanted->dim));
}

Status store_read_slot(Store *store, ParamRef ref, const HfTensor *wanted, const SafeTensor *const *tensor,
                       int parts, const RootDisk *disk, Stream *stream) {
    StorePart part;
    if (!store_part(store, ref, &part))
        return disk ? slice_receive(NULL, part.slot, 0, 0, wanted, tensor, parts, disk) : OK;
    float *host = NULL;
    CLEANUP(mem_freep) float *staging = NULL;
    TRY(values_space(stream, part.values, part.count, &staging, &host));
    TRY(disk ? slice_receive(host, part.slot, part.from, part.count, wanted, tensor, parts, disk)
             : slice_read(host, part.slot, part.from, part.count, wanted, tensor, parts));
    return values_set(stream, part.values, part.count, staging);
}

/* Quantized parameters are not in the store; hf_quantized_load reads them. */
static Status check_quantized(Loader *loader, const ParamDesc *desc) {
    LoadReport *report = &loader->report;
    QuantizedTensors found;
    TRY(quantized_find(loader->files, &loader->model->config, desc, &found));
    if (loader->checked || found.complete) return OK;
    return add_name(&report->missing, &report->missing_count, &report->missing_capacity, desc->name);
}

/* Expands a matrix that is stored without its zeros. */
static Status load_sparse(Loader *loader, const ParamDesc *desc, const SparseTensors *found,
                          const ParamRef *ref) {
    if (!ref || desc->packing) return OK;
    CLEANUP(mem_freep) float *values = NULL;
    if (!loader->disk || loader->disk->group->rank == 0) TRY(sparse_expand(desc, found, &values));
    HfTensor whole = {.part = -1, .ndim = 2, .dim = {1, param_count(desc)}};
    SafeTensor tensor = {.name = desc->name,
                         .type = "F32",
                         .dtype = DT_F32,
                         .ndim = 2,
                         .dim = {1, whole.dim[1]},
                         .data = (const unsigned char *)values,
                         .bytes = (size_t)whole.dim[1] * sizeof *values};
    return store_read_slot(loader->store, *ref, &whole, (const SafeTensor *const[]){&tensor}, 1, loader->disk,
                           loader->stream);
}

/* Matrices in 4 bits, and what they are in fp32. */
typedef struct Decoded {
    BnbMatrix *matrix;
    size_t count;
} Decoded;

static void decoded_done(Decoded *decoded) {
    for (size_t i = 0; i < decoded->count; i++) free((void *)(uintptr_t)decoded->matrix[i].decoded.data);
    free(decoded->matrix);
}

/* Replaces *tensor by the matrix that it encodes, if it does; with values only for those who read them. */
static Status decode(Loader *loader, const HfEntry *entry, bool values, BnbMatrix *matrix,
                     const SafeTensor **tensor) {
    float *made = NULL;
    TRY(bnb_find(loader->files, entry, matrix));
    *tensor = matrix->codes ? &matrix->decoded : entry->tensor;
    if (!matrix->codes || !values || (loader->disk && loader->disk->group->rank)) return OK;
    TRY(bnb_decode(matrix, &made));
    matrix->decoded.data = (const unsigned char *)made;
    return OK;
}

/* Loads a parameter, or only checks it if ref is NULL. A parameter that lacks a tensor is missing and
 * unchanged. */
static Status load_param(Loader *loader, const ParamDesc *desc, const ParamRef *ref) {
    SparseTensors sparse = {0};
    if (loader->model->config.sparse) TRY(sparse_find(loader->files, desc, &sparse));
    if (sparse.mask) return load_sparse(loader, desc, &sparse, ref);
    if (desc->packing) return check_quantized(loader, desc);
    CLEANUP(hf_tensors_done) HfTensorList wanted = {0};
    CLEANUP(mem_freep) const SafeTensor **tensor = NULL;
    const Family *family = loader->model->config.family;
    TRY(loader->files->gguf ? gguf_tensors(family, desc, &wanted) : hf_tensors(family, desc, &wanted));
    TRY(mem_new(wanted.count, sizeof *tensor, &tensor));
    CLEANUP(decoded_done) Decoded decoded = {0};
    TRY(mem_new(wanted.count, sizeof *decoded.matrix, &decoded.matrix));
    decoded.count = wanted.count;
    int count = (int)wanted.count, found = 0;
    for (int i = 0; i < count; i++) {
        HfEntry *entry = NULL;
        TRY(find_tensor(loader, desc, &wanted.tensor[i], &entry));
        if (!entry) continue;
        TRY(decode(loader, entry, ref != NULL, &decoded.matrix[i], &tensor[found]));
        HfEntry checked = {.tensor = tensor[found++], .path = entry->path};
        TRY(check_tensor(loader, desc, &wanted.tensor[i], &checked));
    }
    LoadReport *report = &loader->report;
    if (found < count)
        return ref ? OK
                   : add_name(&report->missing, &report->missing_count, &report->missing_capacity,
                              desc->name);
    return ref ? store_read_slot(loader->store, *ref, wanted.tensor, tensor, count, loader->disk,
                                 loader->stream)
               : OK;
}

static Status load_params(Loader *loader, bool copy) {
    for (ModelParam param = {0}; model_param_next(loader->model, &param);)
        if (loader->adapter ? !param.desc->frozen : !param_is_adapter(param.desc))
            TRY(load_param(loader, param.desc, copy ? &param.ref : NULL));
    return OK;
}

static Status report_unexpected(Loader *loader) {
    LoadReport *report = &loader->report;
    for (size_t i = 0; i < loader->files->entries; i++) {
        const HfEntry *entry = &loader->files->entry[i];
        if (entry->used || hf_is_buffer(loader->model->config.family, entry->tensor->name)) continue;
        char shown[NAME_TEXT];
        TRY(add_name(&report->unexpected, &report->unexpected_count, &report->unexpected_capacity,
                     name_text(shown, entry->tensor->name)));
    }
    return OK;
}

static void forget_name(char **names, size_t *count, const char *name) {
    for (size_t i = 0; i < *count; i++) {
        if (strcmp(names[i], name)) continue;
        free(names[i]);
        names[i--] = names[--*count];
    }
}

/* Merges an adapter into its base model, which may lack what the adapter has as a whole. */
static Status merge(Loader *loader, const char *dir) {
    CLEANUP(adapter_freep) Adapter *adapter = NULL;
    TRY(adapter_open(&adapter, dir, loader->model));
    for (ModelParam param = {0}; model_param_next(loader->model, &param);) {
        LoadReport *report = &loader->report;
        if (adapter_replaces(adapter, param.desc))
            forget_name(report->missing, &report->missing_count, param.desc->name);
    }
    return loader->store ? adapter_merge(adapter, loader->store, loader->disk, loader->stream) : OK;
}

static void loader_done(Loader *loader) {
    hf_files_free(loader->files);
    load_report_done(&loader->report);
}

static Status load(Loader *loader, const char *dir, LoadReport *ret_report) {
    TRY(adapter_in(dir, &loader->adapter));
    bool merges = loader->adapter && !loader->model->config.lora.rank;
    loader->adapter &= !merges;
    TRY(loader->adapter ? hf_files_open_single(&loader->files, dir, ADAPTER_WEIGHTS)
                        : hf_files_open(&loader->files, dir));
    TRY(load_params(loader, false));
    TRY(report_unexpected(loader));
    loader->checked = true;
    if (loader->store) TRY(load_params(loader, true));
    if (merges) TRY(merge(loader, dir));
    if (ret_report) {
        *ret_report = loader->report;
        loader->report = (LoadReport){0};
    }
    return OK;
}

Status hf_weights_check(const char *dir, const Model *model, LoadReport *ret_report) {
    CLEANUP(loader_done) Loader loader = {.model = model};
    return load(&loader, dir, ret_report);
}

Status hf_weights_load(const char *dir, Store *params, Stream *stream, LoadReport *ret_report) {
    return hf_weights_receive(dir, NULL, params, stream, ret_report);
}

Status hf_weights_receive(const char *dir, const RootDisk *disk, Store *params, Stream *stream,
                          LoadReport *ret_report) {
    CLEANUP(loader_done)
    Loader loader = {.model = params->model, .store = params, .stream = stream, .disk = disk};
    return load(&loader, dir, ret_report);
}

/* Output heads of an encoder may be newly initialized, and the output matrix of a decoder that was saved
 * without one; everything else must be in the files. */
static bool may_be_fresh(const ModelConfig *config, const char *name) {
    static const char output[] = "head.output";
    if (config_is_decoder(config)) return config->bare && !strncmp(name, output, sizeof output - 1);
    return !strncmp(name, "head.", 5);
}

Status load_report_check(const LoadReport *report, const char *dir, const ModelConfig *config,
                         bool fresh_outputs) {
    const char *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < report->missing_count; i++) {
        if (fresh_outputs && may_be_fresh(config, report->missing[i])) continue;
        if (!first) first = report->missing[i];
        count++;
    }
    if (count == 0) return OK;
    if (may_be_fresh(config, first) && config_is_decoder(config))
        return FAILED(
            "%s is a base model without an output matrix; 'weft train' starts from it with a new one", dir);
    if (may_be_fresh(config, first))
        return FAILED("%s was trained for another task; it has no tensor for the model's parameter %s", dir,
                      first);
    if (count == 1) return FAILED("%s: no tensor for the model's parameter %s", dir, first);
    return FAILED("%s: no tensors for %zu of the model's parameters; the first is %s", dir, count, first);
}
