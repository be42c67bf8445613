/* Selects the micro-kernels for gemm.c and reports that of bf16. CPU features are detected once;
 * WEFT_CPU_BF16 and WEFT_CPU_FP32 are read at every call, so that one process can test all micro-kernels. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/micro16.h"
#include "kernels/kernels.h"

typedef struct Choice {
    const char *name; /* value of WEFT_CPU_BF16 */
    const Micro *micro;
    bool (*available)(void);
    int level; /* the instruction set that WEFT_CPU must allow */
} Choice;

#if defined(__aarch64__)

#include <asm/hwcap.h>
#include <sys/auxv.h>

static bool has_mmla(void) {
    return getauxval(AT_HWCAP2) & HWCAP2_BF16;
}

/* Fastest first. */
static const Choice choices[] = {{"mmla", &micro16_mmla, has_mmla, 1}};
static const Choice choice32 = {.name = "amx"};

#elif defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* XCR0 bits: register state that the OS saves on a context switch. */
enum { XCR0_AVX512 = 0xe6, XCR0_TILES = 0x60000 };

static bool os_saves(uint32_t bits) {
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & bits) == bits;
}

/* AVX-512 F, DQ, BW, VL and BF16. */
static bool has_dot(void) {
    enum { F = 1 << 16, DQ = 1 << 17, BW = 1 << 30, BF16 = 1 << 5 };
    const uint32_t VL = 1u << 31;
    uint32_t a, b, c, d;
    if (!os_saves(XCR0_AVX512) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(b & F) || !(b & DQ) || !(b & BW) || !(b & VL)) return false;
    return a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & BF16);
}

/* Linux grants the use of tiles only after a process requests it. */
bool amx_has(uint32_t type) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    uint32_t a, b, c, d;
    if (!os_saves(XCR0_TILES) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(d & type) || !(d & AMX_TILE)) return false;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static bool has_amx(void) {
    return has_dot() && amx_has(AMX_BF16);
}

static const Choice choices[] = {{"amx", &micro16_amx, has_amx, 2}, {"dot", &micro16_dot, has_dot, 2}};
/* For fp32. */
static const Choice choice32 = {"amx", &micro32_split, has_amx, 2};

#else

static bool has_none(void) {
    return false;
}

static const Choice choices[] = {{"none", NULL, has_none, 0}};
static const Choice choice32 = {.name = "amx"};

#endif

enum { CHOICES = sizeof choices / sizeof *choices };

static bool detected[CHOICES], detected32;

static void detect(void) {
    for (int i = 0; i < CHOICES; i++)
        detected[i] = kernels_cpu_allows(choices[i].level) && choices[i].available();
    detected32 = choice32.micro && kernels_cpu_allows(choice32.level) && choice32.available();
}

static void detect_once(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, detect);
}

Status micro16_choose(const Micro **ret_micro) {
    detect_once();
    const char *requested = getenv("WEFT_CPU_BF16");
    const Micro *micro = NULL;
    bool off = requested && !strcmp(requested, "off");
    for (int i = 0; i < CHOICES && !micro && !off; i++)
        if (detected[i] && (!requested || !*requested || !strcmp(requested, choices[i].name)))
            micro = choices[i].micro;
    if (!micro && requested && *requested && !off)
        return FAILED(
            "WEFT_CPU_BF16 is '%s', which this CPU does not support; use 'off' to convert to fp32, or "
            "unset it to use the fastest implementation",
            requested);
    *ret_micro = micro;
    return OK;
}

/* Whether WEFT_CPU_FP32 has this value. */
static bool requests32(const char *value) {
    const char *requested = getenv("WEFT_CPU_FP32");
    return requested && !strcmp(requested, value);
}

const Micro *micro32_choose(void) {
    detect_once();
    return detected32 && requests32(choice32.name) ? choice32.micro : NULL;
}

Status micro32_check(void) {
    const char *requested = getenv("WEFT_CPU_FP32");
    if (!requested || !*requested || requests32("fma") || micro32_choose()) return OK;
    return FAILED("WEFT_CPU_FP32 is '%s', which this CPU does not support; use 'fma' or unset it", requested);
}

const char *kernels_cpu_bf16(void) {
    const Micro *micro = NULL;
    CLEANUP(status_freep) Status status = micro16_choose(&micro);
    return status ? "none" : micro ? micro->name : "converted";
}
