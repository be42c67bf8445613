/* Measured kernel times as a function of work.
 *
 * The work of a call is its FLOPs for GEMMs and attention, and its bytes for other kernels, as profiles count
 * them. FLOPs include two overheads that matter for short inner dimensions: a fixed cost per GEMM output, and
 * attention's exponentials, one per pair of positions. On CPUs they also include the time to move a GEMM's
 * operands, which matters for few rows: weights are read from memory in every call. Between measured points,
 * time is interpolated linearly in log-log space; outside of them it is proportional to the work.
 *
 * A kernel with dropout, with an activation, or attention that not every library serves, is a variant with
 * its own curve. In files it is named "attention_forward+dropout". */
#ifndef WEFT_PLAN_KERNEL_CURVE_H
#define WEFT_PLAN_KERNEL_CURVE_H

#include "base/json.h"
#include "device/op_log.h"
#include "kernels/profile.h"

enum { CURVE_POINTS = 24, CURVES = 96 };

typedef struct KernelCurve {
    int count;
    double work[CURVE_POINTS], seconds[CURVE_POINTS]; /* ascending work */
} KernelCurve;

/* Curves of kernels, one per variant: a kernel with some of the traits of device/op_log.h. */
typedef struct KernelCurves {
    double balance; /* FLOPs in the time of moving a byte, which GEMMs do in addition; 0: at the same time */
    int count;
    uint8_t at[KERNEL_COUNT][OP_VARIANTS]; /* number of its curve, from 1; 0: not measured */
    KernelCurve curve[CURVES];
} KernelCurves;

/* `size` is as in OpRecord: M, N, K of a GEMM; heads, positions and head size of attention. */
double kernel_curve_work(const KernelCurves *curves, KernelId kernel, double flops, double bytes,
                         const double size[OP_SIZES]);
/* The curve must have at least one point. */
double kernel_curve_seconds(const KernelCurve *curve, double work);
/* Adds a point; if the curve is full, the two closest points are merged first. */
void kernel_curve_add(KernelCurve *curve, double work, double seconds);

/* The curve of a variant, added if new; NULL if there is no room. */
KernelCurve *kernel_curves_add(KernelCurves *curves, int kernel, unsigned traits);
/* The curve of a variant or of one with fewer traits; NULL if none of them was measured. Older
 * files have one curve per kernel. */
const KernelCurve *kernel_curves_find(const KernelCurves *curves, int kernel, unsigned traits);

/* {"flops_per_byte": 10, "linear_forward": [[work, seconds], ...], ...}; `from` and `path` are the file and
 * the section in messages. */
MUST_USE Status kernel_curves_read(const json_t *object, const char *from, const char *path,
                                   KernelCurves *curves);
json_t *kernel_curves_json(const KernelCurves *curves);

#endif
