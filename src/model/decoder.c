#include "model/decoder.h"

#include "model/rope.h"

void decoder_defaults(ModelConfig *config) {
    *config = (ModelConfig){
        .outputs_mask = OUTPUT_LM,
        .layers = 32,
        .hidden = 4096,
        .heads = 32,
        .inner = 11008,
        .vocab = 32000,
        .positions = 2048,
        .labels = 2,
        .free_head_width = true,
        .norm = NORM_RMS,
        .norm_place = NORM_BEFORE,
        .norm_eps = 1e-6f,
        .position = POSITION_ROPE,
        .rope = {.theta = 10000},
        .attention = ATTEND_CAUSAL,
        .scale_attn = true,
        .act = ACT_SILU,
        .gated = true,
        .pad_fixed = true,
        .init = INIT_NORMAL,
        .init_std = 0.02f,
        .pad_token = -1,
        .bos_token = 1,
        .eos_token = 2,
    };
}

/* ---- config.json ---- */

Status decoder_read(const json_t *json, const char *from, ModelConfig *config) {
    int64_t width = 0;
    const IntField field[] = {
        {"num_hidden_layers", NULL, 1, MAX_LAYERS, &config->layers},
        {"hidden_size", NULL, 1, MAX_WIDTH, &config->hidden},
        {"num_attention_heads", NULL, 1, MAX_WIDTH, &config->heads},
        {"num_key_value_heads", NULL, 1, MAX_WIDTH, &config->kv_heads},
        {"head_dim", NULL, 1, MAX_WIDTH, &width},
        {"intermediate_size", NULL, 1, MAX_INNER, &config->inner},
        {"vocab_size", NULL, 1, MAX_ROWS, &config->vocab},
        {"max_position_embeddings", NULL, 1, MAX_ROWS, &config->positions},
    };
    TRY(fields_ints(json, from, field, sizeof field / sizeof field[0]));
    if (width) config->head_width = width;
    if (json_is_null(json_object_get(json, "num_key_value_heads"))) config->kv_heads = 0;
    TRY(field_act(json, from, "hidden_act", &config->act));
    TRY(field_float(json, from, "rms_norm_eps", 0, 1, &config->norm_eps));
    TRY(field_float(json, from, "attention_dropout", 0, 1, &config->dropout_attn));
    return rope_read(json, from, config);
}

json_t *decoder_write(const ModelConfig *c) {
    json_t *scaling = c->rope.scaling == ROPE_PLAIN ? json_null() : rope_write(c);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:o}",
                     "num_hidden_layers", (json_int_t)c->layers, "hidden_size", (json_int_t)c->hidden,
                     "num_attention_heads", (json_int_t)c->heads, "num_key_value_heads",
                     (json_int_t)config_kv_heads(c), "head_dim", (json_int_t)config_head_width(c),
                     "intermediate_size", (json_int_t)c->inner, "vocab_size", (json_int_t)c->vocab,
                     "max_position_embeddings", (json_int_t)c->positions, "hidden_act",
                     field_act_name(c->act), "rms_norm_eps", field_real(c->norm_eps), "attention_dropout",
                     field_real(c->dropout_attn), "rope_theta", field_real(c->rope.theta), "rope_scaling",
                     scaling, "rope_parameters", rope_write(c));
}

Status decoder_read_windows(const json_t *json, const char *from, ModelConfig *config) {
    bool used = false;
    int64_t window = 4096;
    config->window_from = 28;
    TRY(json_get_bool(json, from, "use_sliding_window", &used));
    TRY(json_get_int(json, from, "sliding_window", 1, MAX_ROWS, &window));
    TRY(json_get_int(json, from, "max_window_layers", 0, MAX_LAYERS, &config->window_from));
    config->window = used && !json_is_null(json_object_get(json, "sliding_window")) ? window : 0;
    return OK;
}

bool decoder_write_windows(json_t *json, const ModelConfig *config) {
    json_t *window = config->window ? json_integer((json_int_t)config->window) : json_null();
    return !json_object_set_new(json, "sliding_window", window) &&
           !json_object_set_new(json, "use_sliding_window", json_boolean(config->window)) &&
           !json_object_set_new(json, "max_window_layers", json_integer((json_int_t)config->window_from));
}

Status decoder_read_experts(const json_t *json, const char *from, ModelConfig *config) {
    bool ignored = false; /* whether transformers adds the balancing loss; weft has an option for that */
    const IntField field[] = {
        {"num_experts", "num_local_experts", 1, MOST_EXPERTS, &config->experts},
        {"num_experts_per_tok", NULL, 1, MOST_EXPERTS, &config->top_k},
    };
    TRY(fields_ints(json, from, field, sizeof field / sizeof field[0]));
    TRY(json_get_bool(json, from, "output_router_logits", &ignored));
    return field_float(json, from, "router_aux_loss_coef", 0, 1000, &config->balance_coef);
}

bool decoder_write_experts(json_t *json, const ModelConfig *config, const char *count) {
    return !json_object_set_new(json, count, json_integer((json_int_t)config->experts)) &&
           !json_object_set_new(json, "num_experts_per_tok", json_integer((json_int_t)config->top_k)) &&
           !json_object_set_new(json, "router_aux_loss_coef", field_real(config->balance_coef));
}

static Status read_dense_layers(const json_t *json, const char *from, ModelConfig *config) {
    static const char key[] = "mlp_only_layers";
    const json_t *list = json_object_get(json, key);
    size_t count = json_array_size(list);
    if (!list || json_is_null(list)) return OK;
    if (!json_is_array(list)) return FAILED("%s: '%s' must be a list of layers", from, key);
    if (count > MOST_DENSE)
        return FAILED("%s: '%s' lists %zu layers; weft supports at most %d", from, key, count, MOST_DENSE);
    for (size_t i = 0; i < count; i++) {
        const json_t *layer = json_array_get(list, i);
        if (!json_is_integer(layer) || json_integer_value(layer) < 0 ||
            json_integer_value(layer) > MAX_LAYERS)
            return FAILED("%s: '%s' must be a list of layers, numbered from 0", from, key);
        config->dense_layer[i] = json_integer_value(layer);
    }
    config->dense_layers = (int)count;
    return OK;
}

Status decoder_read_qwen_experts(const json_t *json, const char *from, ModelConfig *config) {
    const IntField field[] = {
        {"moe_intermediate_size", NULL, 1, MAX_INNER, &config->expert_inner},
        {"decoder_sparse_step", NULL, 1, MAX_LAYERS, &config->sparse_step},
    };
    TRY(decoder_read_experts(json, from, config));
    TRY(fields_ints(json, from, field, sizeof field / sizeof field[0]));
    TRY(json_get_bool(json, from, "norm_topk_prob", &config->norm_top_k));
    return read_dense_layers(json, from, config);
}

bool decoder_write_qwen_experts(json_t *json, const ModelConfig *config) {
    json_int_t step = config->sparse_step ? config->sparse_step : 1;
    json_t *dense = json_array();
    int failed = json_object_set_new(json, "mlp_only_layers", dense);
    for (int i = 0; i < config->dense_layers && !failed; i++)
        failed = json_array_append_new(dense, json_integer((json_int_t)config->dense_layer[i]));
    return !failed && decoder_write_experts(json, config, "num_experts") &&
           !json_object_set_new(json, "moe_intermediate_size",
                                json_integer((json_int_t)config->expert_inner)) &&
           !json_object_set_new(json, "decoder_sparse_step", json_integer(step)) &&
           !json_object_set_new(json, "norm_topk_prob", json_boolean(config->norm_top_k));
}

/* ---- names ---- */

const HfRule decoder_names[] = {
    DECODER_RULES,
    {0},
};

const HfRule decoder_expert_names[] = {
    DECODER_RULES,
    {"layer.*.moe.router", "layers.*.mlp.gate", PART_WHOLE, true, false},
    {"layer.*.moe.up", "layers.*.mlp.experts.*.gate_proj", PART_EVEN, true, false},
    {"layer.*.moe.up", "layers.*.mlp.experts.*.up_proj", PART_ODD, true, false},
    {"layer.*.moe.down", "layers.*.mlp.experts.*.down_proj", PART_EACH, true, false},
    {"layer.*.moe.shared.router", "layers.*.mlp.shared_expert_gate", PART_WHOLE, true, false},
    {"layer.*.moe.shared.up", "layers.*.mlp.shared_expert.gate_proj", 0, true, false},
    {"layer.*.moe.shared.up", "layers.*.mlp.shared_expert.up_proj", 1, true, false},
    {"layer.*.moe.shared.down", "layers.*.mlp.shared_expert.down_proj", 0, true, false},
    {0},
};

const char *const decoder_buffers[] = {"layers.*.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq", NULL};

const GgufRule decoder_gguf_names[] = {
    {"embed.token", "token_embd.weight", PART_WHOLE, false, false},
    {"layer.*.norm1", "blk.*.attn_norm", PART_WHOLE, true, false},
    {"layer.*.attn.qkv", "blk.*.attn_q", 0, false, true},
    {"layer.*.attn.qkv", "blk.*.attn_k", 1, false, true},
    {"layer.*.attn.qkv", "blk.*.attn_v", 2, false, false},
    {"layer.*.attn.q", "blk.*.attn_q", PART_WHOLE, false, true},
    {"layer.*.attn.kv", "blk.*.attn_k", 0, false, true},
    {"layer.*.attn.kv", "blk.*.attn_v", 1, false, false},
    {"layer.*.attn.q_norm", "blk.*.attn_q_norm", PART_WHOLE, true, false},
    {"layer.*.attn.k_norm", "blk.*.attn_k_norm", PART_WHOLE, true, false},
    {"layer.*.attn.out", "blk.*.attn_output", PART_WHOLE, false, false},
    {"layer.*.norm2", "blk.*.ffn_norm", PART_WHOLE, true, false},
    {"layer.*.mlp.up", "blk.*.ffn_gate", 0, false, false},
    {"layer.*.mlp.up", "blk.*.ffn_up", 1, false, false},
    {"layer.*.mlp.down", "blk.*.ffn_down", PART_WHOLE, false, false},
    {"layer.*.moe.router", "blk.*.ffn_gate_inp", PART_WHOLE, true, false},
    {"layer.*.moe.up", "blk.*.ffn_gate_exps", PART_EVEN, false, false},
    {"layer.*.moe.up", "blk.*.ffn_up_exps", PART_ODD, false, false},
    {"layer.*.moe.down", "blk.*.ffn_down_exps", PART_EACH, false, false},
    {"layer.*.moe.shared.router", "blk.*.ffn_gate_inp_shexp", 0, true, false},
    {"layer.*.moe.shared.up", "blk.*.ffn_gate_shexp", 0, false, false},
    {"layer.*.moe.shared.up", "blk.*.ffn_up_shexp", 1, false, false},
    {"layer.*.moe.shared.down", "blk.*.ffn_down_shexp", 0, false, false},
    {"head.norm", "output_norm", PART_WHOLE, true, false},
    {"head.output", "output", PART_WHOLE, false, false},
    {0},
};

const char *decoder_gguf_obstacle(const ModelConfig *config) {
    if (config->rope.scaling == ROPE_DYNAMIC) return "dynamic rotary scaling";
    if (rope_yarn_changed(&config->rope))
        return "yarn's 'beta_fast', 'beta_slow' and 'truncate' in this family";
    return config->act != ACT_SILU ? GGUF_ACT : NULL;
}

const char *decoder_gguf_obstacle_experts(const ModelConfig *config, bool normalized) {
    enum { MOST = 512 };
    if (config->experts > MOST) return "more than 512 experts";
    if (config_sparse_layers(config) < config->layers) return "layers without experts among others";
    if (config->norm_top_k == normalized) return NULL;
    return normalized ? "weights of experts that do not sum to 1 in this family"
                      : "normalized weights of experts in this family";
}

const char *decoder_gguf_obstacle_qwen(const ModelConfig *config) {
    int64_t window = config_window(config, (int)config->layers - 1);
    if (config->rope.scaling == ROPE_LLAMA3) return "Llama 3's scaled rotary positions in this family";
    if (config->rope.scaling == ROPE_LONGROPE) return "longrope rotary scaling in this family";
    if (window && window < config_context(config)) return "sliding windows in this family";
    if (config->biases & BIAS_OUT) return "a bias of the attention output in this family";
    return decoder_gguf_obstacle(config);
}
