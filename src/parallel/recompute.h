/* Activation checkpointing: which activations are saved for backward and which are recomputed. */
#ifndef WEFT_PARALLEL_RECOMPUTE_H
#define WEFT_PARALLEL_RECOMPUTE_H

typedef enum {
    RECOMPUTE_NONE,      /* save everything */
    RECOMPUTE_SELECTIVE, /* recompute cheap results (norms, activation functions) */
    RECOMPUTE_BLOCK,     /* save a block's input only and rerun its forward before its backward */
} Recompute;

extern const char *const recompute_names[]; /* ends with NULL */

#endif
