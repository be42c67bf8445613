/* Chooses the instruction set of the cpu backend for the CPU it runs on, or a lower one that WEFT_CPU
 * selects.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"

#include "kernels/cpu/micro16.h"
#include "kernels/cpu/micro8.h"
#include "kernels/cpu/norm_fp8.h"
#include "kernels/cpu/variant.h"

#if defined(__x86_64__)

#include <cpuid.h>

void table_override_avx2(KernelTable *table);
void table_override_avx512(KernelTable *table);

/* fp16 conversions; not every compiler accepts "f16c" in __builtin_cpu_supports. */
static bool has_f16c(void) {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && ecx & bit_F16C;
}

static int detected_level(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return 0;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")
               ? 2
               : 1;
}

static void (*const overrides[])(KernelTable *) = {table_override_sse2, table_override_avx2,
                                                   table_override_avx512};
static const char *const names[] = {"sse2", "avx2", "avx512"};

#elif defined(__aarch64__)

#include <asm/hwcap.h>
#include <sys/auxv.h>

void table_override_neon_bf16(KernelTable *table);

static int detected_level(void) {
    return getauxval(AT_HWCAP2) & HWCAP2_BF16 ? 1 : 0;
}

static void (*const overrides[])(KernelTable *) = {table_override_neon, table_override_neon_bf16};
static const char *const names[] = {"neon", "neon+bf16"};

#else

static int detected_level(void) {
    return 0;
}

static void (*const overrides[])(KernelTable *) = {table_override_plain};
static const char *const names[] = {"plain"};

#endif

/* The index of WEFT_CPU in names; the number of names if it is none of them; -1 if it is not set. */
static int requested_level(void) {
    const char *requested = getenv("WEFT_CPU");
    if (!requested || !*requested) return -1;
    size_t at = 0, count = sizeof names / sizeof *names;
    while (at < count && strcmp(requested, names[at])) at++;
    return (int)at;
}

Status kernels_cpu_check(void) {
    int detected = detected_level();
    if (requested_level() <= detected) return micro32_check();
    return FAILED("WEFT_CPU is '%s', which this CPU does not support; use '%s' or unset it",
                  getenv("WEFT_CPU"), names[detected]);
}

Status kernels_cpu_check_variables(void) {
    const Micro *bf16 = NULL;
    const Micro8 *int8 = NULL;
    TRY(kernels_cpu_check());
    TRY(micro16_choose(&bf16));
    return micro8_choose(&int8);
}

int kernels_cpu_level(void) {
    int detected = detected_level();
    return kernels_cpu_allows(detected) ? detected : requested_level();
}

bool kernels_cpu_allows(int level) {
    int requested = requested_level();
    return requested < 0 || requested >= level;
}

void kernels_cpu_override(KernelTable *table) {
    overrides[kernels_cpu_level()](table);
    norm_fp8_override(table);
}

const char *kernels_cpu_isa(void) {
    return names[kernels_cpu_level()];
}
