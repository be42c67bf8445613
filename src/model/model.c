/* Models from blocks, and stores: a flat buffer per block with the views that blocks take. */
#include "model/model.h"

#include <string.h>

static const BlockOps *ops_of(const ModelConfig *config, int64_t at) {
    if (at == 0) return &block_ops_embed;
    if (at <= config->layers) return &block_ops_layer;
    return config->family == FAMILY_GPT2 ? &block_ops_gpt2_head : &block_ops_bert_head;
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
    }
    *ret_model = model;
    model = NULL;
    return OK;
}

void model_free(Model *model) {
    if (!model) return;
    for (int i = 0; i < model->count; i++) param_list_done(&model->block[i].params);
    free(model->block);
    free(model);
}

int64_t model_params(const Model *model) {
    int64_t count = 0;
    for (int i = 0; i < model->count; i++) {
        const ParamList *list = &model->block[i].params;
        for (size_t j = 0; j < list->count; j++)
            if (!list->desc[j].tied) count += param_count(&list->desc[j]);
    }
    return count;
}

Status head_logits(const Block *head, Pass *pass, Head which, Tensor out, Tensor x) {
    return head->ops->logits(head, pass, which, out, x);
}

size_t head_logits_scratch(const Block *head, Head which, int64_t rows) {
    return head->ops->logits_scratch(head, which, rows);
}

/* Views of a block's own parameters in order; a tied one is looked up among earlier blocks. */
static Status bind_views(Store *store, int at) {
    const ParamList *list = &store->model->block[at].params;
    Tensor *view = NULL;
    TRY(mem_new(list->count, sizeof *view, &view));
    store->view[at] = view;
    for (size_t i = 0, own = 0; i < list->count; i++) {
        const ParamDesc *desc;
        if (!list->desc[i].tied)
            view[i] = unit_view(&store->unit[at].slot[own++], store->flat[at].data, DT_F32);
        else if (!store_find(store, list->desc[i].name, &desc, &view[i]))
            return FAILED("internal: the tied parameter %s has no owner", list->desc[i].name);
    }
    return OK;
}

Status store_new(Store **ret_store, const Model *model, Device *device, MemTag tag) {
    CLEANUP(store_freep) Store *store = NULL;
    TRY(mem_new(1, sizeof *store, &store));
    store->model = model;
    size_t blocks = (size_t)model->count;
    TRY(mem_new(blocks, sizeof *store->unit, &store->unit));
    TRY(mem_new(blocks, sizeof *store->flat, &store->flat));
    TRY(mem_new(blocks, sizeof *store->view, &store->view));
    for (int i = 0; i < model->count; i++) {
        TRY(unit_init(&store->unit[i], &model->block[i].params, 0, 1));
        TRY(dev_alloc(device, tag, (size_t)store->unit[i].numel * sizeof(float), &store->flat[i]));
        TRY(bind_views(store, i));
    }
    *ret_store = store;
    store = NULL;
    return OK;
}

void store_free(Store *store) {
    if (!store) return;
    for (int i = 0; store->unit && store->flat && store->view && i < store->model->count; i++) {
        unit_done(&store->unit[i]);
        dev_free(&store->flat[i]);
        free(store->view[i]);
    }
    free(store->unit);
    free(store->flat);
    free(store->view);
    free(store);
}

Status store_init_params(Store *store, Stream *stream, uint64_t seed) {
    for (int i = 0; i < store->model->count; i++) {
        Unit *unit = &store->unit[i];
        CLEANUP(mem_freep) float *values = NULL;
        TRY(mem_new((size_t)unit->numel, sizeof *values, &values));
        for (size_t j = 0; j < unit->count; j++)
            param_init(&unit->slot[j], seed, values + unit->slot[j].offset);
        TRY(stream_copy(stream, store->flat[i].data, values, (size_t)unit->numel * sizeof *values,
                        COPY_TO_DEVICE));
        TRY(stream_sync(stream));
    }
    return OK;
}

Status store_zero(Store *store, Stream *stream) {
    for (int i = 0; i < store->model->count; i++)
        TRY(stream_zero(stream, store->flat[i].data, store->flat[i].bytes));
    return OK;
}

bool store_find(const Store *store, const char *name, const ParamDesc **ret_desc, Tensor *ret_view) {
    for (int i = 0; i < store->model->count; i++) {
        const ParamList *list = &store->model->block[i].params;
        for (size_t j = 0; store->view[i] && j < list->count; j++) {
            if (list->desc[j].tied || strcmp(list->desc[j].name, name)) continue;
            *ret_desc = &list->desc[j];
            *ret_view = store->view[i][j];
            return true;
        }
    }
    return false;
}
