/* What Llama and its relatives share: pre-norm decoders with RMS norms, rotary positions, a gated MLP and
 * grouped heads. A family starts from these functions and tables and changes what is its own. */
#ifndef WEFT_MODEL_DECODER_H
#define WEFT_MODEL_DECODER_H

#include "model/family.h"
#include "model/fields.h"
#include "model/parts/blocks.h"

/* transformers' defaults of a LlamaConfig; the caller sets `family`. */
void decoder_defaults(ModelConfig *config);
/* Fields that have the same name in all of them. */
MUST_USE Status decoder_read(const json_t *json, const char *from, ModelConfig *config);
json_t *decoder_write(const ModelConfig *config);

/* use_sliding_window, sliding_window and max_window_layers: layers from max_window_layers on have the window,
 * if it is used. Writing adds to `json` and returns false if memory runs out. */
MUST_USE Status decoder_read_windows(const json_t *json, const char *from, ModelConfig *config);
bool decoder_write_windows(json_t *json, const ModelConfig *config);

/* What their tensors are called: rows of a table that a family with other ones continues. */
/* clang-format off */
#define DECODER_RULES \
    {"embed.token", "embed_tokens.weight", PART_WHOLE, true, false}, \
    {"layer.*.norm1", "layers.*.input_layernorm", PART_WHOLE, true, false}, \
    {"layer.*.attn.qkv", "layers.*.self_attn.q_proj", 0, true, false}, \
    {"layer.*.attn.qkv", "layers.*.self_attn.k_proj", 1, true, false}, \
    {"layer.*.attn.qkv", "layers.*.self_attn.v_proj", 2, true, false}, \
    {"layer.*.attn.q", "layers.*.self_attn.q_proj", PART_WHOLE, true, false}, \
    {"layer.*.attn.kv", "layers.*.self_attn.k_proj", 0, true, false}, \
    {"layer.*.attn.kv", "layers.*.self_attn.v_proj", 1, true, false}, \
    {"layer.*.attn.q_norm", "layers.*.self_attn.q_norm", PART_WHOLE, true, false}, \
    {"layer.*.attn.k_norm", "layers.*.self_attn.k_norm", PART_WHOLE, true, false}, \
    {"layer.*.attn.out", "layers.*.self_attn.o_proj", PART_WHOLE, true, false}, \
    {"layer.*.norm2", "layers.*.post_attention_layernorm", PART_WHOLE, true, false}, \
    {"layer.*.mlp.up", "layers.*.mlp.gate_proj", 0, true, false}, \
    {"layer.*.mlp.up", "layers.*.mlp.up_proj", 1, true, false}, \
    {"layer.*.mlp.down", "layers.*.mlp.down_proj", PART_WHOLE, true, false}, \
    {"head.norm", "norm", PART_WHOLE, true, false}, \
    {"head.output", "lm_head", PART_WHOLE, false, false}
/* clang-format on */
extern const HfRule decoder_names[];
extern const GgufRule decoder_gguf_names[];
extern const char *const decoder_buffers[];
const char *decoder_gguf_obstacle(const ModelConfig *config);
/* That of experts: `normalized` says whether llama.cpp divides the weights of a token's experts by their sum
 * in models of this family. */
const char *decoder_gguf_obstacle_experts(const ModelConfig *config, bool normalized);
/* The same for Qwen. Windows are an obstacle here: its first layers have none, so the model has a longer
 * context than a window. */
const char *decoder_gguf_obstacle_qwen(const ModelConfig *config);

/* config.json of mixtures: num_experts, which transformers 5 and Mixtral call num_local_experts;
 * num_experts_per_tok, router_aux_loss_coef and output_router_logits. weft writes the first as `count`. */
MUST_USE Status decoder_read_experts(const json_t *json, const char *from, ModelConfig *config);
bool decoder_write_experts(json_t *json, const ModelConfig *config, const char *count);
/* Qwen's also have moe_intermediate_size, norm_topk_prob, decoder_sparse_step and mlp_only_layers. */
MUST_USE Status decoder_read_qwen_experts(const json_t *json, const char *from, ModelConfig *config);
bool decoder_write_qwen_experts(json_t *json, const ModelConfig *config);
/* The names of their tensors, except Mixtral's. */
extern const HfRule decoder_expert_names[];

/* The members that all of their rows have; `table` has the names of their tensors. */
/* clang-format off */
#define DECODER_FAMILY(table) \
    .outputs = OUTPUT_LM, .output = &block_ops_lm_output, .names = (table), .prefix = "model.", \
    .output_matrix = "lm_head.weight", .buffers = decoder_buffers, .gguf_names = decoder_gguf_names
/* clang-format on */

#endif
