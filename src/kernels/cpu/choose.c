/* Selects the micro-kernels of each type and reports them. CPU features are detected once; the environment
 * variables are read at every call, so that one process can test all micro-kernels. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/cpu/micro16.h"
#include "kernels/cpu/micro8.h"

/* micro16_choose, micro8_choose and micro32_choose. */
typedef enum { BF16, INT8, FP32, KINDS } Kind;
enum { CHOICES = 3 };

typedef struct Choice {
    const char *name;  /* value of the environment variable */
    const void *micro; /* Micro or Micro8 */
    bool (*available)(void);
    int level; /* the instruction set that WEFT_CPU must allow */
} Choice;

#if defined(__aarch64__)

#include <asm/hwcap.h>
#include <sys/auxv.h>

static bool has_bf16(void) {
    return getauxval(AT_HWCAP2) & HWCAP2_BF16;
}
static bool has_i8mm(void) {
    return getauxval(AT_HWCAP2) & HWCAP2_I8MM;
}
static bool has_sdot(void) {
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}

/* Fastest first. */
static const Choice choices[KINDS][CHOICES] = {
    [BF16] = {{"mmla", &micro16_mmla, has_bf16, 1}},
    [INT8] = {{"i8mm", &micro8_mmla, has_i8mm, 1}, {"dotprod", &micro8_sdot, has_sdot, 0}},
};

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
    enum { F = 1 << 16, DQ = 1 << 17, BW = 1 << 30, BF16_BIT = 1 << 5 };
    const uint32_t VL = 1u << 31;
    uint32_t a, b, c, d;
    if (!os_saves(XCR0_AVX512) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(b & F) || !(b & DQ) || !(b & BW) || !(b & VL)) return false;
    return a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & BF16_BIT);
}

/* Whether the CPU has tile multiplication, a feature bit of CPUID leaf 7, and the OS lets this process use
 * it. Linux grants the use of tiles only after a process requests it. */
static bool has_tiles(uint32_t multiplication) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18, TILE = 1 << 24 };
    uint32_t a, b, c, d;
    if (!os_saves(XCR0_TILES) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(d & multiplication) || !(d & TILE)) return false;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static bool has_amx(void) {
    return has_dot() && has_tiles(1 << 22);
}

static bool has_avx2(void) {
    return kernels_cpu_level() >= 1;
}

static bool has_vnni(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

static bool has_amx_int8(void) {
    return has_vnni() && has_tiles(1 << 25);
}

static const Choice choices[KINDS][CHOICES] = {
    [BF16] = {{"amx", &micro16_amx, has_amx, 2}, {"dot", &micro16_dot, has_dot, 2}},
    [INT8] = {{"amx", &micro8_amx, has_amx_int8, 2},
              {"vnni", &micro8_vnni, has_vnni, 2},
              {"avx2", &micro8_avx2, has_avx2, 1}},
    [FP32] = {{"amx", &micro32_split, has_amx, 2}},
};

#else

static const Choice choices[KINDS][CHOICES] = {{{0}}};

#endif

/* The environment variables, the value that selects none of the choices, and what else to do. The fastest is
 * the default, except for fp32, where it is none. */
static const struct {
    const char *name, *none, *advice;
} variables[KINDS] = {
    [BF16] = {"WEFT_CPU_BF16", "off",
              "'off' to convert to fp32, or unset it to use the fastest implementation"},
    [INT8] = {"WEFT_CPU_INT8", "plain",
              "'plain' for portable C, or unset it to use the fastest implementation"},
    [FP32] = {"WEFT_CPU_FP32", "fma", "'fma' or unset it"},
};

static bool detected[KINDS][CHOICES];

static void detect(void) {
    for (int i = 0; i < KINDS * CHOICES; i++) {
        const Choice *choice = &choices[i / CHOICES][i % CHOICES];
        detected[i / CHOICES][i % CHOICES] =
            choice->micro && kernels_cpu_allows(choice->level) && choice->available();
    }
}

static void detect_once(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, detect);
}

static Status choose(Kind kind, const void **ret_micro) {
    const char *requested = getenv(variables[kind].name);
    bool any = !requested || !*requested;
    const void *micro = NULL;
    detect_once();
    if (!(any ? kind == FP32 : !strcmp(requested, variables[kind].none))) {
        for (int i = 0; i < CHOICES && !micro; i++)
            if (detected[kind][i] && (any || !strcmp(requested, choices[kind][i].name)))
                micro = choices[kind][i].micro;
        if (!micro && !any)
            return FAILED("%s is '%s', which this CPU does not support; use %s", variables[kind].name,
                          requested, variables[kind].advice);
    }
    *ret_micro = micro;
    return OK;
}

/* The same without errors. */
static const void *chosen(Kind kind, bool *ret_failed) {
    const void *micro = NULL;
    CLEANUP(status_freep) Status status = choose(kind, &micro);
    *ret_failed = status;
    return micro;
}

Status micro16_choose(const Micro **ret_micro) {
    const void *micro = NULL;
    TRY(choose(BF16, &micro));
    *ret_micro = micro;
    return OK;
}

const Micro *micro32_choose(void) {
    bool failed;
    return chosen(FP32, &failed);
}

Status micro32_check(void) {
    const void *micro = NULL;
    return choose(FP32, &micro);
}

Status micro8_choose(const Micro8 **ret_micro) {
    const void *micro = NULL;
    TRY(choose(INT8, &micro));
    *ret_micro = micro;
    return OK;
}

static bool matches(const Micro8 *micro, Int8Tile tile, int bits) {
    if (!micro) return false;
    const Int8Tile *own = bits == 4 ? &micro->tile4 : &micro->tile;
    return own->cols == tile.cols && own->group == tile.group;
}

const Micro8 *micro8_for(Int8Tile tile, int bits) {
    bool failed;
    const Micro8 *micro = chosen(INT8, &failed);
    for (int i = 0; i < CHOICES && !matches(micro, tile, bits); i++)
        micro = detected[INT8][i] ? choices[INT8][i].micro : NULL;
    return matches(micro, tile, bits) ? micro : NULL;
}

const char *kernels_cpu_bf16(void) {
    bool failed;
    const Micro *micro = chosen(BF16, &failed);
    return failed ? "none" : micro ? micro->name : "converted";
}

const char *kernels_cpu_int8(void) {
    bool failed;
    const Micro8 *micro = chosen(INT8, &failed);
    return failed ? "none" : micro ? micro->name : "plain";
}
