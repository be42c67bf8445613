/* Curves are arrays of at most CURVE_POINTS points, sorted by work and interpolated in log-log space. */
#include "plan/kernel_curve.h"

#include <math.h>
#include <string.h>

/* Per-output overheads on Neoverse-V1 cores, expressed as the number of multiply-adds that take as long;
 * found by comparing inner dimensions of 32 and 64 with those of 128 and more. */
enum { OUTPUT_TERMS = 12, EXPONENTIAL_TERMS = 64 };

double kernel_curve_work(const KernelCurves *curves, KernelId kernel, double flops, double bytes,
                         const double size[OP_SIZES]) {
    switch (kernel_info(kernel)->work) {
    case KERNEL_WORK_MATMUL:
        return (size[2] > 0 ? flops * (1 + OUTPUT_TERMS / size[2]) : flops) + curves->balance * bytes;
    case KERNEL_WORK_FP8: return flops;
    case KERNEL_WORK_ATTENTION: return size[2] > 0 ? flops * (1 + EXPONENTIAL_TERMS / size[2]) : flops;
    default: return bytes;
    }
}

double kernel_curve_seconds(const KernelCurve *curve, double work) {
    int last = curve->count - 1, at = 0;
    if (work <= curve->work[0]) return curve->seconds[0] * work / curve->work[0];
    if (work >= curve->work[last]) return curve->seconds[last] * work / curve->work[last];
    while (curve->work[at + 1] < work) at++;
    double part = log(work / curve->work[at]) / log(curve->work[at + 1] / curve->work[at]);
    return curve->seconds[at] * pow(curve->seconds[at + 1] / curve->seconds[at], part);
}

static void merge_closest(KernelCurve *curve) {
    int at = 0;
    for (int i = 1; i + 1 < curve->count; i++)
        if (curve->work[i + 1] / curve->work[i] < curve->work[at + 1] / curve->work[at]) at = i;
    curve->work[at] = sqrt(curve->work[at] * curve->work[at + 1]);
    curve->seconds[at] = sqrt(curve->seconds[at] * curve->seconds[at + 1]);
    for (int i = at + 1; i + 1 < curve->count; i++) {
        curve->work[i] = curve->work[i + 1];
        curve->seconds[i] = curve->seconds[i + 1];
    }
    curve->count--;
}

void kernel_curve_add(KernelCurve *curve, double work, double seconds) {
    if (curve->count == CURVE_POINTS) merge_closest(curve);
    int at = curve->count++;
    for (; at > 0 && curve->work[at - 1] > work; at--) {
        curve->work[at] = curve->work[at - 1];
        curve->seconds[at] = curve->seconds[at - 1];
    }
    curve->work[at] = work;
    curve->seconds[at] = seconds;
}

/* ---- variants ---- */

static const char *const trait_names[] = {"act", "dropout", "partial", "delayed", "quantized"}; /* by bit */

enum { TRAITS = sizeof trait_names / sizeof *trait_names };

_Static_assert(OP_VARIANTS == 1 << TRAITS, "a name per trait");

KernelCurve *kernel_curves_add(KernelCurves *curves, int kernel, unsigned traits) {
    uint8_t *at = &curves->at[kernel][traits];
    if (!*at && curves->count == CURVES) return NULL;
    if (!*at) *at = (uint8_t)++curves->count;
    return &curves->curve[*at - 1];
}

/* Drops traits in the order of how little they matter. */
const KernelCurve *kernel_curves_find(const KernelCurves *curves, int kernel, unsigned traits) {
    const unsigned partial = OP_PARTIAL, quantized = partial | OP_QUANTIZED, act = quantized | OP_ACT;
    const unsigned keep[] = {~0u, ~partial, ~quantized, ~act, ~(act | OP_DELAYED), 0};
    for (size_t i = 0; i < sizeof keep / sizeof *keep; i++) {
        int at = curves->at[kernel][traits & keep[i]];
        if (at) return &curves->curve[at - 1];
    }
    return NULL;
}

/* ---- JSON ---- */

static const char balance_key[] = "flops_per_byte";

enum { VARIANT_NAME = 96 };

static const char *variant_name(int kernel, unsigned traits, char name[VARIANT_NAME]) {
    int used = snprintf(name, VARIANT_NAME, "%s", kernel_name((KernelId)kernel));
    for (int i = 0; i < TRAITS; i++)
        if (traits & 1u << i)
            used += snprintf(name + used, VARIANT_NAME - (size_t)used, "+%s", trait_names[i]);
    return name;
}

static bool variant_find(const char *name, int *ret_kernel, unsigned *ret_traits) {
    char known[VARIANT_NAME];
    for (int kernel = 0; kernel < KERNEL_COUNT; kernel++) {
        size_t length = strlen(kernel_name((KernelId)kernel));
        if (strncmp(name, kernel_name((KernelId)kernel), length) || (name[length] && name[length] != '+'))
            continue;
        for (unsigned traits = 0; traits < OP_VARIANTS; traits++)
            if (!strcmp(name, variant_name(kernel, traits, known))) {
                *ret_kernel = kernel;
                *ret_traits = traits;
                return true;
            }
    }
    return false;
}

static Status read_points(const json_t *list, const char *from, const char *path, const char *name,
                          KernelCurve *curve) {
    size_t count = json_array_size(list);
    if (count < 1 || count > CURVE_POINTS)
        return FAILED("%s: '%s.%s' has %zu points; expected 1 to %d of the form [work, seconds]", from, path,
                      name, count, CURVE_POINTS);
    for (size_t i = 0; i < count; i++) {
        const json_t *point = json_array_get(list, i);
        double work = json_number_value(json_array_get(point, 0));
        double seconds = json_number_value(json_array_get(point, 1));
        bool valid =
            json_array_size(point) == 2 && work >= 1 && work < 1e30 && seconds > 1e-12 && seconds < 1e9;
        if (!valid || (i && work <= curve->work[i - 1]))
            return FAILED(
                "%s: '%s.%s': point %zu is invalid; expected [work, seconds] with ascending work, 1 or more, "
                "and seconds above 1e-12",
                from, path, name, i + 1);
        curve->work[i] = work;
        curve->seconds[i] = seconds;
    }
    curve->count = (int)count;
    return OK;
}

Status kernel_curves_read(const json_t *object, const char *from, const char *path, KernelCurves *curves) {
    const char *name;
    json_t *list;
    if (!json_is_object(object))
        return FAILED("%s: '%s' must be an object with a list of points per kernel", from, path);
    json_object_foreach((json_t *)(uintptr_t)object, name, list) {
        int kernel;
        unsigned traits;
        if (!strcmp(name, balance_key)) {
            curves->balance = json_number_value(list);
            if (json_is_number(list) && curves->balance >= 0 && curves->balance < 1e9) continue;
            return FAILED("%s: '%s.%s' must be a number from 0 to 1e9", from, path, name);
        }
        if (!variant_find(name, &kernel, &traits))
            return FAILED("%s: '%s.%s': unknown kernel", from, path, name);
        KernelCurve *curve = kernel_curves_add(curves, kernel, traits);
        if (!curve) return FAILED("%s: '%s' has more than %d kernels", from, path, CURVES);
        TRY(read_points(list, from, path, name, curve));
    }
    return OK;
}

json_t *kernel_curves_json(const KernelCurves *curves) {
    json_t *object = json_object();
    if (curves->balance > 0) json_object_set_new(object, balance_key, json_real(curves->balance));
    for (int kernel = 0; kernel < KERNEL_COUNT; kernel++)
        for (unsigned traits = 0; traits < OP_VARIANTS; traits++) {
            int at = curves->at[kernel][traits];
            const KernelCurve *curve = at ? &curves->curve[at - 1] : NULL;
            char name[VARIANT_NAME];
            if (!curve || !curve->count) continue;
            json_t *list = json_array();
            for (int i = 0; i < curve->count; i++)
                json_array_append_new(list, json_pack("[f, f]", curve->work[i], curve->seconds[i]));
            json_object_set_new(object, variant_name(kernel, traits, name), list);
        }
    return object;
}
