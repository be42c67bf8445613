#include "model/head.h"

#include <stdio.h>
#include <string.h>

#include "model/parts/common.h"

static const struct {
    const Head *head;
    const char *name, *class;
    Task task;
} rows[] = {
#define HEAD(NAME, name, title, class, losses)        {&head_##name, #name, class, TASK_##NAME},
#define JOINT(NAME, name, TASK, title, class, losses) {&head_##name, #name, class, TASK_##TASK},
#include "model/heads.def"
};

const Head *head_at(HeadId id) {
    return rows[id].head;
}

const char *head_name(HeadId id) {
    return rows[id].name;
}

const char *head_class(HeadId id) {
    return rows[id].class;
}

unsigned head_find(const char *name, unsigned mask) {
    for (HeadId id = 0; name && id < HEAD_COUNT; id++)
        if (mask & 1u << id && !strcmp(head_name(id), name)) return 1u << id;
    return 0;
}

const char *head_names(unsigned mask, const char *last, char text[HEAD_NAMES]) {
    size_t used = 0;
    text[0] = 0;
    for (HeadId id = 0; id < HEAD_COUNT; id++) {
        if (!(mask & 1u << id)) continue;
        bool end = !last && mask >> id == 1;
        used += (size_t)snprintf(text + used, HEAD_NAMES - used, "%s%s",
                                 !used ? ""
                                 : end ? " or "
                                       : ", ",
                                 head_name(id));
    }
    if (last) snprintf(text + used, HEAD_NAMES - used, "%s%s", used ? " or " : "", last);
    return text;
}

int64_t output_width(const ModelConfig *config, HeadId id, int tp) {
    if (id == HEAD_NONE) return config->hidden;
    return tp > 1 && head_at(id)->traits.vocab ? vocab_local(config, tp) : head_at(id)->width(config);
}

bool output_pooled(HeadId id) {
    return id != HEAD_NONE && head_at(id)->traits.pooled;
}

HeadId heads_first(unsigned mask) {
    HeadId id = 0;
    while (!(mask & 1u << id)) id++;
    return id;
}

HeadTraits heads_traits(unsigned mask) {
    HeadTraits all = {0};
    for (HeadId id = 0; id < HEAD_COUNT; id++) {
        if (!(mask & 1u << id)) continue;
        const HeadTraits *one = &head_at(id)->traits;
        all.losses |= one->losses;
        all.vocab |= one->vocab;
        all.overwrites |= one->overwrites;
        all.pooled |= one->pooled;
        all.labeled |= one->labeled;
        all.judged |= one->judged;
    }
    return all;
}

/* ---- losses and tasks ---- */

const char *const loss_names[] = {
#define HEAD(NAME, name, title, class, losses)        losses
#define JOINT(NAME, name, TASK, title, class, losses) losses
#define LOSS(NAME, name, weight)                      #name,
#include "model/heads.def"
};

const double loss_weight[] = {
#define HEAD(NAME, name, title, class, losses)        losses
#define JOINT(NAME, name, TASK, title, class, losses) losses
#define LOSS(NAME, name, weight)                      weight,
#include "model/heads.def"
};

const char *const task_names[] = {
#define HEAD(NAME, name, title, class, losses) #name,
#include "model/heads.def"
    NULL};

unsigned task_heads(Task task) {
    unsigned mask = 0;
    for (HeadId id = 0; id < HEAD_COUNT; id++)
        if (rows[id].task == task) mask |= 1u << id;
    return mask;
}

/* ---- the heads of a model ---- */

bool config_has(const ModelConfig *config, OutputHead head) {
    return (config->outputs_mask & head) != 0;
}

bool config_labeled(const ModelConfig *config) {
    return heads_traits(config->outputs_mask).labeled;
}

int64_t config_targets(const ModelConfig *config) {
    int64_t targets = 0;
    for (HeadId id = 0; id < HEAD_COUNT; id++) {
        const Head *head = head_at(id);
        if (config->outputs_mask & 1u << id && head->targets) targets += head->targets(config);
    }
    return targets;
}
