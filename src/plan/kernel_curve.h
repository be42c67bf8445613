/* Kernels as they were measured: what a call takes, by how much it has to do.
 *
 * The work of a call is its operations where it is a product or attention, and its bytes elsewhere, as
 * profiles count them. To operations are added those that show in short sums: what a product does once for
 * each of its outputs, and attention's exponentials, one for each pair of positions. Between two measured
 * sizes a curve is a straight line of logarithms; beyond them time grows with the work. */
#ifndef WEFT_PLAN_KERNEL_CURVE_H
#define WEFT_PLAN_KERNEL_CURVE_H

#include "base/json.h"
#include "device/op_log.h"
#include "kernels/profile.h"

enum { CURVE_POINTS = 24 };

typedef struct KernelCurve {
    int count;
    double work[CURVE_POINTS], seconds[CURVE_POINTS]; /* rising work */
} KernelCurve;

typedef struct KernelCurves {
    KernelCurve kernel[KERNEL_COUNT];
} KernelCurves;

/* `size` as a Note has it: a product's M, N, K; attention's heads, positions and width of a head. */
double kernel_curve_work(KernelId kernel, double flops, double bytes, const double size[OP_SIZES]);
/* The curve has points. */
double kernel_curve_seconds(const KernelCurve *curve, double work);
/* Puts a point in; where the curve is full, the two that are closest become one. */
void kernel_curve_add(KernelCurve *curve, double work, double seconds);

/* {"linear_forward": [[work, seconds], ...], ...}; `path` is the section's in messages. */
MUST_USE Status kernel_curves_read(const json_t *object, const char *from, const char *path,
                                   KernelCurves *curves);
json_t *kernel_curves_json(const KernelCurves *curves);

#endif
