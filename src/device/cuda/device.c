/* The GPU device. Streams are asynchronous CUDA streams. Freed memory is cached for the next request of the
 * same size, since cudaMalloc and cudaFree synchronize the device; when memory runs out, the cache is
 * released to the driver and the request retried. Memory may be freed while work on a stream still uses it:
 * the next owner's work is ordered after it, on the same stream or by an event. */
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "device/cuda/cuda.h"
#include "device/registry.h"

struct CudaBlock {
    CudaBlock *next;
    void *data;
    size_t bytes;
};

Status cuda_status(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return OK;
    (void)cudaGetLastError();
    return FAILED("CUDA: %s (%s)", cudaGetErrorString(error), what);
}

static void release_waiting(CudaDevice *cuda) {
    while (cuda->waiting) {
        CudaBlock *block = cuda->waiting;
        cuda->waiting = block->next;
        cudaFree(block->data);
        free(block);
    }
}

static Status alloc_cuda(Device *device, size_t bytes, void **ret_data) {
    CudaDevice *cuda = device->impl;
    CUDA_TRY(cudaSetDevice(cuda->index));
    for (CudaBlock **at = &cuda->waiting; *at; at = &(*at)->next) {
        CudaBlock *block = *at;
        if (block->bytes != bytes) continue;
        *ret_data = block->data;
        *at = block->next;
        free(block);
        return OK;
    }
    cudaError_t error = cudaMalloc(ret_data, bytes);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        release_waiting(cuda);
        error = cudaMalloc(ret_data, bytes);
    }
    if (error != cudaErrorMemoryAllocation) return cuda_status(error, "cudaMalloc");
    (void)cudaGetLastError();
    *ret_data = NULL;
    return OK;
}

static void free_cuda(Device *device, void *data, size_t bytes) {
    CudaDevice *cuda = device->impl;
    CudaBlock *block = NULL;
    Status status = mem_new(1, sizeof *block, &block);
    if (status) {
        status_free(status);
        cudaFree(data);
        return;
    }
    *block = (CudaBlock){.next = cuda->waiting, .data = data, .bytes = bytes};
    cuda->waiting = block;
}

static Status alloc_host_cuda(Device *device, size_t bytes, void **ret_data) {
    CUDA_TRY(cudaSetDevice(((CudaDevice *)device->impl)->index));
    cudaError_t error = cudaMallocHost(ret_data, bytes);
    if (error != cudaErrorMemoryAllocation) return cuda_status(error, "page-locked host memory");
    char more[FORMAT_SIZE], held[FORMAT_SIZE];
    (void)cudaGetLastError();
    return FAILED("out of memory: cannot allocate %s of page-locked host memory; in use: %s",
                  format_bytes(more, (double)bytes), format_bytes(held, (double)device->host.current));
}

static void free_host_cuda(Device *device, void *data, size_t bytes) {
    (void)device, (void)bytes;
    cudaFreeHost(data);
}

/* The direction follows from the addresses: a device buffer may be page-locked host memory (offload). */
static Status copy_cuda(Stream *stream, void *dst, const void *src, size_t bytes, CopyKind kind) {
    (void)kind;
    if (dst == src) return OK;
    return cuda_status(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, cuda_stream(stream)), "copy");
}

static Status zero_cuda(Stream *stream, void *dst, size_t bytes) {
    return cuda_status(cudaMemsetAsync(dst, 0, bytes, cuda_stream(stream)), "memset");
}

static Status stream_init_cuda(Stream *stream) {
    cudaStream_t made;
    CUDA_TRY(cudaSetDevice(cuda_device(stream)->index));
    int least = 0, greatest = 0;
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, stream->urgent ? greatest : least));
    stream->impl = made;
    cuda_device(stream)->urgent += stream->urgent;
    return OK;
}

static void stream_done_cuda(Stream *stream) {
    cuda_device(stream)->urgent -= stream->urgent;
    cudaStreamSynchronize(cuda_stream(stream));
    for (int i = 0; i < STREAM_MARKS; i++)
        if (stream->mark[i].event) cudaEventDestroy(stream->mark[i].event);
    cudaStreamDestroy(cuda_stream(stream));
}

static Status stream_sync_cuda(Stream *stream) {
    return cuda_status(cudaStreamSynchronize(cuda_stream(stream)), "synchronizing a stream");
}

static Status stream_wait_cuda(Stream *stream, Stream *other) {
    cudaEvent_t event;
    CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    cudaError_t error = cudaEventRecord(event, cuda_stream(other));
    if (error == cudaSuccess) error = cudaStreamWaitEvent(cuda_stream(stream), event, 0);
    cudaEventDestroy(event); /* released once it has occurred */
    return cuda_status(error, "cross-stream wait");
}

/* WEFT_CUDA_OVERLAP=off makes callers use one stream. */
static bool overlaps_cuda(const Device *device) {
    const char *asked = getenv("WEFT_CUDA_OVERLAP");
    (void)device;
    return !asked || strcmp(asked, "off") != 0;
}

static Status event_record_cuda(Stream *stream, void **event) {
    cudaEvent_t made = *event;
    if (!made) CUDA_TRY(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    *event = made;
    return cuda_status(cudaEventRecord(made, cuda_stream(stream)), "recording an event");
}

static Status event_wait_cuda(Stream *stream, void *event) {
    enum cudaStreamCaptureStatus capture;
    CUDA_TRY(cudaStreamIsCapturing(cuda_stream(stream), &capture));
    unsigned flags = capture == cudaStreamCaptureStatusActive ? cudaEventWaitExternal : cudaEventWaitDefault;
    return cuda_status(cudaStreamWaitEvent(cuda_stream(stream), event, flags), "waiting for an event");
}

static Status event_sync_cuda(void *event) {
    return cuda_status(cudaEventSynchronize(event), "synchronizing an event");
}

static void event_free_cuda(void *event) {
    cudaEventDestroy(event);
}

static Status mark_cuda(Stream *stream, int mark) {
    cudaEvent_t event = stream->mark[mark].event;
    if (!event) {
        CUDA_TRY(cudaEventCreate(&event));
        stream->mark[mark].event = event;
    }
    return cuda_status(cudaEventRecord(event, cuda_stream(stream)), "recording an event");
}

static Status elapsed_cuda(Stream *stream, int from, int to, double *ret_seconds) {
    float ms = 0;
    CUDA_TRY(cudaEventSynchronize(stream->mark[to].event));
    CUDA_TRY(cudaEventElapsedTime(&ms, stream->mark[from].event, stream->mark[to].event));
    *ret_seconds = 1e-3 * (double)ms;
    return OK;
}

static void done_cuda(Device *device) {
    CudaDevice *cuda = device->impl;
    cudaDeviceSynchronize();
    nvml_close(cuda);
    spans_free(cuda);
    if (cuda->kernels) cuda->kernels_free(cuda->kernels);
    release_waiting(cuda);
    free(cuda);
}

const DeviceOps device_ops_cuda = {
    .name = "cuda",
    .alloc = alloc_cuda,
    .free = free_cuda,
    .alloc_host = alloc_host_cuda,
    .free_host = free_host_cuda,
    .copy = copy_cuda,
    .zero = zero_cuda,
    .stream_init = stream_init_cuda,
    .stream_done = stream_done_cuda,
    .stream_sync = stream_sync_cuda,
    .stream_wait = stream_wait_cuda,
    .overlaps = overlaps_cuda,
    .event_record = event_record_cuda,
    .event_wait = event_wait_cuda,
    .event_sync = event_sync_cuda,
    .event_free = event_free_cuda,
    .mark = mark_cuda,
    .elapsed = elapsed_cuda,
    .span_begin = span_begin_cuda,
    .span_end = span_end_cuda,
    .spans_finish = spans_finish_cuda,
    .record_begin = record_begin_cuda,
    .record_end = record_end_cuda,
    .replay = replay_cuda,
    .recorded_free = recorded_free_cuda,
    .utilization = utilization_cuda,
    .energy = energy_cuda,
    .done = done_cuda,
};

static CudaLimits limits[CUDA_DEVICES_SHOWN];

CudaLimits cuda_limits(void) {
    int index = -1;
    if (cudaGetDevice(&index) != cudaSuccess || index < 0 || index >= CUDA_DEVICES_SHOWN)
        return (CudaLimits){0};
    return limits[index];
}

/* Kernels are chosen by what the code in this program was compiled for, if that is older than the GPU. Such
 * code keeps to the shared memory of the GPUs that it is for. */
static Status device_init(CudaDevice *cuda, int index) {
    struct cudaDeviceProp properties;
    int compiled = 0;
    CUDA_TRY(cudaSetDevice(index));
    CUDA_TRY(cudaGetDeviceProperties(&properties, index));
    cuda->index = index;
    cuda->processors = properties.multiProcessorCount;
    cuda->capability = properties.major * 10 + properties.minor;
    cuda->shared_memory = properties.sharedMemPerBlockOptin;
    if (cuda_code_capability(&compiled) != cudaSuccess)
        return FAILED("GPU %d (%s) has compute capability %d.%d, and this weft was built for other GPUs; "
                      "build it with WEFT_CUDA_ARCHITECTURES=%d%d",
                      index, properties.name, properties.major, properties.minor, properties.major,
                      properties.minor);
    if (compiled < cuda->capability) cuda->capability = compiled;
    const size_t most = cuda->capability >= 80   ? cuda->shared_memory
                        : cuda->capability >= 75 ? 64 << 10
                                                 : 96 << 10;
    if (most < cuda->shared_memory) cuda->shared_memory = most;
    limits[index] = (CudaLimits){cuda->capability, cuda->processors, cuda->shared_memory};
    return OK;
}

Status device_new_cuda(Device **ret_device, int index) {
    CudaInfo info;
    device_cuda_info(&info);
    if (info.devices == 0) return FAILED("no GPU available: %s", info.problem);
    if (index < 0 || index >= info.devices || index >= CUDA_DEVICES_SHOWN)
        return FAILED("no GPU %d: this host has %d, numbered from 0", index, info.devices);
    CLEANUP(mem_freep) CudaDevice *cuda = NULL;
    CLEANUP(mem_freep) Device *device = NULL;
    TRY(mem_new(1, sizeof *cuda, &cuda));
    TRY(mem_new(1, sizeof *device, &device));
    TRY(device_init(cuda, index));
    device->ops = &device_ops_cuda;
    device->index = index;
    device->threads = 1;
    device->limit = info.device[index].memory;
    device->impl = cuda;
    *ret_device = device;
    cuda = NULL;
    device = NULL;
    return OK;
}

void device_allow_tf32(Device *device, bool allow) {
    if (!device_is_host(device)) ((CudaDevice *)device->impl)->tf32 = allow;
}

Status device_check_precision(const Device *device, const char *name) {
    if (device_is_host(device)) return OK;
    int capability = ((CudaDevice *)device->impl)->capability;
    int needed = strcmp(name, "fp8") == 0 ? 89 : strcmp(name, "bf16") == 0 ? 80 : 0;
    if (capability >= needed) return OK;
    return USAGE("{precision} %s: GPU %d has compute capability %d.%d, but %s needs %d.%d; use %s", name,
                 device->index, capability / 10, capability % 10, name, needed / 10, needed % 10,
                 capability >= 80 ? "bf16" : "fp16");
}
