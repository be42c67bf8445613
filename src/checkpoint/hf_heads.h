/* Attention heads that were pruned, as config.json has them: "pruned_heads", for each layer a list of their
 * numbers, with the number of heads that there were before in the usual field. Tensors have only what is
 * left. In weft every layer has as many heads. */
#ifndef WEFT_CHECKPOINT_HF_HEADS_H
#define WEFT_CHECKPOINT_HF_HEADS_H

#include "base/json.h"
#include "model/config.h"

/* Turns the heads there were into those that are left; nothing where the field is absent or empty. */
MUST_USE Status pruned_heads_read(const json_t *json, const char *from, ModelConfig *config);
/* The heads there were. */
int64_t pruned_heads_before(const ModelConfig *config);
/* The field, or NULL without memory. Which ones are gone is not known: the last ones are named, and readers
 * count them. */
json_t *pruned_heads_json(const ModelConfig *config);

#endif
