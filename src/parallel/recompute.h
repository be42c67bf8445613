/* What backward finds saved and what it computes again. */
#ifndef WEFT_PARALLEL_RECOMPUTE_H
#define WEFT_PARALLEL_RECOMPUTE_H

#include "base/status.h"

typedef enum {
    RECOMPUTE_NONE,      /* everything backward needs is kept */
    RECOMPUTE_SELECTIVE, /* cheap results (norms, activations) are computed again */
    RECOMPUTE_BLOCK,     /* only a block's input is kept; its forward runs again before its backward */
} Recompute;

MUST_USE Status recompute_parse(const char *name, Recompute *ret_mode);

#endif
