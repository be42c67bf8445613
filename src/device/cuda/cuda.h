/* CUDA as a device: what the other cuda/ folders need of it. Only files in cuda/ folders and comm/nccl.c
 * include this. */
#ifndef WEFT_DEVICE_CUDA_CUDA_H
#define WEFT_DEVICE_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#include "device/device.h"

typedef struct CudaBlock CudaBlock; /* memory that waits to be used again */

typedef struct CudaDevice {
    int index;
    int processors;       /* multiprocessors */
    int capability;       /* 90 is 9.0 */
    size_t shared_memory; /* bytes that a thread block may have */
    bool tf32;            /* fp32 products may round their operands to tf32 */
    CudaBlock *waiting;
    struct Nvml *nvml; /* nvml.c; NULL: not asked yet */
    /* What kernels/cuda keeps with a device: library handles, plans, measured choices. */
    void *kernels;
    void (*kernels_free)(void *kernels);
} CudaDevice;

static inline cudaStream_t cuda_stream(const Stream *stream) {
    return (cudaStream_t)stream->impl;
}
static inline CudaDevice *cuda_device(const Stream *stream) {
    return stream->device->impl;
}

/* See DeviceOps.utilization; NVML is opened when it is first asked. */
MUST_USE Status utilization_cuda(Device *device, double *ret_share);
void nvml_close(CudaDevice *cuda);

/* See DeviceOps; record.c. */
MUST_USE Status record_begin_cuda(Stream *stream, bool *ret_begun);
MUST_USE Status record_end_cuda(Stream *stream, void **ret_recorded);
MUST_USE Status replay_cuda(Stream *stream, void *recorded);
void recorded_free_cuda(void *recorded);

/* OK for cudaSuccess, else one sentence that says what failed and why. */
MUST_USE Status cuda_status(cudaError_t error, const char *what);
#define CUDA_TRY(call) TRY(cuda_status((call), #call))

/* A shared library that is opened when it is first needed: a program built with CUDA runs where it is not.
 * `names` are tried in turn, up to NULL. `what` says in the error who asks for it. */
MUST_USE Status library_open(void **ret_library, const char *const *names, const char *what);
/* The addresses of `count` functions, in order, into an array or a struct of function pointers. */
MUST_USE Status library_bind(void *library, const char *const *names, size_t count, void *ret_functions);

#endif
