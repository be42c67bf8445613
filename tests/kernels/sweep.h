/* Interface between the sweep's driver (test_sweep.c) and its cases (sweep_*.c). */
#ifndef WEFT_TESTS_KERNELS_SWEEP_H
#define WEFT_TESTS_KERNELS_SWEEP_H

#include "kit.h"

typedef struct Args {
    int64_t n[5];
    unsigned flags;   /* select masks, aliases and absent tensors; the meaning depends on the case */
    double tolerance; /* relative to the output's norm, in addition to one ulp of 16-bit types; 0: exact */
} Args;

/* Creates the inputs, calls one kernel and registers the outputs. */
typedef void (*Body)(Kit *kit, const Args *args);

typedef struct Sweep Sweep;

/* Runs the case with the reference and the backend, and fails the test if they differ. */
void compare(Sweep *sweep, Body body, Args args);

/* Cases (B, T, C) for widths C around vector widths and tile sizes, cycling through the values below `flags`.
 */
void over_rows(Sweep *sweep, Body body, unsigned flags, double tolerance);
/* Cases (count), each with all values below `flags`. */
void over_counts(Sweep *sweep, Body body, unsigned flags, double tolerance);
/* Cases (M, N, K), cycling through the values below `flags`. */
void over_gemms(Sweep *sweep, Body body, unsigned flags);

/* Exchanges fp32 parameters for their halves, or back. */
void exchange_halves(Tensor param, Tensor upper, Tensor rest, bool back);

/* Dropout on a part of a larger tensor, at an offset and in a step that need more than 32 bits. */
Dropout dropout_of(Kit *kit, float p, int64_t first, int64_t second);

/* Replaces the column sums of x, as this backend rounded it, by `instead`, of about their size. What remains
 * does not depend on that rounding. */
void replace_columns(Tensor sums, Tensor x, double instead);

static const double norm_wise = 1e-5;
static const float rates[] = {0, 0.1f, 0.5f, 0.99f};

#define KERNEL(id, name, ...) void name##_sweep(Sweep *sweep);
#include "kernels/ops.def"

#endif
