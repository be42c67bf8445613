/* Applies a family's rules (model/family.h) to parameter names. */
#include "checkpoint/hf_names.h"

#include <ctype.h>
#include <string.h>

/* Matches a prefix of the name; returns the rest of the name and the digits matched by '*', or NULL. */
static const char *match(const char *pattern, const char *name, const char **ret_number, int *ret_digits) {
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*name++ != *pattern) return NULL;
            continue;
        }
        *ret_number = name;
        while (isdigit((unsigned char)*name)) name++;
        *ret_digits = (int)(name - *ret_number);
        if (*ret_digits == 0) return NULL;
    }
    return name;
}

static void fill_shape(HfTensor *tensor, const ParamDesc *desc, int part) {
    int skip = part == PART_WHOLE ? 0 : 1;
    tensor->ndim = 0;
    for (int i = skip; i < desc->ndim && tensor->ndim < HF_DIMS; i++)
        tensor->dim[tensor->ndim++] = desc->dim[i];
    if (part == PART_FUSED) tensor->dim[0] *= desc->dim[0];
    if (!tensor->transposed) return;
    int64_t rows = tensor->dim[0];
    tensor->dim[0] = tensor->dim[1];
    tensor->dim[1] = rows;
}

static bool apply(const HfRule *rule, const ParamDesc *desc, HfTensor *ret_tensor) {
    const char *number = "";
    int digits = 0;
    const char *rest = match(rule->ours, desc->name, &number, &digits);
    if (!rest || (*rest && strcmp(rest, ".weight") && strcmp(rest, ".bias"))) return false;
    *ret_tensor = (HfTensor){.body = rule->body, .part = rule->part < 0 ? -1 : rule->part};
    ret_tensor->transposed = rule->transposed && !strcmp(rest, ".weight");
    const char *star = strchr(rule->theirs, '*');
    if (star)
        snprintf(ret_tensor->name, HF_NAME, "%.*s%.*s%s%s", (int)(star - rule->theirs), rule->theirs, digits,
                 number, star + 1, rest);
    else
        snprintf(ret_tensor->name, HF_NAME, "%s%s", rule->theirs, rest);
    fill_shape(ret_tensor, desc, rule->part);
    return true;
}

Status hf_tensors(const Family *family, const ParamDesc *desc, HfTensor ret_tensor[HF_PARTS],
                  int *ret_count) {
    int count = 0;
    for (const HfRule *rule = family->names; rule->ours; rule++)
        if (count < HF_PARTS && apply(rule, desc, &ret_tensor[count])) count++;
    if (count == 0) return FAILED("internal: no checkpoint name for parameter '%s'", desc->name);
    *ret_count = count;
    return OK;
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
        const char *rest = match(*pattern, name, &number, &digits);
        if (rest && !*rest) return true;
    }
    return false;
}
