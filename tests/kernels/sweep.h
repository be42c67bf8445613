/* Interface between the sweep's driver (test_sweep.c) and its cases (sweep_*.c). */
#ifndef WEFT_TESTS_KERNELS_SWEEP_H
#define WEFT_TESTS_KERNELS_SWEEP_H

#include "kit.h"

/* Under the sanitizers a subset of the cases is enough: out-of-bounds accesses show up in many of them. */
#if defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

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

/* Dropout on a part of a larger tensor, at an offset that needs more than 32 bits. */
Dropout dropout_of(Kit *kit, float p, int64_t first, int64_t second);

static const double norm_wise = 1e-5;
static const float rates[] = {0, 0.1f, 0.5f, 0.99f};

void linear_forward_sweep(Sweep *sweep);
void linear_backward_input_sweep(Sweep *sweep);
void linear_backward_weight_sweep(Sweep *sweep);
void linear_fp8_forward_sweep(Sweep *sweep);
void linear_fp8_backward_sweep(Sweep *sweep);
void linear_int8_forward_sweep(Sweep *sweep);
void linear_sparse_forward_sweep(Sweep *sweep);
void row_largest_sweep(Sweep *sweep);
void round_int8_sweep(Sweep *sweep);
void round_int4_sweep(Sweep *sweep);
void act_forward_sweep(Sweep *sweep);
void act_backward_sweep(Sweep *sweep);
void layernorm_forward_sweep(Sweep *sweep);
void layernorm_backward_sweep(Sweep *sweep);
void dropout_add_forward_sweep(Sweep *sweep);
void dropout_backward_sweep(Sweep *sweep);
void dropout_add_norm_forward_sweep(Sweep *sweep);
void attention_forward_sweep(Sweep *sweep);
void attention_backward_sweep(Sweep *sweep);
void attention_decode_sweep(Sweep *sweep);
void embedding_forward_sweep(Sweep *sweep);
void embedding_backward_sweep(Sweep *sweep);
void xent_partial_sweep(Sweep *sweep);
void xent_combine_sweep(Sweep *sweep);
void xent_finish_sweep(Sweep *sweep);
void xent_loss_sweep(Sweep *sweep);
void mse_loss_sweep(Sweep *sweep);
void bce_loss_sweep(Sweep *sweep);
void argmax_sweep(Sweep *sweep);
void xent_hits_sweep(Sweep *sweep);
void gather_rows_sweep(Sweep *sweep);
void scatter_add_rows_sweep(Sweep *sweep);
void transpose_sweep(Sweep *sweep);
void fill_sweep(Sweep *sweep);
void convert_sweep(Sweep *sweep);
void add_sweep(Sweep *sweep);
void scale_sweep(Sweep *sweep);
void sum_sweep(Sweep *sweep);
void sum_squares_sweep(Sweep *sweep);
void sum_squares_parts_sweep(Sweep *sweep);
void sketch_sweep(Sweep *sweep);
void adamw_step_sweep(Sweep *sweep);

#endif
