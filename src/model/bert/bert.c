/* BERT: post-norm, attention in both directions, learned positions, token types, biases everywhere; its
 * embeddings are normalized. q, k and v are three tensors. */
#include "model/family.h"
#include "model/fields.h"
#include "model/parts/blocks.h"

static void defaults(ModelConfig *config) {
    *config = (ModelConfig){
        .family = &family_bert,
        .pooler = true,
        .layers = 12,
        .hidden = 768,
        .heads = 12,
        .inner = 3072,
        .vocab = 30522,
        .positions = 512,
        .types = 2,
        .labels = 2,
        .norm_place = NORM_AFTER,
        .norm_eps = 1e-12f,
        .embed_norm = true,
        .attention = ATTEND_ALL,
        .scale_attn = true,
        .biases = BIAS_ALL,
        .act = ACT_GELU_ERF,
        .tied = true,
        .pad_fixed = true,
        .init = INIT_TRUNCATED,
        .init_std = 0.02f,
        .init_position_scale = 1,
        .dropout_embed = 0.1f,
        .dropout_attn = 0.1f,
        .dropout_hidden = 0.1f,
        .dropout_classify = 0.1f,
        .pad_token = 0,
        .bos_token = -1,
        .eos_token = -1,
    };
}

static Status read_config(const json_t *json, const char *from, ModelConfig *config) {
    const IntField field[] = {
        {"num_hidden_layers", NULL, 1, MAX_LAYERS, &config->layers},
        {"hidden_size", NULL, 1, MAX_WIDTH, &config->hidden},
        {"num_attention_heads", NULL, 1, MAX_WIDTH, &config->heads},
        {"intermediate_size", NULL, 1, MAX_INNER, &config->inner},
        {"vocab_size", NULL, 1, MAX_ROWS, &config->vocab},
        {"max_position_embeddings", NULL, 1, MAX_ROWS, &config->positions},
        {"type_vocab_size", NULL, 1, MAX_ROWS, &config->types},
    };
    TRY(fields_ints(json, from, field, sizeof field / sizeof field[0]));
    TRY(field_act(json, from, "hidden_act", &config->act));
    TRY(field_float(json, from, "layer_norm_eps", 0, 1, &config->norm_eps));
    TRY(field_float(json, from, "attention_probs_dropout_prob", 0, 1, &config->dropout_attn));
    TRY(field_float(json, from, "hidden_dropout_prob", 0, 1, &config->dropout_hidden));
    config->dropout_embed = config->dropout_classify = config->dropout_hidden;
    TRY(field_float(json, from, "classifier_dropout", 0, 1, &config->dropout_classify));
    TRY(field_refuse_true(json, from, "is_decoder"));
    return field_refuse_other(json, from, "position_embedding_type", "absolute");
}

static json_t *write_config(const ModelConfig *c) {
    bool same = c->dropout_classify == c->dropout_hidden;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:b}", "num_hidden_layers",
                     (json_int_t)c->layers, "hidden_size", (json_int_t)c->hidden, "num_attention_heads",
                     (json_int_t)pruned_heads_before(c), "intermediate_size", (json_int_t)c->inner,
                     "max_position_embeddings", (json_int_t)c->positions, "vocab_size", (json_int_t)c->vocab,
                     "type_vocab_size", (json_int_t)c->types, "hidden_act", field_act_name(c->act),
                     "layer_norm_eps", field_real(c->norm_eps), "attention_probs_dropout_prob",
                     field_real(c->dropout_attn), "hidden_dropout_prob", field_real(c->dropout_hidden),
                     "classifier_dropout", same ? json_null() : field_real(c->dropout_classify), "is_decoder",
                     false);
}

static const Preset presets[] = {
    {"bert-base", 12, 768, 12, .tied = true}, {"bert-large", 24, 1024, 16, .tied = true},
    {"bert-tiny", 2, 128, 2, .tied = true},   {"bert-mini", 4, 256, 4, .tied = true},
    {"bert-small", 4, 512, 8, .tied = true},  {0},
};

static void preset(const Preset *size, ModelConfig *config) {
    (void)size;
    config->outputs_mask = OUTPUT_MLM | OUTPUT_NSP;
}

static const HfRule names[] = {
    {"embed.token", "embeddings.word_embeddings.weight", PART_WHOLE, true, false},
    {"embed.position", "embeddings.position_embeddings.weight", PART_WHOLE, true, false},
    {"embed.type", "embeddings.token_type_embeddings.weight", PART_WHOLE, true, false},
    {"embed.norm", "embeddings.LayerNorm", PART_WHOLE, true, false},
    {"layer.*.attn.qkv", "encoder.layer.*.attention.self.query", 0, true, false},
    {"layer.*.attn.qkv", "encoder.layer.*.attention.self.key", 1, true, false},
    {"layer.*.attn.qkv", "encoder.layer.*.attention.self.value", 2, true, false},
    {"layer.*.attn.out", "encoder.layer.*.attention.output.dense", PART_WHOLE, true, false},
    {"layer.*.norm1", "encoder.layer.*.attention.output.LayerNorm", PART_WHOLE, true, false},
    {"layer.*.mlp.up", "encoder.layer.*.intermediate.dense", PART_WHOLE, true, false},
    {"layer.*.mlp.down", "encoder.layer.*.output.dense", PART_WHOLE, true, false},
    {"layer.*.norm2", "encoder.layer.*.output.LayerNorm", PART_WHOLE, true, false},
    {"head.pooler", "pooler.dense", PART_WHOLE, true, false},
    {"head.mlm.dense", "cls.predictions.transform.dense", PART_WHOLE, false, false},
    {"head.mlm.norm", "cls.predictions.transform.LayerNorm", PART_WHOLE, false, false},
    {"head.mlm.bias", "cls.predictions.bias", PART_WHOLE, false, false},
    {"head.output", "cls.predictions.decoder", PART_WHOLE, false, false},
    {"head.nsp", "cls.seq_relationship", PART_WHOLE, false, false},
    {"head.span", "qa_outputs", PART_WHOLE, false, false},
    {"head.classify", "classifier", PART_WHOLE, false, false},
    {0},
};

static const char *const buffers[] = {"embeddings.position_ids", "embeddings.token_type_ids", NULL};

static const GgufRule gguf_names[] = {
    {"embed.token", "token_embd.weight", PART_WHOLE, false, false},
    {"embed.position", "position_embd.weight", PART_WHOLE, true, false},
    {"embed.type", "token_types.weight", PART_WHOLE, true, false},
    {"embed.norm", "token_embd_norm", PART_WHOLE, true, false},
    {"layer.*.attn.qkv", "blk.*.attn_q", 0, false, false},
    {"layer.*.attn.qkv", "blk.*.attn_k", 1, false, false},
    {"layer.*.attn.qkv", "blk.*.attn_v", 2, false, false},
    {"layer.*.attn.out", "blk.*.attn_output", PART_WHOLE, false, false},
    {"layer.*.norm1", "blk.*.attn_output_norm", PART_WHOLE, true, false},
    {"layer.*.mlp.up", "blk.*.ffn_up", PART_WHOLE, false, false},
    {"layer.*.mlp.down", "blk.*.ffn_down", PART_WHOLE, false, false},
    {"layer.*.norm2", "blk.*.layer_output_norm", PART_WHOLE, true, false},
    {0},
};

static const char *gguf_obstacle(const ModelConfig *config) {
    return config->act == ACT_GELU_TANH || config->act == ACT_GELU_ERF ? NULL : GGUF_ACT;
}

const Family family_bert = {
    .type = "bert",
    .title = "BERT",
    .outputs = OUTPUT_MLM | OUTPUT_NSP | OUTPUT_SPAN | OUTPUT_CLASSIFY,
    .output = &block_ops_encoder_output,
    .defaults = defaults,
    .read = read_config,
    .write = write_config,
    .classes = "Bert",
    .own_class = "ForPreTraining",
    .presets = presets,
    .preset = preset,
    .byte_specials = true,
    .names = names,
    .prefix = "bert.",
    .output_matrix = "cls.predictions.decoder.weight",
    .output_bias = {"cls.predictions.bias", "cls.predictions.decoder.bias"},
    .buffers = buffers,
    .gguf = "bert",
    .gguf_names = gguf_names,
    .gguf_obstacle = gguf_obstacle,
};
