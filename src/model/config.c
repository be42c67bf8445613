/* Presets with the sizes of published models, and validation of configurations. */
#include "model/config.h"

#include <string.h>

#include "base/suggest.h"

typedef struct Preset {
    const char *name;
    Family family;
    int64_t layers, hidden, heads;
} Preset;

static const Preset presets[] = {
    {"gpt2", FAMILY_GPT2, 12, 768, 12},        {"gpt2-medium", FAMILY_GPT2, 24, 1024, 16},
    {"gpt2-large", FAMILY_GPT2, 36, 1280, 20}, {"gpt2-xl", FAMILY_GPT2, 48, 1600, 25},
    {"gpt2-tiny", FAMILY_GPT2, 2, 128, 2},     {"gpt2-mini", FAMILY_GPT2, 4, 256, 4},
    {"gpt2-small", FAMILY_GPT2, 6, 384, 6},    {"bert-base", FAMILY_BERT, 12, 768, 12},
    {"bert-large", FAMILY_BERT, 24, 1024, 16}, {"bert-tiny", FAMILY_BERT, 2, 128, 2},
    {"bert-mini", FAMILY_BERT, 4, 256, 4},     {"bert-small", FAMILY_BERT, 4, 512, 8},
};

enum { PRESETS = sizeof presets / sizeof *presets };

static ModelConfig from_preset(const Preset *preset) {
    bool gpt2 = preset->family == FAMILY_GPT2;
    return (ModelConfig){
        .family = preset->family,
        .outputs_mask = gpt2 ? OUTPUT_LM : OUTPUT_MLM | OUTPUT_NSP,
        .pooler = !gpt2,
        .layers = preset->layers,
        .hidden = preset->hidden,
        .heads = preset->heads,
        .inner = 4 * preset->hidden,
        .vocab = gpt2 ? 50257 : 30522,
        .positions = gpt2 ? 1024 : 512,
        .types = gpt2 ? 0 : 2,
        .labels = 2,
        .act = gpt2 ? ACT_GELU_TANH : ACT_GELU_ERF,
        .norm_eps = gpt2 ? 1e-5f : 1e-12f,
        .init_std = 0.02f,
        .dropout_embed = 0.1f,
        .dropout_attn = 0.1f,
        .dropout_hidden = 0.1f,
        .dropout_classify = 0.1f,
        .tied = true,
        .scale_attn = true,
        .pad_token = gpt2 ? -1 : 0,
        .bos_token = gpt2 ? 50256 : -1,
        .eos_token = gpt2 ? 50256 : -1,
    };
}

Status config_preset(const char *name, ModelConfig *ret_config) {
    for (int i = 0; i < PRESETS; i++) {
        if (strcmp(presets[i].name, name)) continue;
        *ret_config = from_preset(&presets[i]);
        return OK;
    }
    const char *near = suggest(name, config_presets());
    return USAGE("model '%s' is neither a checkpoint directory nor a preset%s%s%s", name,
                 near ? "; did you mean '" : "; presets include gpt2, gpt2-medium and bert-base",
                 near ? near : "", near ? "'?" : "");
}

const char *const *config_presets(void) {
    static const char *const names[] = {"gpt2",      "gpt2-medium", "gpt2-large", "gpt2-xl",    "gpt2-tiny",
                                        "gpt2-mini", "gpt2-small",  "bert-base",  "bert-large", "bert-tiny",
                                        "bert-mini", "bert-small",  NULL};
    return names;
}

static Status check_range(const char *what, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
        return USAGE("%s is %lld; expected %lld to %lld", what, (long long)value, (long long)low,
                     (long long)high);
    return OK;
}

static Status check_rate(const char *what, float value) {
    if (!(value >= 0 && value < 1))
        return USAGE("%s is %g; expected a number >= 0 and < 1", what, (double)value);
    return OK;
}

Status config_check(const ModelConfig *config) {
    TRY(check_range("the number of layers", config->layers, 1, 100000));
    TRY(check_range("the hidden size", config->hidden, 1, 1 << 20));
    TRY(check_range("the number of heads", config->heads, 1, 1 << 16));
    TRY(check_range("the feed-forward size", config->inner, 1, 1 << 23));
    TRY(check_range("the vocabulary size", config->vocab, 1, 1 << 27));
    TRY(check_range("the number of positions", config->positions, 1, 1 << 24));
    TRY(check_range("the number of token types", config->types, config->family == FAMILY_BERT, 1 << 16));
    TRY(check_range("the number of labels", config->labels, 1, MAX_LABELS));
    int64_t width = config->head_width;
    if (width && (width < 1 || config->hidden % width || config->heads > config->hidden / width))
        return USAGE("%lld heads of width %lld exceed the hidden size of %lld", (long long)config->heads,
                     (long long)width, (long long)config->hidden);
    if (!width && config->hidden % config->heads)
        return USAGE("hidden size %lld is not divisible by the number of heads, %lld; use %lld",
                     (long long)config->hidden, (long long)config->heads,
                     (long long)(config->hidden % 64 == 0 ? config->hidden / 64 : 1));
    TRY(check_rate("the embedding dropout", config->dropout_embed));
    TRY(check_rate("the attention dropout", config->dropout_attn));
    TRY(check_rate("the hidden dropout", config->dropout_hidden));
    TRY(check_rate("the classifier dropout", config->dropout_classify));
    if (!(config->norm_eps > 0))
        return USAGE("layer norm epsilon is %g; expected a value above 0", (double)config->norm_eps);
    unsigned bert_heads = OUTPUT_MLM | OUTPUT_NSP | OUTPUT_SPAN | OUTPUT_CLASSIFY;
    if (config->outputs_mask & (config->family == FAMILY_GPT2 ? bert_heads : (unsigned)OUTPUT_LM))
        return USAGE("%s does not support this output head",
                     config->family == FAMILY_GPT2 ? "GPT-2" : "BERT");
    if ((config->outputs_mask & (OUTPUT_NSP | OUTPUT_CLASSIFY)) && !config->pooler)
        return USAGE("the next-sentence and classification heads need the pooler");
    return OK;
}

const char *output_name(OutputHead head) {
    switch (head) {
    case OUTPUT_LM: return "lm";
    case OUTPUT_MLM: return "mlm";
    case OUTPUT_NSP: return "nsp";
    case OUTPUT_SPAN: return "span";
    default: return "classify";
    }
}

bool config_has(const ModelConfig *config, OutputHead head) {
    return (config->outputs_mask & head) != 0;
}

ProblemType config_problem(const ModelConfig *config) {
    if (config->problem != PROBLEM_AUTO) return config->problem;
    return config->labels == 1 ? PROBLEM_REGRESSION : PROBLEM_SINGLE_LABEL;
}

int64_t config_targets(const ModelConfig *config) {
    if (!config_has(config, OUTPUT_CLASSIFY)) return 0;
    return config_problem(config) == PROBLEM_SINGLE_LABEL ? 0 : config->labels;
}

const char *problem_name(ProblemType problem) {
    switch (problem) {
    case PROBLEM_SINGLE_LABEL: return "single_label_classification";
    case PROBLEM_REGRESSION: return "regression";
    case PROBLEM_MULTI_LABEL: return "multi_label_classification";
    default: return NULL;
    }
}
