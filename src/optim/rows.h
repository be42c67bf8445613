/* The rows of the table of optimizers, one file each. */
#ifndef WEFT_OPTIM_ROWS_H
#define WEFT_OPTIM_ROWS_H

#include "optim/optim.h"

extern const Optimizer optim_adamw, optim_lion, optim_sgd, optim_muon;

/* AdamW's step, also for the parameters that another optimizer leaves to it. */
MUST_USE Status adamw(Exec *exec, const OptimSpec *spec, const OptimStep *step, const OptimPart *part,
                      int parts);

#endif
