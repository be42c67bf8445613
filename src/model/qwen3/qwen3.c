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

/* Layers from max_window_layers on have the window, if use_sliding_window is set. */
static Status read_config(const json_t *json, const char *from, ModelConfig *config) {
    bool windows = false, biases = false;
    int64_t window = 4096;
    config->window_from = 28;
    TRY(decoder_read(json, from, config));
    TRY(json_get_bool(json, from, "attention_bias", &biases));
    TRY(json_get_bool(json, from, "use_sliding_window", &windows));
    TRY(json_get_int(json, from, "sliding_window", 1, MAX_ROWS, &window));
    TRY(json_get_int(json, from, "max_window_layers", 0, MAX_LAYERS, &config->window_from));
    config->window = windows && !json_is_null(json_object_get(json, "sliding_window")) ? window : 0;
    config->biases = biases ? BIAS_QKV | BIAS_OUT : 0;
    return decoder_check_layer_types(json, from, config);
}

static json_t *write_config(const ModelConfig *config) {
    json_t *json = decoder_write(config);
    json_t *window = config->window ? json_integer((json_int_t)config->window) : json_null();
    if (json && !json_object_set_new(json, "sliding_window", window) &&
        !json_object_set_new(json, "attention_bias", json_boolean(config->biases)) &&
        !json_object_set_new(json, "use_sliding_window", json_boolean(config->window)) &&
        !json_object_set_new(json, "max_window_layers", json_integer((json_int_t)config->window_from)))
        return json;
    json_decref(json);
    return NULL;
}

static const Architecture architectures[] = {{"Qwen3ForCausalLM", OUTPUT_LM, false, false}, {0}};

static const DecoderPreset sizes[] = {
    {"qwen3-0.6b", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1000000, true},
    {"qwen3-1.7b", 28, 2048, 16, 8, 128, 6144, 151936, 40960, 1000000, true},
    {"qwen3-8b", 36, 4096, 32, 8, 128, 12288, 151936, 40960, 1000000, false},
};

static const char *const presets[] = {"qwen3-0.6b", "qwen3-1.7b", "qwen3-8b", NULL};

static void preset(int at, ModelConfig *config) {
    decoder_preset(&sizes[at], config);
    config->bos_token = 151643;
    config->eos_token = 151645;
}

const Family family_qwen3 = {
    .type = "qwen3",
    .title = "Qwen3",
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
    .gguf = "qwen3",
    .gguf_names = decoder_gguf_names,
    .gguf_runs = decoder_gguf_runs,
};
