#include "model/upcycle.h"

#include <string.h>

#include "base/format.h"

/* What config.json of the mixture's family cannot say about the model; NULL: it says everything. */
static Status find_loss(const ModelConfig *mixture, const char **ret_lost) {
    CLEANUP(json_decrefp) json_t *json = mixture->family->write(mixture);
    ModelConfig read;
    if (!json) return FAILED("out of memory");
    mixture->family->defaults(&read);
    TRY(mixture->family->read(json, "config.json", &read));
    *ret_lost = read.biases != mixture->biases ? "this model's biases" : NULL;
    for (int i = 0; i < mixture->layers; i++)
        if (config_window(&read, i) != config_window(mixture, i)) *ret_lost = "windows in some layers only";
    return OK;
}

Status config_upcycle(ModelConfig *config, int64_t experts, int64_t top_k) {
    const Family *family = config->family->mixture;
    const char *lost = NULL;
    if (config->experts)
        return USAGE("{experts} %lld: the model already is a mixture of %lld experts; use a dense model",
                     (long long)experts, (long long)config->experts);
    if (!family)
        return USAGE("{experts} %lld: weft has no mixtures of experts of %s", (long long)experts,
                     config->family->title);
    ModelConfig mixture = *config;
    mixture.family = family;
    mixture.experts = experts;
    mixture.top_k = top_k ? top_k : experts < 2 ? 1 : 2;
    mixture.expert_inner = config->inner;
    mixture.shared_inner = family->shared ? config->inner : 0;
    mixture.norm_top_k = true;
    mixture.balance_coef = 0.01f;
    if (mixture.top_k > experts)
        return USAGE("{top-k} %lld: the model has %lld expert%s; use at most as many",
                     (long long)mixture.top_k, (long long)experts, PLURAL(experts));
    TRY(find_loss(&mixture, &lost));
    if (lost)
        return USAGE("{experts} %lld: mixtures of %s are %s models, which do not support %s",
                     (long long)experts, config->family->title, family->title, lost);
    *config = mixture;
    return OK;
}

/* The parameter of the same layer with another name after "layer.I."; absent: the model has none. */
static Tensor dense_param(const Store *dense, const char *name, const char *end, const char *other) {
    char full[PARAM_NAME];
    const ParamDesc *desc;
    Tensor view = TENSOR_NONE;
    snprintf(full, sizeof full, "%.*s%s", (int)(end - name), name, other);
    return store_find(dense, full, &desc, &view) ? view : TENSOR_NONE;
}

/* Fills a parameter with copies of another one. */
static Status repeat(Tensor to, Tensor from, const char *name) {
    int64_t count = tensor_count(from);
    if (!count || tensor_count(to) % count)
        return FAILED("internal: the dense model has no source of %s", name);
    for (int64_t at = 0; at < tensor_count(to); at += count)
        memcpy(tensor_f32(to) + at, from.data, tensor_bytes(from));
    return OK;
}

static Status fill_param(const ParamSlot *slot, Tensor to, const Store *dense, uint64_t seed) {
    static const struct {
        const char *ours, *source; /* source NULL: zeros */
    } experts[] = {{".moe.up.weight", "mlp.up.weight"},
                   {".moe.down.weight", "mlp.down.weight"},
                   {".moe.shared.up.weight", "mlp.up.weight"},
                   {".moe.shared.down.weight", NULL}};
    const char *name = slot->desc.name, *part = strstr(name, ".moe.");
    if (!part) return repeat(to, dense_param(dense, name, name, name), name);
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++) {
        if (strcmp(part, experts[i].ours)) continue;
        if (experts[i].source) return repeat(to, dense_param(dense, name, part + 1, experts[i].source), name);
        memset(to.data, 0, tensor_bytes(to));
        return OK;
    }
    param_init(slot, seed, 0, slot->count, tensor_f32(to));
    return OK;
}

Status store_upcycle(Store *mixture, const Store *dense, uint64_t seed) {
    for (ModelParam param = {0}; model_param_next(mixture->model, &param);) {
        const ParamSlot *slot = &mixture->unit[param.ref.unit].slot[param.ref.slot];
        const ParamDesc *desc;
        Tensor to;
        if (!store_find(mixture, param.desc->name, &desc, &to))
            return FAILED("internal: the mixture has no %s", param.desc->name);
        TRY(fill_param(slot, to, dense, seed));
    }
    return OK;
}
