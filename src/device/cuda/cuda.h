/* The CUDA device, for other cuda/ folders. Only files in cuda/ folders may include this. */
#ifndef WEFT_DEVICE_CUDA_CUDA_H
#define WEFT_DEVICE_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#include "device/device.h"

typedef struct CudaBlock CudaBlock; /* cached memory */
typedef struct CudaSpan CudaSpan;   /* see spans.c */

typedef struct CudaDevice {
    int index;
    int processors;       /* multiprocessors */
    int capability;       /* of the GPU, or of the code that runs on it if that is older; 90 is 9.0 */
    size_t shared_memory; /* maximum bytes per thread block */
    bool tf32;            /* fp32 matmuls may use tf32 */
    int urgent;           /* streams from stream_new_urgent */
    CudaBlock *waiting;
    CudaSpan *span;
    size_t spans, spans_made, span_capacity;
    cudaEvent_t span_origin;
    int64_t span_origin_ns;
    struct Nvml *nvml; /* see nvml.c; NULL: not loaded yet */
    /* State of kernels/cuda: library handles, plans, tuned algorithms. */
    void *kernels;
    void (*kernels_free)(void *kernels);
} CudaDevice;

/* What kernels are chosen by on a GPU. */
typedef struct CudaLimits {
    int capability;       /* as in CudaDevice */
    int processors;       /* the same */
    size_t shared_memory; /* the same */
} CudaLimits;

/* Of the thread's current device; zeros if it has not been opened. */
CudaLimits cuda_limits(void);
/* code.cu: what this program's code for the current device was compiled for; an error if there is none. */
cudaError_t cuda_code_capability(int *ret_capability);

static inline cudaStream_t cuda_stream(const Stream *stream) {
    return (cudaStream_t)stream->impl;
}
static inline CudaDevice *cuda_device(const Stream *stream) {
    return (CudaDevice *)stream->device->impl;
}

/* See DeviceOps.utilization. Loads NVML on first use. */
MUST_USE Status utilization_cuda(Device *device, double *ret_share);
/* See DeviceOps.energy; GPUs before Volta do not count it. */
MUST_USE Status energy_cuda(Device *device, double *ret_joules);
void nvml_close(CudaDevice *cuda);

/* See DeviceOps and spans.c. */
MUST_USE Status span_begin_cuda(Stream *stream, Trace *trace, size_t *ret_number);
MUST_USE Status span_end_cuda(Stream *stream, size_t number, TraceLane lane, const TraceName *name,
                              const int64_t numbers[TRACE_NUMBERS]);
MUST_USE Status spans_finish_cuda(Device *device, bool waits);
void spans_free(CudaDevice *cuda);

/* See DeviceOps; record.c. */
MUST_USE Status record_begin_cuda(Stream *stream, bool *ret_begun);
MUST_USE Status record_end_cuda(Stream *stream, void **ret_recorded);
MUST_USE Status replay_cuda(Stream *stream, void *recorded);
void recorded_free_cuda(void *recorded);

/* OK for cudaSuccess; otherwise an error that names `what` and the reason. */
MUST_USE Status cuda_status(cudaError_t error, const char *what);
#define CUDA_TRY(call) TRY(cuda_status((call), #call))

/* Loads a shared library on demand, so that a CUDA build also runs without it. Tries `names` in order, up to
 * NULL. `what` names the feature in the error message. */
MUST_USE Status library_open(void **ret_library, const char *const *names, const char *what);
/* Looks up `count` functions into an array or struct of function pointers, in order. */
MUST_USE Status library_bind(void *library, const char *const *names, size_t count, void *ret_functions);

#endif
