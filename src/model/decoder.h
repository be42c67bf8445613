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
/* `layer_types`, for families that let the first `window_from` layers see everything and limit the others to
 * a window: fails if the list says otherwise. */
MUST_USE Status decoder_check_layer_types(const json_t *json, const char *from, const ModelConfig *config);

typedef struct DecoderPreset {
    const char *name;
    int64_t layers, hidden, heads, kv_heads, head_width, inner, vocab, positions;
    float theta;
    bool tied;
} DecoderPreset;
void decoder_preset(const DecoderPreset *preset, ModelConfig *config);

extern const HfRule decoder_names[];
extern const GgufRule decoder_gguf_names[];
extern const char *const decoder_buffers[];
bool decoder_gguf_runs(const ModelConfig *config);

#endif
