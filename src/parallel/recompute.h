/* Activation checkpointing: which activations are saved for backward and which are recomputed. */
#ifndef WEFT_PARALLEL_RECOMPUTE_H
#define WEFT_PARALLEL_RECOMPUTE_H

#include "base/status.h"

typedef enum {
    RECOMPUTE_NONE,      /* save everything */
    RECOMPUTE_SELECTIVE, /* recompute cheap results (norms, activation functions) */
    RECOMPUTE_BLOCK,     /* save a block's input only and rerun its forward before its backward */
} Recompute;

MUST_USE Status recompute_parse(const char *name, Recompute *ret_mode);

#endif
