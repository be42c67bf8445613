/* Qwen3: a Llama that normalizes the heads of q and k, whose width does not depend on the hidden size. */
#include "model/decoder.h"

static void defaults(ModelConfig *config) {
    decoder_defaults(config);
    config->family = &family_qwen3;
    config->inner = 22016;
    config->kv_heads = 32;
    config->head_width = 128;
    config->vocab = 151936;
    config->positions = 32768;
    config->qk_norm = true;
    config->bos_token = config->eos_token = -1;
}

static Status read_config(const json_t *json, const char *from, ModelConfig *config) {
    bool biases = false;
    TRY(decoder_read(json, from, config));
    TRY(json_get_bool(json, from, "attention_bias", &biases));
    config->biases = biases ? BIAS_QKV | BIAS_OUT : 0;
    return decoder_read_windows(json, from, config);
}

static json_t *write_config(const ModelConfig *config) {
    json_t *json = decoder_write(config);
    if (json && decoder_write_windows(json, config) &&
        !json_object_set_new(json, "attention_bias", json_boolean(config->biases)))
        return json;
    json_decref(json);
    return NULL;
}

static const Preset presets[] = {
    {"qwen3-0.6b", 28, 1024, 16, true, 8, 128, 3072, 151936, 40960, 1000000},
    {"qwen3-1.7b", 28, 2048, 16, true, 8, 128, 6144, 151936, 40960, 1000000},
    {"qwen3-8b", 36, 4096, 32, false, 8, 128, 12288, 151936, 40960, 1000000},
    {0},
};

static void preset(const Preset *size, ModelConfig *config) {
    (void)size;
    config->bos_token = 151643;
    config->eos_token = 151645;
}

const Family family_qwen3 = {
    DECODER_FAMILY(decoder_names),
    .type = "qwen3",
    .title = "Qwen3",
    .defaults = defaults,
    .read = read_config,
    .write = write_config,
    .classes = "Qwen3",
    .presets = presets,
    .preset = preset,
    .gguf = "qwen3",
    .gguf_obstacle = decoder_gguf_obstacle_qwen,
    .mixture = &family_qwen3_moe,
};
