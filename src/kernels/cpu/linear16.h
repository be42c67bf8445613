/* Linear layers in bf16 and fp16; see linear.c, and kernels.h for the types. */
#ifndef WEFT_KERNELS_CPU_LINEAR16_H
#define WEFT_KERNELS_CPU_LINEAR16_H

#include "kernels/cpu/variant.h"

MUST_USE Status VARIANT(linear16_forward)(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b,
                                          Act act);
MUST_USE Status VARIANT(linear16_backward_input)(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Tensor w,
                                                 Act act, Tensor pre, bool accumulate);
MUST_USE Status VARIANT(linear16_backward_weight)(Stream *stream, Tensor dw, Tensor db, Tensor dy, Tensor x,
                                                  bool accumulate);

#define linear16_forward         VARIANT(linear16_forward)
#define linear16_backward_input  VARIANT(linear16_backward_input)
#define linear16_backward_weight VARIANT(linear16_backward_weight)

#endif
