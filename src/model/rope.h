/* Rotary position embeddings: the table of cosines and sines that rope_forward takes. */
#ifndef WEFT_MODEL_ROPE_H
#define WEFT_MODEL_ROPE_H

#include "device/device.h"
#include "model/config.h"

/* Frequency of each of the D / 2 pairs of a head, as transformers computes it. */
void rope_frequencies(const ModelConfig *config, float *ret_frequency);
/* Allocates the table for positions 0 .. rows - 1, fp32 (rows,D): cosines, then sines. Does nothing for
 * models without rotary embeddings. */
MUST_USE Status rope_table_new(const ModelConfig *config, int64_t rows, Device *device, Stream *stream,
                               Buffer *ret_buffer, Tensor *ret_table);

#endif
