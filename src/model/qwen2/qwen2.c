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

/* Layers from max_window_layers on have the window, if use_sliding_window is set. */
static Status read_config(const json_t *json, const char *from, ModelConfig *config) {
    bool windows = false;
    int64_t window = 4096;
    config->window_from = 28;
    TRY(decoder_read(json, from, config));
    TRY(json_get_bool(json, from, "use_sliding_window", &windows));
    TRY(json_get_int(json, from, "sliding_window", 1, MAX_ROWS, &window));
    TRY(json_get_int(json, from, "max_window_layers", 0, MAX_LAYERS, &config->window_from));
    config->window = windows && !json_is_null(json_object_get(json, "sliding_window")) ? window : 0;
    return decoder_check_layer_types(json, from, config);
}

static json_t *write_config(const ModelConfig *config) {
    json_t *json = decoder_write(config);
    json_t *window = config->window ? json_integer((json_int_t)config->window) : json_null();
    if (json && !json_object_set_new(json, "sliding_window", window) &&
        !json_object_set_new(json, "use_sliding_window", json_boolean(config->window)) &&
        !json_object_set_new(json, "max_window_layers", json_integer((json_int_t)config->window_from)))
        return json;
    json_decref(json);
    return NULL;
}

static const Architecture architectures[] = {{"Qwen2ForCausalLM", OUTPUT_LM, false, false}, {0}};

static const DecoderPreset sizes[] = {
    {"qwen2.5-0.5b", 24, 896, 14, 2, 0, 4864, 151936, 32768, 1000000, true},
    {"qwen2.5-1.5b", 28, 1536, 12, 2, 0, 8960, 151936, 32768, 1000000, true},
    {"qwen2.5-7b", 28, 3584, 28, 4, 0, 18944, 152064, 131072, 1000000, false},
};

static const char *const presets[] = {"qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b", NULL};

static void preset(int at, ModelConfig *config) {
    decoder_preset(&sizes[at], config);
    config->bos_token = config->eos_token = 151643;
}

const Family family_qwen2 = {
    .type = "qwen2",
    .title = "Qwen2",
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
    .gguf = "qwen2",
    .gguf_names = decoder_gguf_names,
    .gguf_runs = decoder_gguf_runs,
};
