/* Finds which of the machine's instructions multiply int8, for linear_int8.c and for people. What the machine
 * has is asked once; WEFT_CPU_INT8 is read whenever weights are packed, so that one process can try all. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/micro8.h"

typedef struct Choice {
    const char *name; /* as WEFT_CPU_INT8 has it */
    const Micro8 *micro;
    bool (*there)(void);
} Choice;

#if defined(__aarch64__)

#include <asm/hwcap.h>
#include <sys/auxv.h>

static bool mmla_there(void) {
    return getauxval(AT_HWCAP2) & HWCAP2_I8MM;
}
static bool sdot_there(void) {
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}

/* The best first. */
static const Choice choices[] = {{"i8mm", &micro8_mmla, mmla_there}, {"dotprod", &micro8_sdot, sdot_there}};

#elif defined(__x86_64__)

static bool vnni_there(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

static bool amx_there(void) {
    return vnni_there() && amx_has(AMX_INT8);
}

static const Choice choices[] = {{"amx", &micro8_amx, amx_there}, {"vnni", &micro8_vnni, vnni_there}};

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

static void find_once(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
}

Status micro8_choose(const Micro8 **ret_micro) {
    find_once();
    const char *asked = getenv("WEFT_CPU_INT8");
    const Micro8 *micro = NULL;
    bool plain = asked && !strcmp(asked, "plain");
    for (int i = 0; i < CHOICES && !micro && !plain; i++)
        if (found[i] && (!asked || !*asked || !strcmp(asked, choices[i].name))) micro = choices[i].micro;
    if (!micro && asked && *asked && !plain)
        return FAILED(
            "WEFT_CPU_INT8 is '%s', which is not one of this machine's ways to multiply int8; 'plain' "
            "is C, and without the variable the best one is taken",
            asked);
    *ret_micro = micro;
    return OK;
}

static bool suits(const Micro8 *micro, Int8Tile tile) {
    return micro && micro->tile.cols == tile.cols && micro->tile.group == tile.group;
}

const Micro8 *micro8_for(Int8Tile tile) {
    const Micro8 *micro = NULL;
    CLEANUP(status_freep) Status status = micro8_choose(&micro);
    if (!status && suits(micro, tile)) return micro;
    for (int i = 0; i < CHOICES; i++)
        if (found[i] && suits(choices[i].micro, tile)) return choices[i].micro;
    return NULL;
}

const char *kernels_cpu_int8(void) {
    const Micro8 *micro = NULL;
    CLEANUP(status_freep) Status status = micro8_choose(&micro);
    return status ? "none" : micro ? micro->name : "plain";
}
