/* Lookup of presets, and validation of configurations. */
#include "model/config.h"

#include <string.h>

#include "base/suggest.h"
#include "model/family.h"

static void apply_preset(const Family *family, const Preset *preset, ModelConfig *config) {
    family->defaults(config);
    config->layers = preset->layers;
    config->hidden = preset->hidden;
    config->heads = preset->heads;
    config->tied = preset->tied;
    config->kv_heads = preset->kv_heads;
    config->head_width = preset->head_width;
    config->inner = preset->inner ? preset->inner : 4 * preset->hidden;
    if (preset->vocab) config->vocab = preset->vocab;
    if (preset->positions) config->positions = preset->positions;
    if (preset->theta > 0) config->rope.theta = preset->theta;
    if (family->preset) family->preset(preset, config);
}

Status config_preset(const char *name, ModelConfig *ret_config) {
    for (const Family *const *family = families(); *family; family++)
        for (const Preset *preset = (*family)->presets; preset->name; preset++) {
            if (strcmp(preset->name, name)) continue;
            apply_preset(*family, preset, ret_config);
            return OK;
        }
    const char *near = suggest(name, config_presets());
    return USAGE("model '%s' is neither a checkpoint directory nor a preset%s%s%s", name,
                 near ? "; did you mean '" : "; presets include gpt2, gpt2-medium and bert-base",
                 near ? near : "", near ? "'?" : "");
}

const char *const *config_presets(void) {
    enum { MAX_PRESETS = 256 };
    static const char *names[MAX_PRESETS + 1]; /* the same on every call */
    int count = 0;
    for (const Family *const *family = families(); *family; family++)
        for (const Preset *preset = (*family)->presets; preset->name && count < MAX_PRESETS; preset++)
            names[count++] = preset->name;
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

static Status heads_error(const ModelConfig *config) {
    int64_t hidden = config->hidden, below = config->heads, above = config->heads;
    while (hidden % below) below--;
    while (above < hidden && hidden % above) above++;
    char other[32] = "";
    if (above <= hidden) snprintf(other, sizeof other, " or %lld", (long long)above);
    return USAGE("hidden size %lld is not divisible by the number of heads, %lld; use %lld%s heads",
                 (long long)hidden, (long long)config->heads, (long long)below, other);
}

/* In both directions, transformers' window is the number of tokens on each side. */
static Status check_direction(const ModelConfig *config) {
    bool windowed = config->window && config->window_from < config->layers;
    if (config_causal(config) || !windowed || config->window >= config->positions - 1) return OK;
    return USAGE("'is_causal' is false and 'sliding_window' is %lld, but weft does not support a window in "
                 "both directions; without a window, 'sliding_window' is null",
                 (long long)config->window);
}

Status config_check(const ModelConfig *config) {
    TRY(check_range("the number of layers", config->layers, 1, 100000));
    TRY(check_range("the hidden size", config->hidden, 1, 1 << 20));
    TRY(check_range("the number of heads", config->heads, 1, 1 << 16));
    TRY(check_range("the feed-forward size", config->inner, 1, 1 << 23));
    TRY(check_range("the vocabulary size", config->vocab, 1, 1 << 27));
    TRY(check_range("the number of positions", config->positions, 1, 1 << 24));
    TRY(check_range("the number of token types", config->types, 0, 1 << 16));
    TRY(check_range("the number of labels", config->labels, 1, MAX_LABELS));
    int64_t width = config->head_width, groups = config_kv_heads(config);
    if (groups < 1 || config->heads % groups)
        return USAGE("%lld heads cannot share %lld key-value heads evenly", (long long)config->heads,
                     (long long)groups);
    if (config->position == POSITION_ROPE && config_head_width(config) % 2)
        return USAGE("rotary positions need an even head width, not %lld",
                     (long long)config_head_width(config));
    TRY(check_range("the attention window", config->window, 0, INT64_MAX));
    TRY(check_direction(config));
    if (!config->free_head_width && width &&
        (width < 1 || config->hidden % width || config->heads > config->hidden / width))
        return USAGE("%lld heads of width %lld exceed the hidden size of %lld", (long long)config->heads,
                     (long long)width, (long long)config->hidden);
    if (!width && config->hidden % config->heads) return heads_error(config);
    TRY(check_rate("the embedding dropout", config->dropout_embed));
    TRY(check_rate("the attention dropout", config->dropout_attn));
    TRY(check_rate("the hidden dropout", config->dropout_hidden));
    TRY(check_rate("the classifier dropout", config->dropout_classify));
    if (!(config->norm_eps > 0))
        return USAGE("layer norm epsilon is %g; expected a value above 0", (double)config->norm_eps);
    if (config->outputs_mask & ~config->family->outputs)
        return USAGE("%s does not support this output head", config->family->title);
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

bool config_is_decoder(const ModelConfig *config) {
    return (config->family->outputs & OUTPUT_LM) != 0;
}

bool config_generates(const ModelConfig *config) {
    return config_causal(config) && config_has(config, OUTPUT_LM);
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
