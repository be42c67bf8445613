/* Mixtral: a Mistral whose MLPs are mixtures of experts. */
#include "model/decoder.h"

static void defaults(ModelConfig *config) {
    decoder_defaults(config);
    config->family = &family_mixtral;
    config->inner = config->expert_inner = 14336;
    config->kv_heads = 8;
    config->positions = 4096 * 32;
    config->norm_eps = 1e-5f;
    config->rope.theta = 1000000;
    config->experts = 8;
    config->top_k = 2;
    config->norm_top_k = true;
    config->balance_coef = 0.001f;
}

static Status read_config(const json_t *json, const char *from, ModelConfig *config) {
    float jitter = 0;
    TRY(decoder_read(json, from, config));
    TRY(decoder_read_experts(json, from, config));
    config->expert_inner = config->inner;
    TRY(field_float(json, from, "router_jitter_noise", 0, 1, &jitter));
    if (jitter > 0)
        return FAILED("%s: 'router_jitter_noise' is %g, which weft does not support; expected 0", from,
                      (double)jitter);
    return json_get_int(json, from, "sliding_window", 1, MAX_ROWS, &config->window);
}

static json_t *write_config(const ModelConfig *config) {
    json_t *json = decoder_write(config);
    json_t *window = config->window ? json_integer((json_int_t)config->window) : json_null();
    if (json && !json_object_set_new(json, "sliding_window", window) &&
        !json_object_set_new(json, "intermediate_size", json_integer((json_int_t)config->expert_inner)) &&
        decoder_write_experts(json, config, "num_local_experts"))
        return json;
    json_decref(json);
    return NULL;
}

static const HfRule mixtral_expert_names[] = {
    DECODER_RULES,
    {"layer.*.moe.router", "layers.*.block_sparse_moe.gate", PART_WHOLE, true, false},
    {"layer.*.moe.up", "layers.*.block_sparse_moe.experts.*.w1", PART_EVEN, true, false},
    {"layer.*.moe.up", "layers.*.block_sparse_moe.experts.*.w3", PART_ODD, true, false},
    {"layer.*.moe.down", "layers.*.block_sparse_moe.experts.*.w2", PART_EACH, true, false},
    {0},
};

/* The published size, and a small one whose attention is that of llama-1m. */
static const Preset presets[] = {
    {"moe-1m", 4, 128, 4, true, 2, 0, 64, 0, 512, 10000},
    {"mixtral-8x7b", 32, 4096, 32, false, 8, 0, 14336, 32000, 32768, 1000000},
    {0},
};

static void preset(const Preset *size, ModelConfig *config) {
    config->expert_inner = size->inner;
    config->balance_coef = size->vocab ? 0.02f /* as published */ : 0.01f;
}

static const char *gguf_obstacle(const ModelConfig *config) {
    const char *experts = decoder_gguf_obstacle_experts(config, true);
    return experts ? experts : decoder_gguf_obstacle(config);
}

const Family family_mixtral = {
    DECODER_FAMILY(mixtral_expert_names),
    .type = "mixtral",
    .title = "Mixtral",
    .defaults = defaults,
    .read = read_config,
    .write = write_config,
    .classes = "Mixtral",
    .presets = presets,
    .preset = preset,
    .gguf = "llama",
    .gguf_obstacle = gguf_obstacle,
    .gguf_pairs = true,
};
