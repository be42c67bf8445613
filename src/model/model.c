/* Builds models from blocks. Also builds stores: the flat buffer of each unit and the parameter views of each
 * block. */
#include "model/model.h"

#include <string.h>

#include "base/memory.h"
#include "base/suggest.h"
#include "model/parts/blocks.h"

static const BlockOps *ops_of(const ModelConfig *config, int64_t at) {
    if (at == 0) return &block_ops_embed;
    if (at <= config->layers) return &block_ops_layer;
    return config->family->output;
}

static Status add_to_unit(Model *model, int at, const ParamDesc *desc, ParamRef *ret_ref) {
    TRY(param_add(&model->unit[at], *desc));
    *ret_ref = (ParamRef){.unit = at, .slot = (int)model->unit[at].count - 1};
    return OK;
}

static bool find_param(const Model *model, const char *name, ParamRef *ret_ref) {
    for (int i = 0; i < model->units; i++)
        for (size_t j = 0; j < model->unit[i].count; j++) {
            if (strcmp(model->unit[i].desc[j].name, name)) continue;
            *ret_ref = (ParamRef){.unit = i, .slot = (int)j};
            return true;
        }
    return false;
}

static Status list_units(Block *block) {
    TRY(mem_new(block->params.count, sizeof *block->unit, &block->unit));
    for (size_t j = 0; j < block->params.count; j++) {
        int k = 0;
        while (k < block->units && block->unit[k] != block->ref[j].unit) k++;
        if (k == block->units) block->unit[block->units++] = block->ref[j].unit;
    }
    return OK;
}

/* Whether a block has trained parameters that are not experts. */
static bool trains_others(const Block *block) {
    for (size_t j = 0; j < block->params.count; j++) {
        const ParamDesc *desc = &block->params.desc[j];
        if (!desc->tied && !desc->frozen && !desc->expert && !param_is_vocab_matrix(desc)) return true;
    }
    return false;
}

/* Groups parameters into units: one for each vocabulary matrix and, per block, up to four by whether they are
 * experts and frozen. The first of the latter is unit i. */
static Status make_units(Model *model) {
    int matrices = 0;
    for (int i = 0; i < model->count; i++)
        for (size_t j = 0; j < model->block[i].params.count; j++)
            matrices += param_is_vocab_matrix(&model->block[i].params.desc[j]);
    TRY(mem_new((size_t)(4 * model->count + matrices), sizeof *model->unit, &model->unit));
    model->units = model->count;
    for (int i = 0; i < model->count; i++) {
        Block *block = &model->block[i];
        int unit[2][2] = {{-1, -1}, {-1, -1}}; /* [expert][frozen] */
        unit[0][!trains_others(block)] = i;
        TRY(mem_new(block->params.count, sizeof *block->ref, &block->ref));
        for (size_t j = 0; j < block->params.count; j++) {
            const ParamDesc *desc = &block->params.desc[j];
            if (desc->tied && !find_param(model, desc->name, &block->ref[j]))
                return FAILED("internal: tied parameter %s has no owner", desc->name);
            if (desc->tied) continue;
            int matrix = -1, *own = &unit[desc->expert][desc->frozen];
            if (param_is_vocab_matrix(desc)) own = &matrix;
            if (*own < 0) *own = model->units++;
            TRY(add_to_unit(model, *own, desc, &block->ref[j]));
        }
        TRY(list_units(block));
    }
    return OK;
}

static void units_done(Model *model) {
    for (int i = 0; i < model->count; i++) {
        mem_freep(&model->block[i].ref);
        mem_freep(&model->block[i].unit);
        model->block[i].units = 0;
    }
    for (int i = 0; i < model->units; i++) param_list_done(&model->unit[i]);
    mem_freep(&model->unit);
    model->units = 0;
}

static bool layer_matrix(const Block *block, const ParamDesc *desc) {
    return block_is_layer(block) && strstr(desc->name, ".weight") && desc->decay;
}

static Status number_params(Block *block) {
    for (int i = 0; i < BLOCK_SLOTS; i++) block->slot[i] = -1;
    for (size_t i = 0; i < block->params.count; i++) {
        int id = block->params.desc[i].id;
        if (id < 0 || id >= BLOCK_SLOTS || block->slot[id] >= 0)
            return FAILED("internal: parameter %s has the number %d", block->params.desc[i].name, id);
        block->slot[id] = (int)i;
    }
    return OK;
}

bool param_is_router(const ParamDesc *desc) {
    return strstr(desc->name, ".router.") != NULL;
}

/* Norms, biases, position embeddings and the routers of mixtures are never packed, and neither experts nor
 * matrices that are computed as one are sparse. */
static void choose_packing(Block *block) {
    const ModelConfig *config = block->config;
    for (size_t i = 0; i < block->params.count; i++) {
        ParamDesc *desc = &block->params.desc[i];
        bool joined = desc->joined || (i + 1 < block->params.count && desc[1].joined);
        bool dense = joined || strstr(desc->name, ".moe.");
        if (!strcmp(desc->name, "embed.token") || !strcmp(desc->name, "head.output.weight"))
            desc->packing = config->packed_embedding;
        else if (layer_matrix(block, desc) && !param_is_router(desc) &&
                 !(config->packed_layers == PACK_SPARSE && dense))
            desc->packing = config->packed_layers;
    }
}

Status model_new(Model **ret_model, const ModelConfig *config) {
    TRY(config_check(config));
    CLEANUP(model_freep) Model *model = NULL;
    TRY(mem_new(1, sizeof *model, &model));
    model->config = *config;
    TRY(mem_new((size_t)config->layers + 2, sizeof *model->block, &model->block));
    for (int64_t at = 0; at < config->layers + 2; at++) {
        Block *block = &model->block[at];
        block->ops = ops_of(config, at);
        block->config = &model->config;
        block->index = at > 0 && at <= config->layers ? (int)at - 1 : 0;
        model->count++;
        TRY(block->ops->describe(block, &block->params));
        TRY(number_params(block));
        choose_packing(block);
        TRY(mem_new(block->params.count, sizeof *block->packed, &block->packed));
        block->trained = true;
    }
    TRY(make_units(model));
    return MOVE(ret_model, model);
}

void model_free(Model *model) {
    if (!model) return;
    units_done(model);
    for (int i = 0; i < model->count; i++) {
        param_list_done(&model->block[i].params);
        free(model->block[i].packed);
    }
    for (size_t i = 0; i < model->sparse_count; i++) dev_free(&model->sparse[i]);
    free(model->sparse);
    dev_free(&model->quantized);
    dev_free(&model->placed);
    free(model->block);
    free(model);
}

/* ---- adapters ---- */

Status model_adapt(Model *model, LoraConfig lora, const LoraTarget *target, int count) {
    units_done(model);
    model->config.lora = lora;
    for (int i = 0; i < model->count; i++) {
        Block *block = &model->block[i];
        if (!block_is_layer(block)) continue;
        TRY(describe_lora(block, &block->params, target, count));
        TRY(number_params(block));
        mem_freep(&block->packed);
        TRY(mem_new(block->params.count, sizeof *block->packed, &block->packed));
    }
    return make_units(model);
}

/* ---- frozen parameters ---- */

/* Parameters that are computed as one are in one unit. */
static Status check_joined(const Block *block) {
    for (size_t j = 1; j < block->params.count; j++) {
        const ParamDesc *desc = &block->params.desc[j];
        if (desc->joined && desc->frozen != desc[-1].frozen)
            return USAGE("{freeze}: %s and %s are computed as one matrix; freeze both or neither",
                         desc[-1].name, desc->name);
    }
    return OK;
}

/* An error that names what the pattern may have meant. */
static Status no_match(const Model *model, const char *pattern) {
    Suggestion near = {.word = pattern};
    CLEANUP(mem_freep) char(*name)[PARAM_NAME] = NULL;
    size_t count = 0, parts = 0;
    for (int i = 0; i < model->count; i++) parts += 6 * model->block[i].params.count;
    TRY(mem_new(parts, sizeof *name, &name));
    for (int i = 0; i < model->count; i++)
        for (size_t j = 0; j < model->block[i].params.count; j++) {
            const char *whole = model->block[i].params.desc[j].name;
            for (size_t length = strlen(whole); length && count < parts; length--) {
                if (whole[length] && whole[length] != '.') continue;
                snprintf(name[count], sizeof *name, "%.*s", (int)length, whole);
                suggest_offer(&near, name[count++]);
            }
        }
    if (near.best)
        return USAGE("{freeze} '%s': the model has no such parameter; did you mean '%s'?", pattern,
                     near.best);
    return USAGE("{freeze} '%s': no parameter of the model matches; names are like 'embed.token', "
                 "'layer.0.attn.qkv.weight' and 'layer.0.norm1.bias'",
                 pattern);
}

Status model_freeze(Model *model, const char *const *patterns, int count) {
    if (!count) return OK;
    units_done(model);
    for (int k = 0; k < count; k++) {
        const char *pattern = patterns[k] + (patterns[k][0] == '!');
        bool found = false;
        for (int i = 0; i < model->count; i++)
            for (size_t j = 0; j < model->block[i].params.count; j++) {
                ParamDesc *desc = &model->block[i].params.desc[j];
                if (!param_matches(desc, pattern)) continue;
                desc->frozen = pattern == patterns[k];
                found = true;
            }
        if (!found) return no_match(model, pattern);
    }
    model->lowest = model->count;
    for (int i = model->count - 1; i >= 0; i--) {
        Block *block = &model->block[i];
        TRY(check_joined(block));
        block->frozen = block->trained = false;
        for (size_t j = 0; j < block->params.count; j++)
            *(block->params.desc[j].frozen ? &block->frozen : &block->trained) = true;
        if (block->trained) model->lowest = i;
    }
    if (model->lowest == model->count)
        return USAGE("{freeze}: this freezes all parameters; leave some to be trained");
    return make_units(model);
}

static int64_t count_params(const Model *model, bool frozen) {
    int64_t count = 0;
    for (int i = 0; i < model->count; i++) {
        const ParamList *list = &model->block[i].params;
        for (size_t j = 0; j < list->count; j++)
            if (!list->desc[j].tied && (frozen || !list->desc[j].frozen))
                count += param_count(&list->desc[j]);
    }
    return count;
}

int64_t model_params(const Model *model) {
    return count_params(model, true);
}

int64_t model_active(const Model *model) {
    const ModelConfig *c = &model->config;
    int64_t expert = 3 * c->hidden * c->expert_inner;
    return model_params(model) - config_sparse_layers(c) * (c->experts - c->top_k) * expert;
}

Status model_params_stored(const Model *model, int tp, int64_t *ret_count) {
    int64_t total = 0;
    for (int i = 0; i < model->units; i++) {
        CLEANUP(unit_done) Unit unit = {0};
        TRY(unit_init(&unit, &model->unit[i], (UnitSpec){.tp_size = tp, .shards = 1}));
        for (size_t k = 0; k < unit.count; k++) total += tp * unit.slot[k].count;
    }
    *ret_count = total;
    return OK;
}

int64_t model_trained(const Model *model) {
    return count_params(model, false);
}

int64_t model_adapters(const Model *model) {
    int64_t count = 0;
    for (ModelParam param = {0}; model_param_next(model, &param);)
        if (param_is_adapter(param.desc)) count += param_count(param.desc);
    return count;
}

/* A third each for forward, the gradient of the input and those of the weights. */
double model_block_flops(const Model *model, int at, int64_t T) {
    const Block *block = &model->block[at];
    double all = block->ops->flops(block, T), trained = 0, params = 0;
    if (!block->frozen && at >= model->lowest) return all;
    for (size_t j = 0; j < block->params.count; j++) {
        const ParamDesc *desc = &block->params.desc[j];
        params += (double)param_count(desc);
        if (!desc->frozen) trained += (double)param_count(desc);
    }
    return all / 3 * (1 + (at >= model->lowest) + trained / params);
}

/* ---- packed weights ---- */

/* Packed weights of a parameter's owner; NULL if it is not packed. */
static Tensor *find_packed(const Model *model, const char *name) {
    for (ModelParam param = {0}; model_param_next(model, &param);)
        if (param.desc->packing && !strcmp(param.desc->name, name))
            return &param.block->packed[param.next - 1];
    return NULL;
}

/* Shape of a parameter's packed weights; vocabulary rows include padding. */
static int64_t packed_rows(const ParamDesc *desc) {
    int64_t cols = desc->dim[desc->ndim - 1];
    return desc->vocab ? vocab_padded(desc->dim[0], 1) : param_count(desc) / cols;
}

static Status packed_size(const Model *model, const Exec *exec, const ParamDesc *desc, size_t *ret_bytes) {
    enum { ALIGN = 4096 };
    int64_t matrices = packed_matrices(&model->config, desc), cols = desc->dim[desc->ndim - 1];
    int64_t rows = packed_rows(desc) / matrices;
    size_t bytes;
    TRY(desc->packing == PACK_INT4 ? int4_bytes(exec, rows, cols, &bytes)
                                   : int8_bytes(exec, rows, cols, &bytes));
    if (!mul_size(bytes, (size_t)matrices, &bytes) || bytes > PTRDIFF_MAX / 2)
        return FAILED("the parameter %s does not fit in memory", desc->name);
    *ret_bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return OK;
}

static Tensor packed_view(const ParamDesc *desc, void *data) {
    DType dtype = desc->packing == PACK_INT4 ? DT_Q4 : DT_Q8;
    if (desc->ndim == 3) return tensor_3d(data, dtype, desc->dim[0], desc->dim[1], desc->dim[2]);
    return tensor_2d(data, dtype, packed_rows(desc), desc->dim[desc->ndim - 1]);
}

/* For a GPU, the host packs the weights and keeps its copy. */
static Status alloc_packed(Model *model, Device *device, size_t bytes) {
    if (device_is_host(device)) return dev_alloc(device, MEM_PARAMS, bytes, &model->quantized);
    TRY(dev_alloc_host(device, bytes, &model->quantized));
    return dev_alloc(device, MEM_PARAMS, bytes, &model->placed);
}

static Status move_packed(const Model *model, const Exec *exec, Tensor packed) {
    if (!model->placed.data) return OK;
    ptrdiff_t at = (char *)packed.data - (char *)model->quantized.data;
    return int8_upload(exec, packed, (char *)model->placed.data + at);
}

/* Places all packed parameters in one buffer that is large enough for huge pages: decoding reads all of them
 * for every token, and huge pages avoid TLB misses. */
static Status place_packed(Model *model, const Exec *exec) {
    size_t total = 0, at = 0, bytes;
    for (ModelParam param = {0}; model_param_next(model, &param);) {
        if (!param.desc->packing) continue;
        TRY(packed_size(model, exec, param.desc, &bytes));
        total += bytes;
    }
    TRY(alloc_packed(model, exec->stream->device, total));
    for (ModelParam param = {0}; model_param_next(model, &param); at += bytes) {
        const ParamDesc *desc = param.desc;
        bytes = 0;
        if (!desc->packing) continue;
        TRY(packed_size(model, exec, desc, &bytes));
        param.block->packed[param.next - 1] = packed_view(desc, (char *)model->quantized.data + at);
    }
    for (int i = 0; i < model->count; i++)
        for (size_t j = 0; j < model->block[i].params.count; j++) {
            const ParamDesc *desc = &model->block[i].params.desc[j];
            if (desc->packing && desc->tied) model->block[i].packed[j] = *find_packed(model, desc->name);
        }
    return OK;
}

/* The matrices of a parameter, (E,N,K), where they are to be packed. */
static Status packed_place(Model *model, const Exec *exec, const char *name, DType dtype, Tensor *ret_stack) {
    if (!model->quantized.data) TRY(place_packed(model, exec));
    const Tensor *found = find_packed(model, name);
    ParamRef ref;
    if (!found || found->dtype != dtype || !find_param(model, name, &ref))
        return FAILED("internal: the model has no parameter %s with %s", name, dtype_name(dtype));
    int64_t matrices = packed_matrices(&model->config, &model->unit[ref.unit].desc[ref.slot]);
    *ret_stack = tensor_3d(found->data, dtype, matrices, tensor_rows(*found) / matrices, tensor_cols(*found));
    return OK;
}

/* The rows of a tensor that belong to one of `count` matrices; absent: absent. */
static Tensor part_of(Tensor t, int64_t at, int64_t count) {
    return t.data ? tensor_slice(t, at * (t.dim[0] / count), t.dim[0] / count) : t;
}

/* step: absent for int8. */
static Status set_packed(Model *model, const Exec *exec, const char *name, Tensor w, Tensor step,
                         Tensor scale, Tensor factor, const float *largest) {
    Tensor stack, packed;
    TRY(packed_place(model, exec, name, step.data ? DT_Q4 : DT_Q8, &stack));
    int64_t count = stack.dim[0];
    if (w.dim[0] % count || scale.dim[0] % count || (factor.data && factor.dim[0] % count))
        return FAILED("internal: %s: the matrices of %lld experts differ in size", name, (long long)count);
    for (int64_t at = 0; at < count; at++) {
        Tensor rows = part_of(w, at, count), scales = part_of(scale, at, count),
               factors = part_of(factor, at, count);
        TRY(packed_matrix(exec, stack, at, &packed));
        TRY(step.data ? int4_pack(exec, packed, rows, part_of(step, at, count), scales, factors)
                      : int8_pack(exec, packed, rows, scales, factors));
        TRY(int8_set_static_amax(packed, largest ? largest[at] : 0));
        TRY(move_packed(model, exec, packed));
    }
    return OK;
}

Status model_set_int8(Model *model, const Exec *exec, const char *name, Tensor w, Tensor scale, Tensor factor,
                      const float *largest) {
    return set_packed(model, exec, name, w, TENSOR_NONE, scale, factor, largest);
}

Status model_set_int4(Model *model, const Exec *exec, const char *name, Tensor w, Tensor step, Tensor scale,
                      Tensor factor, const float *largest) {
    return set_packed(model, exec, name, w, step, scale, factor, largest);
}

Status model_set_sparse(Model *model, const Exec *exec, const char *name, Tensor mask, const int64_t *first,
                        Tensor values) {
    Tensor *place = find_packed(model, name);
    ParamRef ref;
    if (!place || !find_param(model, name, &ref))
        return FAILED("internal: the model has no sparse parameter %s", name);
    const ParamDesc *desc = &model->unit[ref.unit].desc[ref.slot];
    int64_t cols = desc->dim[desc->ndim - 1], rows = param_count(desc) / cols;
    size_t bytes;
    TRY(sparse_bytes(exec, mask, rows, cols, &bytes));
    TRY(mem_grow(&model->sparse, &model->sparse_capacity, model->sparse_count + 1, sizeof *model->sparse));
    Buffer *buffer = &model->sparse[model->sparse_count];
    *buffer = (Buffer){0};
    TRY(dev_alloc(exec->stream->device, MEM_PARAMS, bytes, buffer));
    model->sparse_count++;
    *place = tensor_2d(buffer->data, DT_SPARSE, rows, cols);
    return sparse_pack(exec, *place, mask, first, values);
}

Status output_logits(const Block *head, Pass *pass, HeadId which, Tensor out, Tensor x) {
    if (which != HEAD_NONE) return head->ops->logits(head, pass, which, out, x);
    if (head->ops->hidden) return head->ops->hidden(head, pass, out, x);
    return convert(pass->exec, out, x);
}

bool model_param_next(const Model *model, ModelParam *param) {
    int number = param->block ? param->number + 1 : 0;
    for (; param->at_block < model->count; param->at_block++, param->next = 0) {
        const Block *block = &model->block[param->at_block];
        while (param->next < (int)block->params.count) {
            int i = param->next++;
            if (block->params.desc[i].tied) continue;
            *param =
                (ModelParam){block, &block->params.desc[i], block->ref[i], number, param->at_block, i + 1};
            return true;
        }
    }
    return false;
}

const char *model_param_name(const Model *model, int number) {
    for (ModelParam param = {0}; model_param_next(model, &param);)
        if (param.number == number) return param.desc->name;
    return "a parameter";
}

size_t output_logits_scratch(const Block *head, HeadId which, int64_t rows) {
    bool plain = which == HEAD_NONE && !head->ops->hidden;
    return plain ? 0 : head->ops->logits_scratch(head, which, rows);
}

void block_views(const Block *block, const Unit *unit, void *const *flat, DType dtype, Tensor *views) {
    for (size_t i = 0; i < block->params.count; i++) {
        ParamRef ref = block->ref[i];
        if (block->packed[i].data)
            views[i] = block->packed[i];
        else
            views[i] = unit_view(&unit[ref.unit].slot[ref.slot], flat[ref.unit], dtype);
    }
}

Status store_new_borrowed(Store **ret_store, const Model *model, const UnitSpec *spec, DType dtype) {
    CLEANUP(store_freep) Store *store = NULL;
    TRY(mem_new(1, sizeof *store, &store));
    store->model = model;
    store->dtype = dtype;
    store->borrowed = true;
    size_t units = (size_t)model->units;
    TRY(mem_new(units, sizeof *store->spec, &store->spec));
    memcpy(store->spec, spec, units * sizeof *spec);
    TRY(mem_new(units, sizeof *store->unit, &store->unit));
    TRY(mem_new(units, sizeof *store->flat, &store->flat));
    TRY(mem_new(units, sizeof *store->first, &store->first));
    TRY(mem_new(units, sizeof *store->count, &store->count));
    TRY(mem_new((size_t)model->count, sizeof *store->view, &store->view));
    for (int i = 0; i < model->units; i++) TRY(unit_init(&store->unit[i], &model->unit[i], spec[i]));
    return MOVE(ret_store, store);
}

static bool block_is_whole(const Store *store, const Block *block) {
    for (int i = 0; i < block->units; i++)
        if (store->count[block->unit[i]] != store->unit[block->unit[i]].numel) return false;
    return true;
}

Status store_bind(Store *store) {
    const Model *model = store->model;
    CLEANUP(mem_freep) void **flat = NULL;
    TRY(mem_new((size_t)model->units, sizeof *flat, &flat));
    for (int i = 0; i < model->units; i++) flat[i] = store->flat[i].data;
    for (int i = 0; i < model->count && !store->rest && !store->rounded && !store->codes; i++) {
        if (!block_is_whole(store, &model->block[i])) continue;
        TRY(mem_new(model->block[i].params.count, sizeof **store->view, &store->view[i]));
        block_views(&model->block[i], store->unit, flat, store->dtype, store->view[i]);
    }
    return OK;
}

Status store_new(Store **ret_store, const Model *model, Device *device, MemTag tag) {
    CLEANUP(store_freep) Store *store = NULL;
    CLEANUP(mem_freep) UnitSpec *spec = NULL;
    TRY(mem_new((size_t)model->units, sizeof *spec, &spec));
    for (int i = 0; i < model->units; i++) spec[i] = (UnitSpec){.tp_size = 1, .shards = 1};
    TRY(store_new_borrowed(&store, model, spec, DT_F32));
    store->borrowed = false;
    for (int i = 0; i < model->units; i++) {
        store->count[i] = store->unit[i].numel;
        TRY(dev_alloc(device, tag, (size_t)store->unit[i].numel * sizeof(float), &store->flat[i]));
    }
    TRY(store_bind(store));
    return MOVE(ret_store, store);
}

void store_free(Store *store) {
    if (!store) return;
    for (int i = 0; i < store->model->units; i++) {
        if (store->unit) unit_done(&store->unit[i]);
        if (store->flat && !store->borrowed) dev_free(&store->flat[i]);
    }
    for (int i = 0; store->view && i < store->model->count; i++) free(store->view[i]);
    free(store->spec);
    free(store->unit);
    free(store->flat);
    free(store->rest);
    free(store->rounded);
    free(store->codes);
    free(store->first);
    free(store->count);
    free(store->view);
    free(store);
}

Values store_values(const Store *store, int unit, int64_t at) {
    int64_t coded = store->codes ? store->codes[unit].count : 0;
    if (at < coded) return values_at(store->codes[unit].values, at);
    at -= coded;
    Values all = {.data = store->flat[unit].data,
                  .rest = store->rest ? store->rest[unit].data : NULL,
                  .dtype = store->rounded ? store->rounded[unit] : DT_F32};
    return values_at(all, at);
}

bool store_part(const Store *store, ParamRef ref, StorePart *ret_part) {
    int64_t first = store->first[ref.unit];
    StorePart part = {.slot = &store->unit[ref.unit].slot[ref.slot]};
    if (store->count[ref.unit] &&
        slot_overlap(part.slot, first, store->count[ref.unit], &part.from, &part.count))
        part.values = store_values(store, ref.unit, part.slot->offset + part.from - first);
    else
        part.count = 0;
    *ret_part = part;
    return part.count > 0;
}

Status store_init_params(Store *store, Stream *stream, uint64_t seed) {
    for (int i = 0; i < store->model->units; i++) {
        const Unit *unit = &store->unit[i];
        if (!store->count[i]) continue;
        CLEANUP(mem_freep) float *values = NULL;
        TRY(mem_new((size_t)store->count[i], sizeof *values, &values));
        for (size_t j = 0; j < unit->count; j++) {
            const ParamSlot *slot = &unit->slot[j];
            int64_t from, count;
            if (!slot_overlap(slot, store->first[i], store->count[i], &from, &count)) continue;
            param_init(slot, seed, from, count, values + (slot->offset + from - store->first[i]));
        }
        int64_t coded = store->codes ? store->codes[i].count : 0;
        if (coded) TRY(values_set(stream, store_values(store, i, 0), coded, values));
        TRY(values_set(stream, store_values(store, i, coded), store->count[i] - coded, values + coded));
    }
    return OK;
}

Status store_zero(Store *store, Stream *stream) {
    for (int i = 0; i < store->model->units; i++) {
        if (!store->count[i]) continue;
        Values values = store_values(store, i, 0);
        DType dtype = values.rest ? DT_BF16 : store->dtype == DT_F32 ? values.dtype : store->dtype;
        TRY(stream_zero(stream, values.data, (size_t)store->count[i] * dtype_size(dtype)));
        if (values.rest) TRY(stream_zero(stream, values.rest, (size_t)store->count[i] * sizeof *values.rest));
    }
    return OK;
}

Status store_convert(Store *store, Exec *exec, DType dtype) {
    if (store->borrowed || store->dtype != DT_F32)
        return FAILED("internal: store_convert needs an owned fp32 store");
    if (dtype == DT_F32) return OK;
    for (int i = 0; i < store->model->units; i++) {
        Buffer *flat = &store->flat[i], made;
        if (!flat->data) continue;
        TRY(dev_alloc(flat->device, flat->tag, (size_t)store->count[i] * dtype_size(dtype), &made));
        Status status = convert(exec, tensor_1d(made.data, dtype, store->count[i]),
                                tensor_1d(flat->data, DT_F32, store->count[i]));
        if (!status) status = stream_sync(exec->stream);
        dev_free(flat);
        *flat = made;
        TRY(status);
    }
    for (int i = 0; i < store->model->count; i++) {
        free(store->view[i]);
        store->view[i] = NULL;
    }
    store->dtype = dtype;
    return store_bind(store);
}

bool store_find(const Store *store, const char *name, const ParamDesc **ret_desc, Tensor *ret_view) {
    ParamRef ref;
    if (!find_param(store->model, name, &ref)) return false;
    const Unit *unit = &store->unit[ref.unit];
    if (store->count[ref.unit] < unit->numel || store->rest || store->rounded || store->codes) return false;
    *ret_desc = &store->model->unit[ref.unit].desc[ref.slot];
    *ret_view = unit_view(&unit->slot[ref.slot], store->flat[ref.unit].data, store->dtype);
    return true;
}

Status store_source(const Store *store, const char *name, Tensor *ret_view) {
    static const char all[] = "attn.qkv.weight";
    const ParamDesc *desc;
    if (store_find(store, name, &desc, ret_view)) return OK;
    const char *end = strstr(name, all);
    char own[PARAM_NAME], shared[PARAM_NAME];
    Tensor q, kv;
    snprintf(own, sizeof own, "%.*sattn.q.weight", end ? (int)(end - name) : 0, name);
    snprintf(shared, sizeof shared, "%.*sattn.kv.weight", end ? (int)(end - name) : 0, name);
    if (!end || !store_find(store, own, &desc, &q) || !store_find(store, shared, &desc, &kv))
        return FAILED("internal: the model has no parameter %s", name);
    *ret_view = tensor_2d(q.data, q.dtype, q.dim[0] + kv.dim[0] * kv.dim[1], q.dim[1]);
    return OK;
}
