/* Filling the part of a parameter that a store holds. */
#ifndef WEFT_CHECKPOINT_HF_LOAD_H
#define WEFT_CHECKPOINT_HF_LOAD_H

#include "checkpoint/hf_names.h"
#include "checkpoint/safetensors.h"
#include "model/model.h"

/* From the `parts` tensors that hold the parameter, whose shapes are right; nothing where the store has
 * none of it. */
MUST_USE Status store_read_slot(Store *store, ParamRef ref, const HfTensor *wanted,
                                const SafeTensor *const *tensor, int parts, Stream *stream);

#endif
