/* Qwen3-MoE: a Qwen3 with experts in most layers. */
#include "model/decoder.h"

static void defaults(ModelConfig *config) {
    decoder_defaults(config);
    config->family = &family_qwen3_moe;
    config->layers = 24;
    config->hidden = 2048;
    config->inner = 6144;
    config->kv_heads = 4;
    config->vocab = 151936;
    config->positions = 32768;
    config->qk_norm = true;
    config->experts = 128;
    config->top_k = 8;
    config->expert_inner = 768;
    config->balance_coef = 0.001f;
    config->bos_token = config->eos_token = -1;
}

/* Unlike Qwen3's, all layers have the window if it is used. */
static Status read_window(const json_t *json, const char *from, ModelConfig *config) {
    bool used = false;
    int64_t window = 4096;
    TRY(json_get_bool(json, from, "use_sliding_window", &used));
    if (!used || json_is_null(json_object_get(json, "sliding_window"))) return OK;
    TRY(json_get_int(json, from, "sliding_window", 1, MAX_ROWS, &window));
    config->window = window;
    return OK;
}

static Status read_config(const json_t *json, const char *from, ModelConfig *config) {
    bool biases = false;
    TRY(decoder_read(json, from, config));
    TRY(decoder_read_qwen_experts(json, from, config));
    TRY(json_get_bool(json, from, "attention_bias", &biases));
    config->biases = biases ? BIAS_QKV | BIAS_OUT : 0;
    return read_window(json, from, config);
}

static json_t *write_config(const ModelConfig *config) {
    json_t *json = decoder_write(config);
    json_t *window = config->window ? json_integer((json_int_t)config->window) : json_null();
    if (json && !json_object_set_new(json, "sliding_window", window) &&
        !json_object_set_new(json, "use_sliding_window", json_boolean(config->window)) &&
        !json_object_set_new(json, "attention_bias", json_boolean(config->biases & BIAS_QKV)) &&
        decoder_write_qwen_experts(json, config))
        return json;
    json_decref(json);
    return NULL;
}

/* The published size, and a small one with a quarter of its experts. */
static const Preset presets[] = {
    {"moe-1b", 16, 1024, 16, true, 4, 64, 3072, 32000, 4096, 10000},
    {"qwen3-30b-a3b", 48, 2048, 32, false, 4, 128, 6144, 151936, 40960, 1000000},
    {0},
};

static void preset(const Preset *size, ModelConfig *config) {
    config->norm_top_k = true;
    if (size->vocab == 151936) {
        config->bos_token = 151643;
        config->eos_token = 151645;
        return;
    }
    config->experts = 32;
    config->expert_inner = 576;
}

static const char *gguf_obstacle(const ModelConfig *config) {
    const char *experts = decoder_gguf_obstacle_experts(config, true);
    return experts ? experts : decoder_gguf_obstacle_qwen(config);
}

const Family family_qwen3_moe = {
    DECODER_FAMILY(decoder_expert_names),
    .type = "qwen3_moe",
    .title = "Qwen3-MoE",
    .defaults = defaults,
    .read = read_config,
    .write = write_config,
    .classes = "Qwen3Moe",
    .presets = presets,
    .preset = preset,
    .gguf = "qwen3moe",
    .gguf_obstacle = gguf_obstacle,
};
