/* Chooses the instruction set of the cpu backend for the CPU it runs on. */
#include "kernels/backend.h"

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

static int level(void) {
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

static int level(void) {
    return getauxval(AT_HWCAP2) & HWCAP2_BF16 ? 1 : 0;
}

static void (*const overrides[])(KernelTable *) = {table_override_neon, table_override_neon_bf16};
static const char *const names[] = {"neon", "neon+bf16"};

#else

static int level(void) {
    return 0;
}

static void (*const overrides[])(KernelTable *) = {table_override_plain};
static const char *const names[] = {"plain"};

#endif

void kernels_cpu_override(KernelTable *table) {
    overrides[level()](table);
}

const char *kernels_cpu_isa(void) {
    return names[level()];
}
