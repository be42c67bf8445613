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

extern const HfRule decoder_names[];
extern const GgufRule decoder_gguf_names[];
extern const char *const decoder_buffers[];
const char *decoder_gguf_obstacle(const ModelConfig *config);
/* The same for Qwen. Windows are an obstacle here: its first layers have none, so the model has a longer
 * context than a window. */
const char *decoder_gguf_obstacle_qwen(const ModelConfig *config);

/* The members that all of their rows have. */
/* clang-format off */
#define DECODER_FAMILY \
    .outputs = OUTPUT_LM, .output = &block_ops_lm_output, .names = decoder_names, .prefix = "model.", \
    .output_matrix = "lm_head.weight", .buffers = decoder_buffers, .gguf_names = decoder_gguf_names
/* clang-format on */

#endif
