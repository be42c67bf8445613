/* The matmuls of a layer. Only this part knows how they are computed: in the activations' type, in fp8, with
 * fake-quantized operands (model/parts/fake_quant.h), with adapters (model/parts/lora.h), or, in inference,
 * with weights that are stored as int8, int4 or sparse, which linear_forward accepts like any other. */
#ifndef WEFT_MODEL_PARTS_LINEAR_H
#define WEFT_MODEL_PARTS_LINEAR_H

#include "model/model.h"

/* A linear layer's parameters, or their gradients. */
typedef struct Linear {
    Tensor weight, bias; /* (out,in) (out) */
    bool unwritten;      /* a gradient: the weight's is stored, not added, see Pass.grad_unwritten */
    int id;              /* of the weight; QKV_W also for q, k and v together. 0: no gradients are wanted */
} Linear;

/* A linear layer's input: x or, if there is an activation, act(pre). fp8 does not need x in the latter case,
 * nor if it is saved quantized. */
typedef struct LinearInput {
    Tensor x, pre;
    Act act;
    bool cut;       /* the input dim is split across tensor-parallel ranks */
    bool add;       /* backward: add to the input gradient */
    Tensor dx_sums; /* backward, optional, not in fp8: += column sums of the input gradient */
    /* fp8: */
    Fp8Matmul matmul;
    Fp8Input quantized;      /* quantized for backward; absent where it is quantized again */
    Fp8Gradient next, known; /* backward: see linear_fp8_backward */
    Dropout dropout;         /* backward: of the output, not yet applied to its gradient; see linear_drops */
} LinearInput;

/* A block's views of a linear layer: its weight has the number `id`, its bias, if any, the next one. */
Linear linear_of(const Block *block, const Tensor *views, int id);
/* The same for its gradients. */
Linear linear_grads(const Block *block, const Pass *pass, int id);

/* Whether all matmuls of a layer but those of experts and routers run in fp8. */
bool layer_in_fp8(const Block *block, Shape shape);
/* How operands of a layer, or of the head (layer -1), are scaled. */
Fp8Scale linear_scale(const Block *block, const Pass *pass, int layer, Fp8Matmul matmul, Fp8Operand operand);
Fp8Scales linear_scales(const Block *block, const Pass *pass, int layer, Fp8Matmul matmul);
/* Whether a norm can quantize its output for the matmul that reads it and keeps it as `quantized` (delayed
 * scaling); only then is `plain`, the memory for it (rows,width), stored in quantized. */
bool linear_takes_fp8(const Block *block, const Pass *pass, Fp8Input *quantized, void *plain);
/* Memory for an input that is saved quantized. */
Fp8Input linear_keep(Bump *bump, int64_t rows, int64_t width);
/* Reserves workspace at the start of a layer's scratch. */
void linear_layout(const Block *block, Shape shape, Bump *scratch);

/* y = input * weight^T + bias. */
MUST_USE Status linear_run(const Block *block, Pass *pass, Tensor y, LinearInput in, Linear p);
/* act (rows) = the activation of pre = input * weight^T + bias; pre may be absent. Not in fp8, which computes
 * the activation while it quantizes the next input. */
MUST_USE Status linear_run_act(const Block *block, Pass *pass, Tensor act, Tensor pre, LinearInput in,
                               Linear p, Act kind);
/* Whether linear_back reads the layer's input for these gradients. */
bool linear_reads_input(const Block *block, Linear g);
/* Whether linear_back applies the dropout of its output, rather than its caller. Not in a layer with frozen
 * parameters: the gradient of a bias alone is summed without the matmul. */
bool linear_drops(const Block *block, const Pass *pass);
/* Computes dx if present, and adds to the gradients g that are present: those of frozen parameters are not.
 */
MUST_USE Status linear_back(const Block *block, Pass *pass, Tensor dx, Linear g, Tensor dy, Linear p,
                            LinearInput in);

#endif
