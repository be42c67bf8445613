/* Llama 2 and 3, TinyLlama, SmolLM. */
#include "model/decoder.h"

static void defaults(ModelConfig *config) {
    decoder_defaults(config);
    config->family = &family_llama;
}

static Status read_config(const json_t *json, const char *from, ModelConfig *config) {
    bool attention = false, mlp = false;
    TRY(decoder_read(json, from, config));
    TRY(json_get_bool(json, from, "attention_bias", &attention));
    TRY(json_get_bool(json, from, "mlp_bias", &mlp));
    config->biases = (attention ? BIAS_QKV | BIAS_OUT : 0) | (mlp ? BIAS_MLP : 0);
    return OK;
}

static json_t *write_config(const ModelConfig *config) {
    json_t *json = decoder_write(config);
    if (json && !json_object_set_new(json, "attention_bias", json_boolean(config->biases & BIAS_QKV)) &&
        !json_object_set_new(json, "mlp_bias", json_boolean(config->biases & BIAS_MLP)))
        return json;
    json_decref(json);
    return NULL;
}

/* The published sizes, and small ones: their embedding is tied, since it would be most of them. */
static const Preset presets[] = {
    {"llama-1m", 4, 128, 4, true, 2, 0, 352, 0, 512, 0},
    {"llama-5m", 6, 256, 8, true, 4, 0, 704, 0, 512, 0},
    {"llama-15m", 6, 288, 6, false, 6, 0, 768, 0, 1024, 0},
    {"llama-42m", 8, 512, 8, false, 8, 0, 1376, 0, 1024, 0},
    {"llama-110m", 12, 768, 12, false, 12, 0, 2048, 0, 1024, 0},
    {"smollm-135m", 30, 576, 9, true, 3, 0, 1536, 49152, 2048, 10000},
    {"smollm-360m", 32, 960, 15, true, 5, 0, 2560, 49152, 2048, 10000},
    {"tinyllama-1.1b", 22, 2048, 32, false, 4, 0, 5632, 32000, 2048, 10000},
    {"llama-2-7b", 32, 4096, 32, false, 32, 0, 11008, 32000, 4096, 10000},
    {"llama-2-13b", 40, 5120, 40, false, 40, 0, 13824, 32000, 4096, 10000},
    {"llama-2-70b", 80, 8192, 64, false, 8, 0, 28672, 32000, 4096, 10000},
    {"llama-3-8b", 32, 4096, 32, false, 8, 0, 14336, 128256, 8192, 500000},
    {"llama-3-70b", 80, 8192, 64, false, 8, 0, 28672, 128256, 8192, 500000},
    {"llama-3.2-1b", 16, 2048, 32, true, 8, 64, 8192, 128256, 131072, 500000},
    {"llama-3.2-3b", 28, 3072, 24, true, 8, 128, 8192, 128256, 131072, 500000},
    {0},
};

static void preset(const Preset *size, ModelConfig *config) {
    if (size->vocab) config->norm_eps = 1e-5f;                           /* as published */
    if (size->vocab == 49152) config->bos_token = config->eos_token = 0; /* SmolLM */
    if (size->vocab == 128256) {
        config->bos_token = 128000;
        config->eos_token = 128001;
    }
    if (size->positions == 131072)
        config->rope = (Rope){.theta = size->theta,
                              .scaling = ROPE_LLAMA3,
                              .factor = 32,
                              .low_freq_factor = 1,
                              .high_freq_factor = 4,
                              .original = 8192};
}

const Family family_llama = {
    DECODER_FAMILY(decoder_names),
    .type = "llama",
    .title = "Llama",
    .defaults = defaults,
    .read = read_config,
    .write = write_config,
    .classes = "Llama",
    .presets = presets,
    .preset = preset,
    .gguf = "llama",
    .gguf_obstacle = decoder_gguf_obstacle,
    .gguf_pairs = true,
    .mixture = &family_mixtral,
};
