/* Reading the part of a parameter that a store contains. */
#ifndef WEFT_CHECKPOINT_HF_LOAD_H
#define WEFT_CHECKPOINT_HF_LOAD_H

#include "checkpoint/hf_names.h"
#include "checkpoint/root_disk.h"
#include "checkpoint/safetensors.h"
#include "model/model.h"

/* Reads from the `parts` tensors that make up the parameter (wanted[i] describes tensor[i]; shapes are
 * checked by the caller). Does nothing if the store has no part of the parameter. `disk`: only rank 0 has the
 * tensors' data, and the call is collective; else NULL. */
MUST_USE Status store_read_slot(Store *store, ParamRef ref, const HfTensor *wanted,
                                const SafeTensor *const *tensor, int parts, const RootDisk *disk,
                                Stream *stream);

#endif
