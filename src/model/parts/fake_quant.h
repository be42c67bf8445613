/* Quantization-aware training (QAT): layers compute with fake-quantized (quantized, then dequantized) weights
 * and inputs, and gradients pass straight through the quantization. The routers of mixtures are not
 * quantized.
 *
 *   int8   weights with one scale per output
 *   int4   weights with one scale per group of INT4_GROUP inputs of an output
 *
 * In both cases the inputs are int8 with one scale per row.
 *
 * Fake-quantized tensors are recomputed whenever needed, in forward and backward, and never saved. Scales
 * refer to complete rows: if a row is split across tensor-parallel ranks, they all-reduce its maximum, and
 * each local part is a whole number of int4 groups. Hence results do not depend on the layout. */
#ifndef WEFT_MODEL_PARTS_FAKE_QUANT_H
#define WEFT_MODEL_PARTS_FAKE_QUANT_H

#include "model/model.h"

/* Reserves workspace at the start of a layer's scratch; nothing without QAT. */
void fake_quant_layout(const Block *block, Shape shape, Bump *scratch);
/* Replaces *weights by its fake-quantized copy, valid until the next call. `split`: its rows are split across
 * tensor-parallel ranks. Does nothing without QAT. */
MUST_USE Status fake_quant_weights(const Block *block, Pass *pass, bool split, Tensor *weights);
/* The same for the input of a matmul. */
MUST_USE Status fake_quant_input(const Block *block, Pass *pass, bool split, Tensor *input);
/* The same for rows that have a place of their own, and one for their largest magnitudes. */
MUST_USE Status fake_quant_rows(Pass *pass, bool split, void *rows, Tensor largest, Tensor *input);

#endif
