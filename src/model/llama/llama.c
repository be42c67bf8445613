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

static const Architecture architectures[] = {{"LlamaForCausalLM", OUTPUT_LM, false, false}, {0}};

/* The published sizes, and small ones: their embedding is tied, since it would be most of them. */
static const DecoderPreset sizes[] = {
    {"llama-1m", 4, 128, 4, 2, 0, 352, 0, 512, 0, true},
    {"llama-5m", 6, 256, 8, 4, 0, 704, 0, 512, 0, true},
    {"llama-15m", 6, 288, 6, 6, 0, 768, 0, 1024, 0, false},
    {"llama-42m", 8, 512, 8, 8, 0, 1376, 0, 1024, 0, false},
    {"llama-110m", 12, 768, 12, 12, 0, 2048, 0, 1024, 0, false},
    {"smollm-135m", 30, 576, 9, 3, 0, 1536, 49152, 2048, 10000, true},
    {"smollm-360m", 32, 960, 15, 5, 0, 2560, 49152, 2048, 10000, true},
    {"tinyllama-1.1b", 22, 2048, 32, 4, 0, 5632, 32000, 2048, 10000, false},
    {"llama-2-7b", 32, 4096, 32, 32, 0, 11008, 32000, 4096, 10000, false},
    {"llama-2-13b", 40, 5120, 40, 40, 0, 13824, 32000, 4096, 10000, false},
    {"llama-2-70b", 80, 8192, 64, 8, 0, 28672, 32000, 4096, 10000, false},
    {"llama-3-8b", 32, 4096, 32, 8, 0, 14336, 128256, 8192, 500000, false},
    {"llama-3-70b", 80, 8192, 64, 8, 0, 28672, 128256, 8192, 500000, false},
    {"llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 500000, true},
    {"llama-3.2-3b", 28, 3072, 24, 8, 128, 8192, 128256, 131072, 500000, true},
};

enum { PRESETS = sizeof sizes / sizeof *sizes };
static const char *const presets[PRESETS + 1] = {
    "llama-1m",    "llama-5m",    "llama-15m",      "llama-42m",    "llama-110m",
    "smollm-135m", "smollm-360m", "tinyllama-1.1b", "llama-2-7b",   "llama-2-13b",
    "llama-2-70b", "llama-3-8b",  "llama-3-70b",    "llama-3.2-1b", "llama-3.2-3b"};

static void preset(int at, ModelConfig *config) {
    const DecoderPreset *size = &sizes[at];
    decoder_preset(size, config);
    if (size->vocab == 128256) {
        config->norm_eps = 1e-5f;
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
    .type = "llama",
    .title = "Llama",
    .outputs = OUTPUT_LM,
    .output = &block_ops_lm_output,
    .defaults = defaults,
    .read = read_config,
    .write = write_config,
    .architectures = architectures,
    .presets = presets,
    .preset = preset,
    .names = decoder_names,
    .prefix = "model.",
    .output_matrix = "lm_head.weight",
    .buffers = decoder_buffers,
    .gguf = "llama",
    .gguf_names = decoder_gguf_names,
    .gguf_pairs = true,
    .gguf_runs = decoder_gguf_runs,
};
