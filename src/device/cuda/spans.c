/* Spans of a GPU's work. Times are those of events relative to one event at which the host has read its
 * clock. */
#include "base/memory.h"
#include "device/cuda/cuda.h"

struct CudaSpan {
    Trace *trace;
    TraceLane lane;
    const TraceName *name; /* NULL: not ended */
    int64_t number[TRACE_NUMBERS];
    cudaEvent_t from, to;
};

/* The events of the first `spans` are in use. */
static Status span_take(CudaDevice *cuda, size_t *ret_number) {
    size_t at = cuda->spans;
    if (at == cuda->spans_made) {
        CudaSpan made = {0};
        TRY(mem_grow(&cuda->span, &cuda->span_capacity, at + 1, sizeof *cuda->span));
        CUDA_TRY(cudaEventCreate(&made.from));
        cuda->span[at] = made;
        CUDA_TRY(cudaEventCreate(&cuda->span[at].to));
        cuda->spans_made++;
    }
    cuda->spans++;
    *ret_number = at;
    return OK;
}

static Status read_clock(CudaDevice *cuda, cudaStream_t stream) {
    if (!cuda->span_origin) CUDA_TRY(cudaEventCreate(&cuda->span_origin));
    CUDA_TRY(cudaEventRecord(cuda->span_origin, stream));
    CUDA_TRY(cudaEventSynchronize(cuda->span_origin));
    cuda->span_origin_ns = trace_now();
    return OK;
}

Status span_begin_cuda(Stream *stream, Trace *trace, size_t *ret_number) {
    CudaDevice *cuda = cuda_device(stream);
    if (!cuda->spans) TRY(read_clock(cuda, cuda_stream(stream)));
    TRY(span_take(cuda, ret_number));
    cuda->span[*ret_number].trace = trace;
    cuda->span[*ret_number].name = NULL;
    return cuda_status(cudaEventRecord(cuda->span[*ret_number].from, cuda_stream(stream)), "a span");
}

Status span_end_cuda(Stream *stream, size_t number, TraceLane lane, const TraceName *name,
                     const int64_t numbers[TRACE_NUMBERS]) {
    CudaSpan *span = &cuda_device(stream)->span[number];
    span->lane = lane;
    span->name = name;
    for (int i = 0; i < TRACE_NUMBERS; i++) span->number[i] = numbers[i];
    return cuda_status(cudaEventRecord(span->to, cuda_stream(stream)), "a span");
}

Status spans_finish_cuda(Device *device, bool waits) {
    CudaDevice *cuda = device->impl;
    for (size_t i = 0; i < cuda->spans; i++) {
        CudaSpan *span = &cuda->span[i];
        float from = 0, to = 0;
        if (!span->name) continue;
        if (waits) CUDA_TRY(cudaEventSynchronize(span->to));
        if (cudaEventElapsedTime(&from, cuda->span_origin, span->from) != cudaSuccess ||
            cudaEventElapsedTime(&to, cuda->span_origin, span->to) != cudaSuccess)
            continue;
        trace_add_numbers(span->trace, span->lane, span->name,
                          cuda->span_origin_ns + (int64_t)(1e6 * (double)from),
                          cuda->span_origin_ns + (int64_t)(1e6 * (double)to), span->number);
    }
    (void)cudaGetLastError(); /* cudaErrorNotReady is not an error */
    cuda->spans = 0;
    return OK;
}

void spans_free(CudaDevice *cuda) {
    for (size_t i = 0; i < cuda->spans_made; i++) {
        cudaEventDestroy(cuda->span[i].from);
        cudaEventDestroy(cuda->span[i].to);
    }
    if (cuda->span_origin) cudaEventDestroy(cuda->span_origin);
    free(cuda->span);
}
