/* The sweep: compares every kernel of a backend with the reference, over many shapes and all compute types.
 *
 * A case is a function that creates its inputs (the same for each kit), calls one kernel and registers the
 * outputs. compare() runs it with the reference and with the backend on one, two and three threads (always
 * two if GEMMs are those of a BLAS library). Outputs must agree with the reference relative to their norm,
 * and with each other bit for bit. Under the sanitizers, which are slow, the backend runs once, on two
 * threads. A case's flags select masks, aliases and absent tensors; the lists of sizes cycle through all of
 * them. ops.def requires a sweep of every kernel.
 *
 * A 16-bit result may be off by one ulp if a different order of addition changes the rounding. This must be
 * rare, and the error beyond one ulp must be as small as in fp32. bf16 attention on x86-64 with bf16
 * instructions rounds probabilities and their gradients, so there the tolerance is `inside_bf16_cpu`.
 *
 * On a GPU (WEFT_TEST_DEVICE=cuda), each kernel runs twice, with all cases in all types. Tensor cores
 * accumulate fp32 in a different order, so the tolerance is doubled. 16-bit attention rounds probabilities
 * and their gradients to 16 bits for the tensor cores, and fused layers round other values than separate
 * ones, so the tolerance is `inside_16` and differing elements are not counted. The sweep continues after a
 * failure and reports up to REPORTS failures per kernel. */
#include <math.h>

#include "kernels/cpu/blas.h"
#include "sweep.h"

enum { KIT_REF, KIT_TWO, KIT_OTHER, KIT_THREE, KITS, REPORTS = 10 };

static const double inside_16[] = {[DT_BF16] = 0x1p-7, [DT_F16] = 0x1p-10}, inside_bf16_cpu = 0x1p-10;

struct Sweep {
    Kit kit[KITS];
    KernelId id;
    int kits;
    bool is_reference; /* the backend has no kernel of its own */
    int64_t turn, cases, failures;
};

static void fail_case(Sweep *sweep, const Args *args, const char *name, const char *what) {
    char text[400];
    snprintf(text, sizeof text, "%s in %s, sizes %lld %lld %lld %lld %lld, flags %#x: %s: %s",
             kernel_name(sweep->id), dtype_name(sweep->kit[0].compute), (long long)args->n[0],
             (long long)args->n[1], (long long)args->n[2], (long long)args->n[3], (long long)args->n[4],
             args->flags, name, what);
    if (!test_on_cuda()) fail_msg("%s", text);
    if (sweep->failures++ < REPORTS) print_error("%s\n", text);
}

static bool is_rounded_inside(const Sweep *sweep, const Args *args) {
    bool training = sweep->id == KERNEL_ATTENTION_FORWARD || sweep->id == KERNEL_ATTENTION_BACKWARD;
    DType compute = sweep->kit[0].compute;
    if (test_on_cuda() && sweep->id == KERNEL_LINEAR_FUSED_FORWARD) return true;
    if (test_on_cuda()) return (training || sweep->id == KERNEL_ATTENTION_DECODE) && compute != DT_F32;
    bool products = !strcmp(kernels_cpu_bf16(), "amx") || !strcmp(kernels_cpu_bf16(), "avx512-bf16");
    return training && compute == DT_BF16 && products && args->n[3] % 32 == 0;
}

/* Tensor cores accumulate FP8 products with fewer bits than fp32. */
static bool has_coarse_accumulation(const Sweep *sweep) {
    return test_on_cuda() &&
           (sweep->id == KERNEL_LINEAR_FP8_FORWARD || sweep->id == KERNEL_LINEAR_FP8_BACKWARD);
}

/* Tolerance relative to the output's norm. */
static double tolerance_of(const Sweep *sweep, const Args *args) {
    DType compute = sweep->kit[0].compute;
    if (test_on_cuda() && sweep->id == KERNEL_LINEAR_FUSED_FORWARD)
        return 2 * inside_16[compute == DT_F16 ? DT_F16 : DT_BF16]; /* a product of two results if gated */
    if (is_rounded_inside(sweep, args)) return test_on_cuda() ? inside_16[compute] : inside_bf16_cpu;
    return test_on_cuda() ? 2 * args->tolerance : args->tolerance;
}

/* Upper bound of one ulp at this value; 0 for types that must not need it. */
static double ulp_of(DType dtype, double value) {
    switch (dtype) {
    case DT_BF16: return 0x1p-7 * fabs(value);
    case DT_F16: return fmax(0x1p-10 * fabs(value), 0x1p-24);
    case DT_E4M3: return fmax(0x1p-3 * fabs(value), 0x1p-9);
    case DT_E5M2: return fmax(0x1p-2 * fabs(value), 0x1p-16);
    default: return 0;
    }
}

static bool same(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

static bool has_bits(const Output *a, const Output *b) {
    return !memcmp(a->tensor.data, b->tensor.data, tensor_bytes(a->tensor));
}

static double norm_of(Tensor tensor) {
    double squares = 0;
    for (int64_t i = 0; i < tensor_count(tensor); i++) {
        double value = tensor_get(tensor, i);
        if (isfinite(value)) squares += value * value;
    }
    return sqrt(squares);
}

/* NaN and infinity must be at the same positions. An element counts as rounded differently if it differs by
 * more than the tolerance's share per element. */
static void check_output(Sweep *sweep, const Args *args, const Output *got, const Output *want) {
    if (has_bits(got, want)) return;
    int64_t others = 0, count = tensor_count(want->tensor);
    double difference = 0, allowed = tolerance_of(sweep, args) * norm_of(want->tensor);
    double allowed_each = allowed / sqrt((double)count);
    for (int64_t i = 0; i < count; i++) {
        double a = tensor_get(got->tensor, i), b = tensor_get(want->tensor, i);
        if (same(a, b)) continue;
        if (!isfinite(a) || !isfinite(b) || (args->tolerance == 0 && a != b)) {
            char what[100];
            snprintf(what, sizeof what, "%g instead of %g at index %lld", a, b, (long long)i);
            fail_case(sweep, args, got->name, what);
            return;
        }
        double beyond = fmax(0, fabs(a - b) - ulp_of(want->tensor.dtype, b));
        difference += beyond * beyond;
        others += fabs(a - b) > allowed_each;
    }
    /* The oldest GPUs leave GEMMs of few rows to cuBLASLt, which may round twice. */
    if (sweep->id == KERNEL_LINEAR_FORWARD && !kit_has_bf16(&sweep->kit[KIT_TWO])) others = 0;
    char what[100];
    snprintf(what, sizeof what, "%lld of %lld elements are rounded differently", (long long)others,
             (long long)count);
    if (dtype_size(want->tensor.dtype) == 2 && others > 8 + count / 8 && !is_rounded_inside(sweep, args) &&
        !has_coarse_accumulation(sweep))
        fail_case(sweep, args, got->name, what);
    snprintf(what, sizeof what, "error %g exceeds the tolerance %g", sqrt(difference), allowed);
    if (!(sqrt(difference) <= allowed)) fail_case(sweep, args, got->name, what);
}

/* Detects writes past tensors on a GPU, where no sanitizer does. */
static void check_overruns(Sweep *sweep, const Args *args) {
    for (int i = KIT_TWO; i < sweep->kits; i++) {
        int64_t bytes = kit_overruns(&sweep->kit[i]);
        char what[100];
        snprintf(what, sizeof what, "%lld bytes written past the end of tensors", (long long)bytes);
        if (bytes) fail_case(sweep, args, "memory", what);
        if (bytes) sweep->kit[i].blocks = 0; /* report once */
    }
}

/* fp32 runs all cases; on the CPU, bf16 and fp16 each run a different third. Under the sanitizers, which are
 * slow, fp32 also runs a third. Where the reference is compared with itself, a fifth of the cases run its
 * code.
 */
void compare(Sweep *sweep, Body body, Args args) {
    DType compute = sweep->kit[KIT_REF].compute;
    bool another = sweep->turn++ % 3 != (int64_t)compute;
    if (another && (compute != DT_F32 || SANITIZED) && !test_on_cuda()) return;
    if (sweep->is_reference && sweep->cases && sweep->turn % 5) return;
    for (int i = 0; i < sweep->kits; i++) {
        kit_clear(&sweep->kit[i]);
        sweep->kit[i].is_first = i == KIT_REF;
        sweep->kit[i].first = i == KIT_REF ? NULL : &sweep->kit[KIT_REF];
        body(&sweep->kit[i], &args);
    }
    const Kit *ref = &sweep->kit[KIT_REF], *two = &sweep->kit[KIT_TWO];
    for (int o = 0; o < ref->outputs; o++) {
        check_output(sweep, &args, &two->output[o], &ref->output[o]);
        for (int i = KIT_OTHER; i < sweep->kits; i++)
            if (!has_bits(&sweep->kit[i].output[o], &two->output[o]))
                fail_case(sweep, &args, two->output[o].name, "two calls differ");
    }
    check_overruns(sweep, &args);
    sweep->cases++;
}

/* Sizes around vector widths and tile sizes, primes, and a few large ones. */
static const int64_t widths[] = {1,   2,   3,   4,   5,   7,   8,    9,    15,   16,  17,  23,
                                 31,  32,  33,  61,  63,  64,  65,   97,   127,  128, 129, 191,
                                 255, 256, 257, 384, 509, 768, 1000, 1023, 1025, 3072};
enum { WIDTHS = sizeof widths / sizeof *widths };
static const int64_t counts[] = {1,  2,   3,   7,    8,    15,   16,   17,    31,    33,    63,    64,
                                 65, 127, 129, 1000, 1023, 4096, 4097, 16383, 16385, 65537, 262147};
enum { COUNTS = sizeof counts / sizeof *counts };
static const int64_t sides[] = {1, 2, 3, 5, 7, 8, 11, 12, 13, 16, 17, 24, 25, 31, 33, 64, 67};
enum { SIDES = sizeof sides / sizeof *sides };

void over_rows(Sweep *sweep, Body body, unsigned flags, double tolerance) {
    static const int64_t rows[] = {1, 2, 3, 5, 8, 13};
    unsigned turn = 0;
    for (int w = 0; w < WIDTHS; w++)
        for (int r = 0; r < 6; r++)
            compare(sweep, body, (Args){{rows[r], 1 + turn % 3, widths[w]}, turn % flags, tolerance}), turn++;
    for (unsigned f = 0; f < flags; f++) compare(sweep, body, (Args){{37, 11, 771}, f, tolerance});
}

void over_counts(Sweep *sweep, Body body, unsigned flags, double tolerance) {
    for (int c = 0; c < COUNTS; c++)
        for (unsigned f = 0; f < flags; f++) compare(sweep, body, (Args){{counts[c]}, f, tolerance});
}

/* All combinations of M and N from `sides` with two K each, and some larger shapes, as in real layers. */
void over_gemms(Sweep *sweep, Body body, unsigned flags) {
    unsigned turn = 0;
    for (int m = 0; m < SIDES; m++)
        for (int n = 0; n < SIDES; n++)
            for (int k = 0; k < 2; k++, turn++) {
                int64_t K = sides[(m + 2 * n + 5 * k) % SIDES];
                compare(sweep, body, (Args){{sides[m], sides[n], K}, turn % flags, norm_wise});
            }
    static const int64_t larger[][3] = {{1, 768, 768}, {130, 257, 129}, {300, 500, 530}, {97, 4, 1031},
                                        {4, 1031, 48}, {2100, 20, 30},  {3, 8300, 17},   {20, 8300, 30}};
    enum { LARGER = sizeof larger / sizeof *larger };
    for (unsigned f = 0; f < flags || f < LARGER; f++)
        compare(sweep, body,
                (Args){{larger[f % LARGER][0], larger[f % LARGER][1], larger[f % LARGER][2]},
                       f % flags,
                       norm_wise});
}

/* As in the replay of a recording, a GPU finds the step only in memory. */
Dropout dropout_of(Kit *kit, float p, int64_t first, int64_t second) {
    Dropout dropout = {
        .p = p, .key = kit_key(kit), .origin = {1 << 20, 1, 3}, .extent = {first + 2, second + 5}};
    dropout.key.step += (uint64_t)1 << 40;
    if (!kit->cuda) return dropout;
    dropout.step = kit_take(kit, tensor_1d(NULL, DT_I64, 1));
    memcpy(dropout.step.data, &dropout.key.step, sizeof dropout.key.step);
    dropout.key.step = 0;
    return dropout;
}

static void (*const sweeps[KERNEL_COUNT])(Sweep *) = {
#define KERNEL(id, name, ...) [KERNEL_##id] = name##_sweep,
#include "kernels/ops.def"
};

static bool is_reference(const KernelTable *backend, const KernelTable *ref, KernelId id) {
    static const size_t slots[KERNEL_COUNT] = {
#define KERNEL(id, name, ...) [KERNEL_##id] = offsetof(KernelTable, name),
#include "kernels/ops.def"
    };
    return !memcmp((const char *)backend + slots[id], (const char *)ref + slots[id], sizeof(void (*)(void)));
}

/* Returns the number of failures. */
static int64_t sweep_kernel(KernelId id, DType compute) {
    Sweep sweep = {.id = id, .kits = test_on_cuda() ? KIT_OTHER + 1 : SANITIZED ? KIT_TWO + 1 : KITS};
    static const int threads[KITS] = {[KIT_REF] = 1, [KIT_TWO] = 2, [KIT_OTHER] = 1, [KIT_THREE] = 3};
    for (int i = 0; i < sweep.kits; i++) {
        kit_init(&sweep.kit[i], i == KIT_REF ? "ref" : test_kernels(), blas_available() ? 2 : threads[i]);
        sweep.kit[i].compute = compute;
    }
    sweep.is_reference = is_reference(sweep.kit[KIT_TWO].exec.table, sweep.kit[KIT_REF].exec.table, id);
    const bool supported = compute != DT_BF16 || kit_has_bf16(&sweep.kit[sweep.kits - 1]);
    if (supported) sweeps[id](&sweep);
    assert_true(sweep.cases > 0 || !supported);
    for (int i = 0; i < sweep.kits; i++) {
        assert_int_equal(sweep.kit[i].profile.kernel[id].calls, sweep.cases);
        kit_done(&sweep.kit[i]);
    }
    if (sweep.failures)
        print_error("%s in %s: %lld failures in %lld cases\n", kernel_name(id), dtype_name(compute),
                    (long long)sweep.failures, (long long)sweep.cases);
    return sweep.failures;
}

static void test_kernel(void **state) {
    KernelId id = (KernelId)(uintptr_t)*state;
    static const bool on_gpus[KERNEL_COUNT] = {
#define ALL                                                    true
#define CPU                                                    false
#define KERNEL(id, name, phase, work, launches, backends, ...) [KERNEL_##id] = backends,
#include "kernels/ops.def"
#undef ALL
#undef CPU
    };
    if (!on_gpus[id] && test_on_cuda()) skip();
    int64_t failures = 0;
    DType last = SANITIZED ? DT_BF16 : DT_F16; /* the 16-bit types share almost all code */
    for (DType compute = DT_F32; compute <= last; compute++) failures += sweep_kernel(id, compute);
    assert_int_equal(failures, 0);
}

/* An argument such as 'layernorm*' selects kernels. */
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    struct CMUnitTest tests[KERNEL_COUNT];
    for (uintptr_t id = 0; id < KERNEL_COUNT; id++)
        tests[id] = (struct CMUnitTest){
            .name = kernel_name((KernelId)id), .test_func = test_kernel, .initial_state = (void *)id};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
