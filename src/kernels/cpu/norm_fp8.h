#ifndef WEFT_KERNELS_CPU_NORM_FP8_H
#define WEFT_KERNELS_CPU_NORM_FP8_H

#include "kernels/backend.h"

void norm_fp8_override(KernelTable *table);

#endif
