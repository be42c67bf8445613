/* Selects the int8 micro-kernel for linear_int8.c and reports it. CPU features are detected once;
 * WEFT_CPU_INT8 is read whenever weights are packed, so that one process can test all micro-kernels. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/micro8.h"

typedef struct Choice {
    const char *name; /* value of WEFT_CPU_INT8 */
    const Micro8 *micro;
    bool (*available)(void);
    int level; /* the instruction set that WEFT_CPU must allow */
} Choice;

#if defined(__aarch64__)

#include <asm/hwcap.h>
#include <sys/auxv.h>

static bool has_mmla(void) {
    return getauxval(AT_HWCAP2) & HWCAP2_I8MM;
}
static bool has_sdot(void) {
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}

/* Fastest first. */
static const Choice choices[] = {{"i8mm", &micro8_mmla, has_mmla, 1}, {"dotprod", &micro8_sdot, has_sdot, 0}};

#elif defined(__x86_64__)

static bool has_avx2(void) {
    return kernels_cpu_level() >= 1;
}

static bool has_vnni(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

static bool has_amx(void) {
    return has_vnni() && amx_has(AMX_INT8);
}

static const Choice choices[] = {{"amx", &micro8_amx, has_amx, 2},
                                 {"vnni", &micro8_vnni, has_vnni, 2},
                                 {"avx2", &micro8_avx2, has_avx2, 1}};

#else

static bool has_none(void) {
    return false;
}

static const Choice choices[] = {{"none", NULL, has_none, 0}};

#endif

enum { CHOICES = sizeof choices / sizeof *choices };

static bool detected[CHOICES];

static void detect(void) {
    for (int i = 0; i < CHOICES; i++)
        detected[i] = kernels_cpu_allows(choices[i].level) && choices[i].available();
}

static void detect_once(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, detect);
}

Status micro8_choose(const Micro8 **ret_micro) {
    detect_once();
    const char *requested = getenv("WEFT_CPU_INT8");
    const Micro8 *micro = NULL;
    bool plain = requested && !strcmp(requested, "plain");
    for (int i = 0; i < CHOICES && !micro && !plain; i++)
        if (detected[i] && (!requested || !*requested || !strcmp(requested, choices[i].name)))
            micro = choices[i].micro;
    if (!micro && requested && *requested && !plain)
        return FAILED(
            "WEFT_CPU_INT8 is '%s', which this CPU does not support; use 'plain' for portable C, or unset it "
            "to use the fastest implementation",
            requested);
    *ret_micro = micro;
    return OK;
}

static bool matches(const Micro8 *micro, Int8Tile tile, int bits) {
    if (!micro) return false;
    const Int8Tile *own = bits == 4 ? &micro->tile4 : &micro->tile;
    return own->cols == tile.cols && own->group == tile.group;
}

const Micro8 *micro8_for(Int8Tile tile, int bits) {
    const Micro8 *micro = NULL;
    CLEANUP(status_freep) Status status = micro8_choose(&micro);
    if (!status && matches(micro, tile, bits)) return micro;
    for (int i = 0; i < CHOICES; i++)
        if (detected[i] && matches(choices[i].micro, tile, bits)) return choices[i].micro;
    return NULL;
}

const char *kernels_cpu_int8(void) {
    const Micro8 *micro = NULL;
    CLEANUP(status_freep) Status status = micro8_choose(&micro);
    return status ? "none" : micro ? micro->name : "plain";
}
