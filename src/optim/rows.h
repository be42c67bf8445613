/* The rows of the table of optimizers, one file each. */
#ifndef WEFT_OPTIM_ROWS_H
#define WEFT_OPTIM_ROWS_H

#include "optim/optim.h"

extern const Optimizer optim_adamw;

#endif
