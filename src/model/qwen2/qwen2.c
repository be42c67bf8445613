/* Qwen2 and Qwen2.5: a Llama with biases on q, k and v, and optionally a window in the later layers. */
#include "model/decoder.h"

static void defaults(ModelConfig *config) {
    decoder_defaults(config);
    config->family = &family_qwen2;
    config->hidden = 4096;
    config->inner = 22016;
    config->kv_heads = 32;
    config->vocab = 151936;
    config->positions = 32768;
    config->biases = BIAS_QKV;
    config->bos_token = config->eos_token = -1;
}

static Status read_config(const json_t *json, const char *from, ModelConfig *config) {
    TRY(decoder_read(json, from, config));
    return decoder_read_windows(json, from, config);
}

static json_t *write_config(const ModelConfig *config) {
    json_t *json = decoder_write(config);
    if (json && decoder_write_windows(json, config)) return json;
    json_decref(json);
    return NULL;
}

static const Preset presets[] = {
    {"qwen2.5-0.5b", 24, 896, 14, true, 2, 0, 4864, 151936, 32768, 1000000},
    {"qwen2.5-1.5b", 28, 1536, 12, true, 2, 0, 8960, 151936, 32768, 1000000},
    {"qwen2.5-7b", 28, 3584, 28, false, 4, 0, 18944, 152064, 131072, 1000000},
    {0},
};

static void preset(const Preset *size, ModelConfig *config) {
    (void)size;
    config->bos_token = config->eos_token = 151643;
}

static const char *gguf_obstacle(const ModelConfig *config) {
    if (config_attention(config) != config->hidden)
        return "an attention width that differs from the hidden size in this family";
    return decoder_gguf_obstacle_qwen(config);
}

const Family family_qwen2 = {
    DECODER_FAMILY(decoder_names),
    .type = "qwen2",
    .title = "Qwen2",
    .defaults = defaults,
    .read = read_config,
    .write = write_config,
    .classes = "Qwen2",
    .presets = presets,
    .preset = preset,
    .gguf = "qwen2",
    .gguf_obstacle = gguf_obstacle,
    .mixture = &family_qwen2_moe,
};
