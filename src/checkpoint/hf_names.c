/* Applies a family's rules (model/family.h) to parameter names. */
#include "checkpoint/hf_names.h"

#include <ctype.h>
#include <string.h>

#include "base/memory.h"
#include "model/model.h"

/* Matches a prefix of the name; returns the rest of the name, or NULL. *ret_number is set to the digits
 * that '*' number `at` matches, counted from 0, or to NULL if the pattern has fewer. */
static const char *match(const char *pattern, const char *name, int at, const char **ret_number,
                         int *ret_digits) {
    *ret_number = NULL;
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*name++ != *pattern) return NULL;
            continue;
        }
        const char *number = name;
        while (isdigit((unsigned char)*name)) name++;
        if (name == number) return NULL;
        if (at-- == 0) *ret_number = number, *ret_digits = (int)(name - number);
    }
    return name;
}

Status hf_rename(const char *ours, const char *theirs, const char *name, int64_t part, char ret_name[HF_NAME],
                 bool *ret_applies) {
    const char *number;
    int digits = 0, used = 0;
    const char *rest = match(ours, name, 0, &number, &digits);
    *ret_applies = rest && (!*rest || !strcmp(rest, ".weight") || !strcmp(rest, ".bias"));
    if (!*ret_applies) return OK;
    for (int star = 0; *theirs && used < HF_NAME; theirs++) {
        size_t room = (size_t)(HF_NAME - used);
        if (*theirs != '*') {
            used += snprintf(ret_name + used, room, "%c", *theirs);
            continue;
        }
        match(ours, name, star++, &number, &digits);
        used += number ? snprintf(ret_name + used, room, "%.*s", digits, number)
                       : snprintf(ret_name + used, room, "%lld", (long long)part);
    }
    if (used < HF_NAME) used += snprintf(ret_name + used, (size_t)(HF_NAME - used), "%s", rest);
    return used < HF_NAME ? OK : FAILED("internal: the name of parameter '%s' in files is too long", name);
}

static void fill_shape(HfTensor *tensor, const ParamDesc *desc, int part) {
    int skip = part == PART_WHOLE ? 0 : 1;
    tensor->ndim = 0;
    for (int i = skip; i < desc->ndim; i++) tensor->dim[tensor->ndim++] = desc->dim[i];
    if (part == PART_FUSED) tensor->dim[0] *= desc->dim[0];
    if (!tensor->transposed) return;
    int64_t rows = tensor->dim[0];
    tensor->dim[0] = tensor->dim[1];
    tensor->dim[1] = rows;
}

/* Adds the tensors of a rule, if it is for this parameter. */
static Status apply(const HfRule *rule, const ParamDesc *desc, HfTensorList *list) {
    bool many = rule->part <= PART_EACH;
    int step = rule->part < PART_EACH ? 2 : 1, first = rule->part == PART_ODD;
    int64_t count = many ? desc->dim[0] / step : 1;
    for (int64_t i = 0; i < count; i++) {
        HfTensor tensor = {.body = rule->body, .part = many ? first + step * (int)i : rule->part};
        bool applies = false;
        TRY(hf_rename(rule->ours, rule->theirs, desc->name, i, tensor.name, &applies));
        if (!applies) return OK;
        const char *end = strrchr(desc->name, '.');
        tensor.transposed = rule->transposed && end && !strcmp(end, ".weight");
        fill_shape(&tensor, desc, tensor.part);
        if (tensor.part < 0) tensor.part = -1;
        TRY(mem_grow(&list->tensor, &list->capacity, list->count + 1, sizeof *list->tensor));
        list->tensor[list->count++] = tensor;
    }
    return OK;
}

/* "layer.0.mlp.up.1.lora_a" is an adapter of the tensor that is part 1 of "layer.0.mlp.up.weight". */
static Status adapter_tensor(const Family *family, const ParamDesc *desc, HfTensorList *ret_list) {
    CLEANUP(hf_tensors_done) HfTensorList list = {0};
    ParamDesc matrix = {.ndim = PARAM_DIMS, .dim = {1, 1, 1}};
    const char *end = strrchr(desc->name, '.'), *stem = end,
               *kind = strcmp(end, ".lora_a") ? "lora_B" : "lora_A";
    int part = -1, last = desc->ndim - 1;
    while (stem > desc->name && stem[-1] != '.') stem--;
    if (isdigit((unsigned char)*stem)) part = atoi(stem);
    snprintf(matrix.name, sizeof matrix.name, "%.*s.weight", (int)((part < 0 ? end : stem - 1) - desc->name),
             desc->name);
    TRY(hf_tensors(family, &matrix, &list));
    for (size_t i = 0; i < list.count; i++) {
        HfTensor *tensor = &list.tensor[i];
        char *dot = strrchr(tensor->name, '.');
        if (tensor->part != part) continue;
        snprintf(dot, HF_NAME - (size_t)(dot - tensor->name), ".%s.weight", kind);
        tensor->part = -1;
        tensor->transposed = false;
        tensor->ndim = 2;
        tensor->dim[0] = param_count(desc) / desc->dim[last];
        tensor->dim[1] = desc->dim[last];
        list.tensor[0] = *tensor;
        list.count = 1;
        return MOVE(ret_list, list);
    }
    return FAILED("internal: no name in files for the adapter '%s'", desc->name);
}

Status hf_tensors(const Family *family, const ParamDesc *desc, HfTensorList *ret_list) {
    HfTensorList list = {0};
    Status status = OK;
    if (param_is_adapter(desc)) return adapter_tensor(family, desc, ret_list);
    for (const HfRule *rule = family->names; !status && rule->ours; rule++) status = apply(rule, desc, &list);
    if (!status && !list.count)
        status = FAILED("internal: no checkpoint name for parameter '%s'", desc->name);
    if (status)
        hf_tensors_done(&list);
    else
        *ret_list = list;
    return status;
}

void hf_tensors_done(HfTensorList *list) {
    free(list->tensor);
    *list = (HfTensorList){0};
}

int64_t hf_tensor_count(const HfTensor *tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->dim[i];
    return count;
}

bool hf_is_buffer(const Family *family, const char *name) {
    size_t prefix = strlen(family->prefix);
    if (!strncmp(name, family->prefix, prefix)) name += prefix;
    const char *number;
    int digits;
    for (const char *const *pattern = family->buffers; *pattern; pattern++) {
        const char *rest = match(*pattern, name, 0, &number, &digits);
        if (rest && !*rest) return true;
    }
    return false;
}
