#include "checkpoint/adapter.h"

#include <fnmatch.h>
#include <string.h>

#include "base/memory.h"

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
