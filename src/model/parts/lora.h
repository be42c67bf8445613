/* Low-rank adapters (LoRA) of a layer's matrices: beside a frozen matrix W, two small ones are trained:
 *
 *   y = x W^T + scale * dropout(x) A^T B^T        A (r,in), B (out,r), which is zero at first
 *
 * Matrices that are computed as one have an adapter for each tensor of the family's files: q, k and v, or
 * gate and up. Their A's follow one another in memory, so that all products x A^T are one matmul; their B's
 * are copied to the diagonal of one matrix. Tensor parallelism splits A or B like the side of W that it is
 * on. The other of the two is replicated, and each rank computes a part of its gradient (ParamDesc.partial).
 */
#ifndef WEFT_MODEL_PARTS_LORA_H
#define WEFT_MODEL_PARTS_LORA_H

#include "model/parts/layer.h"

/* Whether a layer has an adapter of the matrices that `id` stands for in a Linear. */
bool lora_has(const Block *block, int id);
/* Reserves workspace at the start of a layer's scratch; nothing without adapters. */
void lora_layout(const Block *block, Shape shape, Bump *scratch);

/* y += the adapters' product. `cut`: the input dim is split across tensor-parallel ranks. */
MUST_USE Status lora_forward(const Block *block, Pass *pass, int id, bool cut, Tensor y, Tensor x);
/* Adds to the adapters' gradients, if `grads`, and then, if dx is present, computes their part of the input
 * gradient, dx [+]= (...) * act'(pre), with `add`, act and pre of `in`. x and pre may be dx. */
MUST_USE Status lora_backward(const Block *block, Pass *pass, int id, bool grads, Tensor dx, Tensor dy,
                              const LinearInput *in);

#endif
