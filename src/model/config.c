/* Lookup of presets, and validation of configurations. */
#include "model/config.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/suggest.h"
#include "model/family.h"
#include "model/head.h"
#include "model/rope.h"

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

/* How many letters and digits two names begin with in common, and how many `name` has. */
static size_t common_start(const char *name, const char *other, size_t *ret_length) {
    size_t common = 0, length = 0;
    bool same = true;
    for (; *name; name++) {
        if (!isalnum((unsigned char)*name)) continue;
        while (*other && !isalnum((unsigned char)*other)) other++;
        same = same && tolower((unsigned char)*name) == tolower((unsigned char)*other);
        if (same) common++, other++;
        length++;
    }
    *ret_length = length;
    return common;
}

/* How near a preset is to a name, for sorting: a longer common start first, then fewer differences; 0: not
 * near. A start counts if it has three letters, and as many as there are left. */
static size_t nearness(const char *name, const char *preset) {
    enum { LEAST = 3, DISTANCES = 256 };
    size_t length, distance = suggest_distance(name, preset);
    size_t common = common_start(name, preset, &length);
    if (common < LEAST || 2 * common < length || distance >= DISTANCES) return 0;
    return common * DISTANCES + DISTANCES - distance;
}

const char *config_near_presets(const char *name, char text[PRESETS_TEXT]) {
    enum { MOST = 3 };
    const char *near[MOST] = {NULL};
    size_t score[MOST] = {0};
    int used = 0;
    for (const char *const *preset = config_presets(); *preset; preset++) {
        const char *next = *preset;
        size_t found = nearness(name, next);
        for (int i = 0; i < MOST && found; i++) {
            if (found <= score[i]) continue;
            const char *moved = near[i];
            size_t lower = score[i];
            near[i] = next, score[i] = found;
            next = moved, found = lower;
        }
    }
    text[0] = 0;
    for (int i = 0; i < MOST && near[i]; i++) {
        const char *between = i == 0 ? "" : i + 1 < MOST && near[i + 1] ? ", " : " or ";
        used += snprintf(text + used, (size_t)(PRESETS_TEXT - used), "%s%s", between, near[i]);
    }
    return text;
}

/* For a name that is like none: the first preset of each family. */
static Status unknown_preset(const char *name) {
    char text[PRESETS_TEXT] = "";
    const char *typo = suggest(name, config_presets());
    if (!*config_near_presets(name, text) && typo) snprintf(text, sizeof text, "'%s'", typo);
    if (*text)
        return USAGE("model '%s' is neither a checkpoint directory nor a preset; did you mean %s?", name,
                     text);
    int used = 0;
    for (const Family *const *family = families(); *family && used < PRESETS_TEXT; family++)
        used += snprintf(text + used, (size_t)(PRESETS_TEXT - used), "%s%s", used ? ", " : "",
                         (*family)->presets[0].name);
    return USAGE("model '%s' is neither a checkpoint directory nor a preset; presets include %s", name, text);
}

Status config_preset(const char *name, ModelConfig *ret_config) {
    for (const Family *const *family = families(); *family; family++)
        for (const Preset *preset = (*family)->presets; preset->name; preset++) {
            if (strcmp(preset->name, name)) continue;
            apply_preset(*family, preset, ret_config);
            return OK;
        }
    return unknown_preset(name);
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
    return USAGE("hidden size %lld is not divisible by the number of heads, %lld; use %lld%s head%s",
                 (long long)hidden, (long long)config->heads, (long long)below, other,
                 *other || below > 1 ? "s" : "");
}

/* In both directions, transformers' window is the number of tokens on each side. */
static Status check_direction(const ModelConfig *config) {
    bool windowed = config->window && config->window_from < config->layers;
    if (config_causal(config) || !windowed || config->window >= config->positions - 1) return OK;
    return USAGE("'is_causal' is false and 'sliding_window' is %lld, but weft does not support a window in "
                 "both directions; without a window, 'sliding_window' is null",
                 (long long)config->window);
}

static Status check_experts(const ModelConfig *config) {
    TRY(check_range("the number of experts", config->experts, 0, MOST_EXPERTS));
    if (!config->experts) return OK;
    TRY(check_range("the number of experts per token", config->top_k, 1, config->experts));
    TRY(check_range("the feed-forward size of an expert", config->expert_inner, 1, MOST_INNER));
    TRY(check_range("the feed-forward size of the shared expert", config->shared_inner, 0, MOST_INNER));
    TRY(check_range("the distance between layers with experts", config->sparse_step, 0, MOST_LAYERS));
    TRY(check_range("the number of layers listed as dense", config->dense_layers, 0, MOST_DENSE));
    for (int i = 0; i < config->dense_layers; i++)
        TRY(check_range("a layer listed as dense", config->dense_layer[i], 0, MOST_LAYERS));
    if (!(config->balance_coef >= 0 && isfinite(config->balance_coef)))
        return USAGE("the coefficient of the balancing loss is %g; expected a number >= 0",
                     (double)config->balance_coef);
    if (!config->gated || config->biases & BIAS_MLP)
        return USAGE("%s cannot have experts: its MLP %s", config->family->title,
                     config->gated ? "has biases" : "is not gated");
    return OK;
}

Status config_check(const ModelConfig *config) {
    TRY(check_range("the number of layers", config->layers, 1, MOST_LAYERS));
    TRY(check_range("the hidden size", config->hidden, 1, MOST_HIDDEN));
    TRY(check_range("the number of heads", config->heads, 1, MOST_HEADS));
    TRY(check_range("the feed-forward size", config->inner, 1, MOST_INNER));
    TRY(check_range("the vocabulary size", config->vocab, 1, MOST_VOCAB));
    TRY(check_range("the number of positions", config->positions, 1, MAX_POSITIONS));
    TRY(check_range("the number of token types", config->types, 0, 1 << 16));
    TRY(check_range("the number of labels", config->labels, 1, MAX_LABELS));
    int64_t width = config->head_width, groups = config_kv_heads(config);
    if (groups < 1 || config->heads % groups)
        return USAGE("%lld heads cannot share %lld key-value heads evenly", (long long)config->heads,
                     (long long)groups);
    if (config->qk_norm_whole && config_grouped(config))
        return USAGE("'num_key_value_heads' is %lld and 'num_attention_heads' is %lld, but weft supports "
                     "norms of q and k over all heads only if both have the same number",
                     (long long)groups, (long long)config->heads);
    TRY(check_experts(config));
    if (config->position == POSITION_ROPE) TRY(rope_check(config));
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
    if (heads_traits(config->outputs_mask).pooled && !config->pooler)
        return USAGE("the output heads need the pooler");
    return OK;
}

bool config_sparse(const ModelConfig *config, int64_t layer) {
    if (!config->experts) return false;
    for (int i = 0; i < config->dense_layers; i++)
        if (config->dense_layer[i] == layer) return false;
    return config->sparse_step < 2 || (layer + 1) % config->sparse_step == 0;
}

int64_t config_sparse_layers(const ModelConfig *config) {
    int64_t count = 0;
    for (int64_t i = 0; i < config->layers; i++) count += config_sparse(config, i);
    return count;
}

bool config_splits_layers(const ModelConfig *config, int64_t tp) {
    bool dense = config_sparse_layers(config) < config->layers;
    if (tp > 1 && config->qk_norm_whole) return false;
    if (dense && config->inner % tp) return false;
    if (config->experts && (config->expert_inner % tp || config->shared_inner % tp)) return false;
    return config->heads % tp == 0 && config_splits_groups(config, tp);
}

int64_t config_context(const ModelConfig *config) {
    RopeScaling scaling = config->position == POSITION_ROPE ? config->rope.scaling : ROPE_PLAIN;
    if (scaling != ROPE_DYNAMIC && scaling != ROPE_YARN) return config->positions;
    double scaled = floor((double)rope_original(config) * (double)config->rope.factor);
    int64_t longest = scaled < MAX_POSITIONS ? (int64_t)scaled : MAX_POSITIONS;
    return longest > config->positions ? longest : config->positions;
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

const char *problem_name(ProblemType problem) {
    switch (problem) {
    case PROBLEM_SINGLE_LABEL: return "single_label_classification";
    case PROBLEM_REGRESSION: return "regression";
    case PROBLEM_MULTI_LABEL: return "multi_label_classification";
    default: return NULL;
    }
}
