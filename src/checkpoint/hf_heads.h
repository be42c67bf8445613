/* Pruned attention heads in config.json: "pruned_heads" maps each layer to the list of its pruned heads;
 * the usual field gives the original number of heads, and tensors contain only the remaining ones. weft
 * requires the same number of heads in every layer. */
#ifndef WEFT_CHECKPOINT_HF_HEADS_H
#define WEFT_CHECKPOINT_HF_HEADS_H

#include "base/json.h"
#include "model/config.h"

/* Sets config->heads from the original to the remaining number and config->head_width accordingly; does
 * nothing if the field is absent or empty. */
MUST_USE Status pruned_heads_read(const json_t *json, const char *from, ModelConfig *config);
/* The original number of heads. */
int64_t pruned_heads_before(const ModelConfig *config);
/* The field, or NULL if memory runs out; the caller releases it. Which heads were pruned is not recorded,
 * so it lists the last ones; only their number matters to readers. */
json_t *pruned_heads_json(const ModelConfig *config);

#endif
