/* The blocks that models are made of. */
#ifndef WEFT_MODEL_PARTS_BLOCKS_H
#define WEFT_MODEL_PARTS_BLOCKS_H

#include "model/model.h"

extern const BlockOps block_ops_embed, block_ops_layer; /* every family's */
extern const BlockOps block_ops_lm_output;              /* final norm, next token */
extern const BlockOps block_ops_encoder_output; /* masked tokens, next sentence, span, classification */

/* Adds the adapters (lora.h) of a layer's matrices that are targets. */
MUST_USE Status describe_lora(const Block *block, ParamList *list, const LoraTarget *target, int count);

#endif
