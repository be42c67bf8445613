/* Time, FLOPs and bytes per kernel, collected by calls whose Exec has a Profile. Timing synchronizes the
 * stream around each call, so it removes overlap. With `ahead` it reads the device's clock instead, and the
 * host runs up to PROFILE_AHEAD calls ahead, as in training; call profile_finish before reading the times. */
#ifndef WEFT_KERNELS_PROFILE_H
#define WEFT_KERNELS_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
#define KERNEL(id, ...) KERNEL_##id,
#include "kernels/ops.def"
    KERNEL_COUNT,
} KernelId;

/* See ops.def for the meaning of these and of KernelInfo. */
typedef enum { KERNEL_PHASE_FORWARD, KERNEL_PHASE_BACKWARD, KERNEL_PHASE_OTHER } KernelPhase;
typedef enum {
    KERNEL_WORK_MATMUL,
    KERNEL_WORK_FP8,
    KERNEL_WORK_ATTENTION,
    KERNEL_WORK_BYTES,
    KERNEL_WORK_UPDATE,
} KernelWork;

typedef struct KernelInfo {
    const char *name; /* of the function in kernels.h, which also appears in profiles */
    KernelPhase phase;
    KernelWork work;
    int launches;
} KernelInfo;

typedef struct KernelStat {
    uint64_t calls;
    double seconds;
    double flops; /* FLOPs, counted from the shapes of the calls */
    double bytes; /* minimum memory traffic: each operand read or written once */
} KernelStat;

enum { PROFILE_AHEAD = 256 };

/* A call whose time has not been read yet, and its record in the op log. */
typedef struct PendingCall {
    KernelId id;
    struct Stream *stream;
    size_t record;
} PendingCall;

typedef struct Profile {
    KernelStat kernel[KERNEL_COUNT];
    bool ahead;
    PendingCall pending[PROFILE_AHEAD]; /* a ring */
    uint64_t started, read;             /* calls */
} Profile;

const KernelInfo *kernel_info(KernelId id);
static inline const char *kernel_name(KernelId id) {
    return kernel_info(id)->name;
}

#endif
