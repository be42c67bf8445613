/* Finds which of the machine's instructions multiply bf16, for gemm16.c and for people. What the machine
 * has is asked once; WEFT_CPU_BF16 is read at every call, so that one process can try all of them. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/micro16.h"
#include "kernels/kernels.h"

typedef struct Choice {
    const char *name; /* as WEFT_CPU_BF16 has it */
    const Micro16 *micro;
    bool (*there)(void);
} Choice;

#if defined(__aarch64__)

#include <asm/hwcap.h>
#include <sys/auxv.h>

static bool mmla_there(void) {
    return getauxval(AT_HWCAP2) & HWCAP2_BF16;
}

/* The best first. */
static const Choice choices[] = {{"mmla", &micro16_mmla, mmla_there}};

#elif defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Bits of XCR0: what the system saves for a thread. */
enum { SAVED_AVX512 = 0xe6, SAVED_TILES = 0x60000 };

static bool saved(uint32_t parts) {
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & parts) == parts;
}

/* AVX-512 F, DQ, BW and VL, with BF16. */
static bool dot_there(void) {
    enum { F = 1 << 16, DQ = 1 << 17, BW = 1 << 30, BF16 = 1 << 5 };
    const uint32_t VL = 1u << 31;
    uint32_t a, b, c, d;
    if (!saved(SAVED_AVX512) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(b & F) || !(b & DQ) || !(b & BW) || !(b & VL)) return false;
    return a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & BF16);
}

/* Linux lets a process use tiles once it has asked. */
bool amx_has(uint32_t type) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    uint32_t a, b, c, d;
    if (!saved(SAVED_TILES) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(d & type) || !(d & AMX_TILE)) return false;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static bool amx_there(void) {
    return dot_there() && amx_has(AMX_BF16);
}

static const Choice choices[] = {{"amx", &micro16_amx, amx_there}, {"dot", &micro16_dot, dot_there}};

#else

static bool none_there(void) {
    return false;
}

static const Choice choices[] = {{"none", NULL, none_there}};

#endif

enum { CHOICES = sizeof choices / sizeof *choices };

static bool found[CHOICES];

static void find(void) {
    for (int i = 0; i < CHOICES; i++) found[i] = choices[i].there();
}

Status micro16_choose(const Micro16 **ret_micro) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
    const char *asked = getenv("WEFT_CPU_BF16");
    const Micro16 *micro = NULL;
    bool off = asked && !strcmp(asked, "off");
    for (int i = 0; i < CHOICES && !micro && !off; i++)
        if (found[i] && (!asked || !*asked || !strcmp(asked, choices[i].name))) micro = choices[i].micro;
    if (!micro && asked && *asked && !off)
        return FAILED("WEFT_CPU_BF16 is '%s', which is not one of this machine's ways to multiply bf16; "
                      "'off' converts it to fp32, and without the variable the best one is taken",
                      asked);
    *ret_micro = micro;
    return OK;
}

const char *kernels_cpu_bf16(void) {
    const Micro16 *micro = NULL;
    CLEANUP(status_freep) Status status = micro16_choose(&micro);
    return status ? "none" : micro ? micro->name : "converted";
}
