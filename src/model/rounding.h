/* Training that gets used to weights of few bits: a layer computes with what a quantized model would compute
 * with, rounded and back, and gradients go through the rounding as if it were not there.
 *
 *   int8   weights with a scale for each output
 *   int4   weights with a step for each INT4_GROUP inputs of an output
 *
 * and with either, what they are multiplied by in int8 with a scale for each row.
 *
 * Rounded tensors are made when they are needed, forward and backward, and kept nowhere. Scales are those of
 * whole rows: where tensor ranks have parts of a row, they agree on its largest number, and int4's groups
 * divide the parts; so a run is the same in every layout. */
#ifndef WEFT_MODEL_ROUNDING_H
#define WEFT_MODEL_ROUNDING_H

#include "model/model.h"

/* Room at the beginning of a layer's scratch; none where nothing is rounded. */
void rounding_layout(const Block *block, Shape shape, Bump *scratch);
/* *weights rounded; `cut`: tensor ranks have parts of its rows. Valid until the next call. */
MUST_USE Status rounding_weights(const Block *block, Pass *pass, bool cut, Tensor *weights);
/* The same for a product's input. */
MUST_USE Status rounding_input(const Block *block, Pass *pass, bool cut, Tensor *input);

#endif
