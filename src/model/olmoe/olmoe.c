/* OLMoE: a Llama with experts in every layer, and norms of q and k over all heads. */
#include "model/decoder.h"

static void defaults(ModelConfig *config) {
    decoder_defaults(config);
    config->family = &family_olmoe;
    config->layers = 16;
    config->hidden = config->inner = config->expert_inner = 2048;
    config->heads = 16;
    config->vocab = 50304;
    config->positions = 4096;
    config->norm_eps = 1e-5f;
    config->qk_norm = config->qk_norm_whole = true;
    config->experts = 64;
    config->top_k = 8;
    config->balance_coef = 0.01f;
    config->pad_token = 1;
    config->bos_token = -1;
    config->eos_token = 50279;
}

static Status read_config(const json_t *json, const char *from, ModelConfig *config) {
    bool biases = false;
    TRY(decoder_read(json, from, config));
    TRY(decoder_read_experts(json, from, config));
    config->expert_inner = config->inner;
    TRY(json_get_bool(json, from, "norm_topk_prob", &config->norm_top_k));
    TRY(json_get_bool(json, from, "attention_bias", &biases));
    config->biases = biases ? BIAS_QKV | BIAS_OUT : 0;
    if (config->head_width && config->heads * config->head_width != config->hidden)
        return FAILED("%s: 'head_dim' is %lld; expected 'hidden_size' (%lld) divided by "
                      "'num_attention_heads' (%lld), which is what OLMoE's norms of q and k have",
                      from, (long long)config->head_width, (long long)config->hidden,
                      (long long)config->heads);
    TRY(field_refuse_set(json, from, "sliding_window"));
    return field_refuse_set(json, from, "clip_qkv");
}

static json_t *write_config(const ModelConfig *config) {
    json_t *json = decoder_write(config);
    if (json && decoder_write_experts(json, config, "num_experts") &&
        !json_object_set_new(json, "intermediate_size", json_integer((json_int_t)config->expert_inner)) &&
        !json_object_set_new(json, "norm_topk_prob", json_boolean(config->norm_top_k)) &&
        !json_object_set_new(json, "attention_bias", json_boolean(config->biases & BIAS_QKV)))
        return json;
    json_decref(json);
    return NULL;
}

static const Preset presets[] = {
    {"olmoe-1b-7b", 16, 2048, 16, false, 16, 0, 1024, 50304, 4096, 10000},
    {0},
};

static void preset(const Preset *size, ModelConfig *config) {
    config->expert_inner = size->inner;
}

static const char *gguf_obstacle(const ModelConfig *config) {
    const char *experts = decoder_gguf_obstacle_experts(config, false);
    if (experts) return experts;
    if (config->tied) return "an embedding that serves as output matrix in this family";
    return decoder_gguf_obstacle_qwen(config);
}

const Family family_olmoe = {
    DECODER_FAMILY(decoder_expert_names),
    .type = "olmoe",
    .title = "OLMoE",
    .defaults = defaults,
    .read = read_config,
    .write = write_config,
    .classes = "Olmoe",
    .presets = presets,
    .preset = preset,
    .gguf = "olmoe",
    .gguf_obstacle = gguf_obstacle,
};
