/* Finds where NaN or Inf first appeared, once training has diverged. */
#ifndef WEFT_TRAIN_NONFINITE_H
#define WEFT_TRAIN_NONFINITE_H

#include "train/runner.h"

enum { NONFINITE_TEXT = 64 + PARAM_NAME };

/* Searches the weights in the order of forward, then the gradients in the order of backward, and names the
 * first that is not finite: "weight layer.0.attn.qkv.weight contains NaN". The text is empty if all are
 * finite. Collective; all ranks get the same text. */
MUST_USE Status nonfinite_find(Runner *runner, char text[NONFINITE_TEXT], bool *ret_in_weights);

#endif
