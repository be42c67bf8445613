/* GPT-2: pre-norm, causal, learned positions, biases everywhere. Its Conv1D matrices are stored transposed,
 * (in, out), and q, k and v are one tensor. */
#include "model/family.h"
#include "model/fields.h"
#include "model/parts/blocks.h"

static void defaults(ModelConfig *config) {
    *config = (ModelConfig){
        .family = &family_gpt2,
        .outputs_mask = OUTPUT_LM,
        .layers = 12,
        .hidden = 768,
        .heads = 12,
        .vocab = 50257,
        .positions = 1024,
        .labels = 2,
        .norm_place = NORM_BEFORE,
        .norm_eps = 1e-5f,
        .attention = ATTEND_CAUSAL,
        .scale_attn = true,
        .biases = BIAS_ALL,
        .act = ACT_GELU_TANH,
        .tied = true,
        .init = INIT_NORMAL,
        .init_std = 0.02f,
        .init_residual = true,
        .init_position_scale = 0.5f, /* as published */
        .dropout_embed = 0.1f,
        .dropout_attn = 0.1f,
        .dropout_hidden = 0.1f,
        .pad_token = -1,
        .bos_token = 50256,
        .eos_token = 50256,
    };
}

static Status read_config(const json_t *json, const char *from, ModelConfig *config) {
    const IntField field[] = {
        {"n_layer", "num_hidden_layers", 1, MAX_LAYERS, &config->layers},
        {"n_embd", "hidden_size", 1, MAX_WIDTH, &config->hidden},
        {"n_head", "num_attention_heads", 1, MAX_WIDTH, &config->heads},
        {"n_inner", NULL, 1, MAX_INNER, &config->inner},
        {"vocab_size", NULL, 1, MAX_ROWS, &config->vocab},
        {"n_positions", "max_position_embeddings", 1, MAX_ROWS, &config->positions},
    };
    TRY(fields_ints(json, from, field, sizeof field / sizeof field[0]));
    if (config->inner == 0) config->inner = 4 * config->hidden;
    TRY(field_act(json, from, "activation_function", &config->act));
    TRY(field_float(json, from, "layer_norm_epsilon", 0, 1, &config->norm_eps));
    TRY(field_float(json, from, "embd_pdrop", 0, 1, &config->dropout_embed));
    TRY(field_float(json, from, "attn_pdrop", 0, 1, &config->dropout_attn));
    TRY(field_float(json, from, "resid_pdrop", 0, 1, &config->dropout_hidden));
    TRY(json_get_bool(json, from, "scale_attn_weights", &config->scale_attn));
    return json_get_bool(json, from, "scale_attn_by_inverse_layer_idx", &config->scale_attn_by_layer);
}

static json_t *write_config(const ModelConfig *c) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:b, s:b}", "n_layer",
                     (json_int_t)c->layers, "n_embd", (json_int_t)c->hidden, "n_head",
                     (json_int_t)pruned_heads_before(c), "n_inner", (json_int_t)c->inner, "n_positions",
                     (json_int_t)c->positions, "vocab_size", (json_int_t)c->vocab, "activation_function",
                     field_act_name(c->act), "layer_norm_epsilon", field_real(c->norm_eps), "embd_pdrop",
                     field_real(c->dropout_embed), "attn_pdrop", field_real(c->dropout_attn), "resid_pdrop",
                     field_real(c->dropout_hidden), "scale_attn_weights", c->scale_attn,
                     "scale_attn_by_inverse_layer_idx", c->scale_attn_by_layer);
}

static const Preset presets[] = {
    {"gpt2", 12, 768, 12, .tied = true},        {"gpt2-medium", 24, 1024, 16, .tied = true},
    {"gpt2-large", 36, 1280, 20, .tied = true}, {"gpt2-xl", 48, 1600, 25, .tied = true},
    {"gpt2-tiny", 2, 128, 2, .tied = true},     {"gpt2-mini", 4, 256, 4, .tied = true},
    {"gpt2-small", 6, 384, 6, .tied = true},    {0},
};

static const HfRule names[] = {
    {"embed.token", "wte.weight", PART_WHOLE, true, false},
    {"embed.position", "wpe.weight", PART_WHOLE, true, false},
    {"layer.*.norm1", "h.*.ln_1", PART_WHOLE, true, false},
    {"layer.*.attn.qkv", "h.*.attn.c_attn", PART_FUSED, true, true},
    {"layer.*.attn.out", "h.*.attn.c_proj", PART_WHOLE, true, true},
    {"layer.*.norm2", "h.*.ln_2", PART_WHOLE, true, false},
    {"layer.*.mlp.up", "h.*.mlp.c_fc", PART_WHOLE, true, true},
    {"layer.*.mlp.down", "h.*.mlp.c_proj", PART_WHOLE, true, true},
    {"head.norm", "ln_f", PART_WHOLE, true, false},
    {"head.output", "lm_head", PART_WHOLE, false, false},
    {0},
};

static const char *const buffers[] = {"h.*.attn.bias", "h.*.attn.masked_bias", NULL};

static const GgufRule gguf_names[] = {
    {"embed.token", "token_embd.weight", PART_WHOLE, false, false},
    {"embed.position", "position_embd.weight", PART_WHOLE, true, false},
    {"layer.*.norm1", "blk.*.attn_norm", PART_WHOLE, true, false},
    {"layer.*.attn.qkv", "blk.*.attn_qkv", PART_WHOLE, false, false},
    {"layer.*.attn.out", "blk.*.attn_output", PART_WHOLE, false, false},
    {"layer.*.norm2", "blk.*.ffn_norm", PART_WHOLE, true, false},
    {"layer.*.mlp.up", "blk.*.ffn_up", PART_WHOLE, false, false},
    {"layer.*.mlp.down", "blk.*.ffn_down", PART_WHOLE, false, false},
    {"head.norm", "output_norm", PART_WHOLE, true, false},
    {"head.output", "output", PART_WHOLE, false, false},
    {0},
};

static const char *gguf_obstacle(const ModelConfig *config) {
    return config->act == ACT_GELU_TANH ? NULL : GGUF_ACT;
}

const Family family_gpt2 = {
    .type = "gpt2",
    .title = "GPT-2",
    .outputs = OUTPUT_LM,
    .output = &block_ops_lm_output,
    .defaults = defaults,
    .read = read_config,
    .write = write_config,
    .classes = "GPT2",
    .own_class = "LMHeadModel",
    .base_tied = true,
    .presets = presets,
    .names = names,
    .prefix = "transformer.",
    .output_matrix = "lm_head.weight",
    .buffers = buffers,
    .gguf = "gpt2",
    .gguf_names = gguf_names,
    .gguf_obstacle = gguf_obstacle,
};
