/* Mistral: a Llama whose tokens see a window of earlier ones. */
#include "model/decoder.h"

static void defaults(ModelConfig *config) {
    decoder_defaults(config);
    config->family = &family_mistral;
    config->inner = 14336;
    config->kv_heads = 8;
    config->positions = 4096 * 32;
    config->window = 4096;
}

static Status read_config(const json_t *json, const char *from, ModelConfig *config) {
    const json_t *window = json_object_get(json, "sliding_window");
    TRY(decoder_read(json, from, config));
    if (json_is_null(window)) config->window = 0;
    return json_get_int(json, from, "sliding_window", 1, MAX_ROWS, &config->window);
}

static json_t *write_config(const ModelConfig *config) {
    json_t *json = decoder_write(config);
    json_t *window = config->window ? json_integer((json_int_t)config->window) : json_null();
    if (json && !json_object_set_new(json, "sliding_window", window)) return json;
    json_decref(json);
    return NULL;
}

static const Preset presets[] = {
    {"mistral-5m", 6, 256, 8, true, 2, 0, 704, 0, 512, 10000},
    {"mistral-7b", 32, 4096, 32, false, 8, 0, 14336, 32000, 32768, 10000},
    {0},
};

static void preset(const Preset *size, ModelConfig *config) {
    config->norm_eps = 1e-5f;
    if (!size->vocab) config->window = 128;
}

const Family family_mistral = {
    DECODER_FAMILY(decoder_names),
    .type = "mistral",
    .title = "Mistral",
    .defaults = defaults,
    .read = read_config,
    .write = write_config,
    .classes = "Mistral",
    .presets = presets,
    .preset = preset,
    .gguf = "llama",
    .gguf_obstacle = decoder_gguf_obstacle,
    .gguf_pairs = true,
    .mixture = &family_mixtral,
};
