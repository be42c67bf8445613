/* Qwen2-MoE and Qwen1.5-MoE: a Qwen2 with experts in most layers, and a shared one for all tokens. */
#include <string.h>

#include "model/decoder.h"

static void defaults(ModelConfig *config) {
    decoder_defaults(config);
    config->family = &family_qwen2_moe;
    config->layers = 24;
    config->hidden = 2048;
    config->heads = config->kv_heads = 16;
    config->inner = config->shared_inner = 5632;
    config->vocab = 151936;
    config->positions = 32768;
    config->biases = BIAS_QKV;
    config->experts = 60;
    config->top_k = 4;
    config->expert_inner = 1408;
    config->balance_coef = 0.001f;
    config->bos_token = config->eos_token = -1;
}

/* Which layers have a window, if windows are used: by default every second one of the first
 * max_window_layers. */
static bool windowed(const json_t *types, int64_t below, int64_t layer) {
    const char *type = json_string_value(json_array_get(types, (size_t)layer));
    if (json_is_array(types)) return type && !strcmp(type, "sliding_attention");
    return layer % 2 == 0 && layer < below;
}

/* weft supports windows in all layers from one on. */
static Status read_windows(const json_t *json, const char *from, ModelConfig *config) {
    bool used = false;
    int64_t window = 4096, below = 28, first = 0;
    const json_t *types = json_object_get(json, "layer_types");
    TRY(json_get_bool(json, from, "use_sliding_window", &used));
    if (!used || json_is_null(json_object_get(json, "sliding_window"))) return OK;
    TRY(json_get_int(json, from, "sliding_window", 1, MAX_ROWS, &window));
    TRY(json_get_int(json, from, "max_window_layers", 0, MAX_LAYERS, &below));
    while (first < config->layers && !windowed(types, below, first)) first++;
    if (first == config->layers) return OK;
    for (int64_t layer = first; layer < config->layers; layer++)
        if (!windowed(types, below, layer))
            return FAILED("%s: 'use_sliding_window' is true, and layer %lld has a window but layer %lld has "
                          "none, which weft does not support; expected false, or windows in all layers "
                          "from one on in 'layer_types'",
                          from, (long long)first, (long long)layer);
    config->window = window;
    config->window_from = first;
    return OK;
}

static bool write_windows(json_t *json, const ModelConfig *config) {
    json_t *types = json_array();
    int failed = json_object_set_new(json, "layer_types", types);
    for (int i = 0; i < config->layers && !failed; i++)
        failed = json_array_append_new(
            types,
            json_string(config->window && i >= config->window_from ? "sliding_attention" : "full_attention"));
    json_t *window = config->window ? json_integer((json_int_t)config->window) : json_null();
    return !json_object_set_new(json, "sliding_window", window) && !failed &&
           !json_object_set_new(json, "use_sliding_window", json_boolean(config->window));
}

static Status read_config(const json_t *json, const char *from, ModelConfig *config) {
    bool biases = true;
    TRY(decoder_read(json, from, config));
    TRY(decoder_read_qwen_experts(json, from, config));
    TRY(json_get_int(json, from, "shared_expert_intermediate_size", 1, MAX_INNER, &config->shared_inner));
    TRY(json_get_bool(json, from, "qkv_bias", &biases));
    config->biases = biases ? BIAS_QKV : 0;
    return read_windows(json, from, config);
}

static json_t *write_config(const ModelConfig *config) {
    json_t *json = decoder_write(config);
    if (json && write_windows(json, config) && decoder_write_qwen_experts(json, config) &&
        !json_object_set_new(json, "shared_expert_intermediate_size",
                             json_integer((json_int_t)config->shared_inner)) &&
        !json_object_set_new(json, "qkv_bias", json_boolean(config->biases & BIAS_QKV)))
        return json;
    json_decref(json);
    return NULL;
}

static const Preset presets[] = {
    {"qwen1.5-moe-a2.7b", 24, 2048, 16, false, 16, 0, 5632, 151936, 8192, 1000000},
    {0},
};

static void preset(const Preset *size, ModelConfig *config) {
    (void)size;
    config->bos_token = config->eos_token = 151643;
}

static const char *gguf_obstacle(const ModelConfig *config) {
    const char *experts = decoder_gguf_obstacle_experts(config, false);
    if (experts) return experts;
    if (config->tied) return "an embedding that serves as output matrix in this family";
    if (config_attention(config) != config->hidden)
        return "an attention width that differs from the hidden size in this family";
    return decoder_gguf_obstacle_qwen(config);
}

const Family family_qwen2_moe = {
    DECODER_FAMILY(decoder_expert_names),
    .type = "qwen2_moe",
    .title = "Qwen2-MoE",
    .defaults = defaults,
    .read = read_config,
    .write = write_config,
    .classes = "Qwen2Moe",
    .presets = presets,
    .preset = preset,
    .shared = true,
    .gguf = "qwen2moe",
    .gguf_obstacle = gguf_obstacle,
};
