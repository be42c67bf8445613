/* Two tables, one per family, map the model's parameter names to those in a checkpoint. A '*' in a rule
 * stands for the layer number. A rule covers the parameter of exactly that name, or a pair with ".weight"
 * and ".bias" appended on both sides. GPT-2's Conv1D matrices are stored transposed, (in, out); its q, k
 * and v are one tensor in the model's order. BERT stores them as three tensors. */
#include "checkpoint/hf_names.h"

#include <ctype.h>
#include <string.h>

enum { WHOLE = -1, FUSED = -2 /* the complete parameter, its first two dims merged */ };

typedef struct Rule {
    const char *ours, *theirs;
    int part; /* WHOLE, FUSED, or an index of the first dim */
    bool body, transposed;
} Rule;

static const Rule gpt2_rules[] = {
    {"embed.token", "wte.weight", WHOLE, true, false},
    {"embed.position", "wpe.weight", WHOLE, true, false},
    {"layer.*.norm1", "h.*.ln_1", WHOLE, true, false},
    {"layer.*.attn.qkv", "h.*.attn.c_attn", FUSED, true, true},
    {"layer.*.attn.out", "h.*.attn.c_proj", WHOLE, true, true},
    {"layer.*.norm2", "h.*.ln_2", WHOLE, true, false},
    {"layer.*.mlp.up", "h.*.mlp.c_fc", WHOLE, true, true},
    {"layer.*.mlp.down", "h.*.mlp.c_proj", WHOLE, true, true},
    {"head.norm", "ln_f", WHOLE, true, false},
    {"head.output", "lm_head", WHOLE, false, false},
    {0},
};

static const Rule bert_rules[] = {
    {"embed.token", "embeddings.word_embeddings.weight", WHOLE, true, false},
    {"embed.position", "embeddings.position_embeddings.weight", WHOLE, true, false},
    {"embed.type", "embeddings.token_type_embeddings.weight", WHOLE, true, false},
    {"embed.norm", "embeddings.LayerNorm", WHOLE, true, false},
    {"layer.*.attn.qkv", "encoder.layer.*.attention.self.query", 0, true, false},
    {"layer.*.attn.qkv", "encoder.layer.*.attention.self.key", 1, true, false},
    {"layer.*.attn.qkv", "encoder.layer.*.attention.self.value", 2, true, false},
    {"layer.*.attn.out", "encoder.layer.*.attention.output.dense", WHOLE, true, false},
    {"layer.*.norm1", "encoder.layer.*.attention.output.LayerNorm", WHOLE, true, false},
    {"layer.*.mlp.up", "encoder.layer.*.intermediate.dense", WHOLE, true, false},
    {"layer.*.mlp.down", "encoder.layer.*.output.dense", WHOLE, true, false},
    {"layer.*.norm2", "encoder.layer.*.output.LayerNorm", WHOLE, true, false},
    {"head.pooler", "pooler.dense", WHOLE, true, false},
    {"head.mlm.dense", "cls.predictions.transform.dense", WHOLE, false, false},
    {"head.mlm.norm", "cls.predictions.transform.LayerNorm", WHOLE, false, false},
    {"head.mlm.bias", "cls.predictions.bias", WHOLE, false, false},
    {"head.output", "cls.predictions.decoder", WHOLE, false, false},
    {"head.nsp", "cls.seq_relationship", WHOLE, false, false},
    {"head.span", "qa_outputs", WHOLE, false, false},
    {"head.classify", "classifier", WHOLE, false, false},
    {0},
};

const char *hf_prefix(Family family) {
    return family == FAMILY_GPT2 ? "transformer." : "bert.";
}

const char *hf_output_name(Family family) {
    return family == FAMILY_GPT2 ? "lm_head.weight" : "cls.predictions.decoder.weight";
}

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
    int skip = part == WHOLE ? 0 : 1;
    tensor->ndim = 0;
    for (int i = skip; i < desc->ndim && tensor->ndim < HF_DIMS; i++)
        tensor->dim[tensor->ndim++] = desc->dim[i];
    if (part == FUSED) tensor->dim[0] *= desc->dim[0];
    if (!tensor->transposed) return;
    int64_t rows = tensor->dim[0];
    tensor->dim[0] = tensor->dim[1];
    tensor->dim[1] = rows;
}

static bool apply(const Rule *rule, const ParamDesc *desc, HfTensor *ret_tensor) {
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

Status hf_tensors(Family family, const ParamDesc *desc, HfTensor ret_tensor[HF_PARTS], int *ret_count) {
    int count = 0;
    for (const Rule *rule = family == FAMILY_GPT2 ? gpt2_rules : bert_rules; rule->ours; rule++)
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

bool hf_is_buffer(Family family, const char *name) {
    const char *prefix = hf_prefix(family);
    if (!strncmp(name, prefix, strlen(prefix))) name += strlen(prefix);
    if (family == FAMILY_BERT)
        return !strcmp(name, "embeddings.position_ids") || !strcmp(name, "embeddings.token_type_ids");
    const char *number;
    int digits;
    const char *rest = match("h.*.attn", name, &number, &digits);
    return rest && (!strcmp(rest, ".bias") || !strcmp(rest, ".masked_bias"));
}
