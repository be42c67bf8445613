/* A device owns tensor memory and runs kernels. All tensor memory comes from dev_alloc, which counts it by
 * tag. Streams order work. CPU streams are synchronous: work is done when the call returns, unless
 * Stream.background is set. */
#ifndef WEFT_DEVICE_DEVICE_H
#define WEFT_DEVICE_DEVICE_H

#include <stdint.h>

#include "base/status.h"
#include "base/trace.h"
#include "device/op_log.h"

typedef enum {
    MEM_PARAMS,
    MEM_GRADS,
    MEM_OPTIMIZER,
    MEM_ACTIVATIONS,
    MEM_COMM,
    MEM_SCRATCH,
    MEM_TAGS
} MemTag;

typedef enum { COPY_TO_DEVICE, COPY_TO_HOST, COPY_ON_DEVICE } CopyKind;

typedef struct MemStat {
    size_t current, peak;
} MemStat;

typedef struct Device Device;
typedef struct Stream Stream;

typedef struct DeviceOps {
    const char *name;
    Status (*alloc)(Device *device, size_t bytes, void **ret_data); /* *ret_data NULL: out of memory */
    void (*free)(Device *device, void *data, size_t bytes);
    /* Host memory for fast copies to and from the device (page-locked). */
    Status (*alloc_host)(Device *device, size_t bytes, void **ret_data);
    void (*free_host)(Device *device, void *data, size_t bytes);
    Status (*copy)(Stream *stream, void *dst, const void *src, size_t bytes, CopyKind kind);
    Status (*zero)(Stream *stream, void *dst, size_t bytes);
    Status (*stream_init)(Stream *stream);
    void (*stream_done)(Stream *stream);
    Status (*stream_sync)(Stream *stream);
    Status (*stream_wait)(Stream *stream, Stream *other);
    /* Whether work on two streams runs at the same time. NULL: it does not. */
    bool (*overlaps)(const Device *device);
    /* See stream_event_record. All four NULL: work is complete when a call returns. */
    Status (*event_record)(Stream *stream, void **event);
    Status (*event_wait)(Stream *stream, void *event);
    Status (*event_sync)(void *event);
    void (*event_free)(void *event);
    Status (*mark)(Stream *stream, int mark);
    Status (*elapsed)(Stream *stream, int from, int to, double *ret_seconds);
    /* See stream_span_begin. All three NULL: work is complete when a call returns. */
    Status (*span_begin)(Stream *stream, Trace *trace, size_t *ret_number);
    Status (*span_end)(Stream *stream, size_t number, TraceLane lane, const TraceName *name,
                       const int64_t numbers[TRACE_NUMBERS]);
    Status (*spans_finish)(Device *device, bool waits);
    /* Recordings, see stream_record_begin. All four NULL: not supported. */
    Status (*record_begin)(Stream *stream, bool *ret_begun);
    Status (*record_end)(Stream *stream, void **ret_recorded);
    Status (*replay)(Stream *stream, void *recorded);
    void (*recorded_free)(void *recorded);
    /* Recent utilization as the device reports it, 0 to 1. NULL: not supported. */
    Status (*utilization)(Device *device, double *ret_share);
    /* Energy since the driver was loaded, in joules. NULL: not supported. */
    Status (*energy)(Device *device, double *ret_joules);
    void (*done)(Device *device);
} DeviceOps;

struct Device {
    const DeviceOps *ops;
    int index;         /* device number within its kind */
    int threads;       /* host threads: for CPU kernels, and for host work of a GPU */
    struct Pool *pool; /* the threads of CPU kernels; NULL: none besides the calling one */
    int planned;       /* dry runs: compute capability of the planned GPU (90 is 9.0); 0: not known */
    MemStat mem[MEM_TAGS];
    MemStat total;
    MemStat host;       /* see dev_alloc_host */
    size_t limit;       /* maximum total bytes; 0: no limit */
    size_t host_limit;  /* CPU: the same for all ranks of this host together */
    const char *advice; /* what users can try if memory runs out, see base/setting.h; NULL: nothing */
    bool keep;          /* after a failure: leak memory, since other ranks may still write to it */
    OpLog *op_log;      /* records all operations, mainly in dry runs; may be NULL */
    void *impl;
};

/* A range of device memory and its owner. */
typedef struct Buffer {
    void *data;
    size_t bytes;
    MemTag tag;
    bool host; /* host memory, see dev_alloc_host */
    Device *device;
} Buffer;

enum { STREAM_MARKS = 4 + 512 }; /* of a step, and of calls in flight (kernels/dispatch.c) */

struct Stream {
    Device *device;
    Buffer workspace; /* grows on demand, see stream_workspace */
    bool asked;       /* dry run: a workspace was requested, see stream_workspace */
    bool urgent;      /* see stream_new_urgent */
    bool background; /* CPU: kernels may add background work (device/pool.h), awaited by an event or a sync */
    int64_t background_work; /* CPU: number of the last such work */
    union {
        void *event;
        int64_t ns;
    } mark[STREAM_MARKS]; /* see stream_mark */
    void *impl;
};

extern const DeviceOps device_ops_cpu, device_ops_dryrun;

/* Whether the host can access device memory directly. */
static inline bool device_is_host(const Device *device) {
    return device->ops == &device_ops_cpu;
}
/* See device_new_dryrun. */
static inline bool device_is_dryrun(const Device *device) {
    return device->ops == &device_ops_dryrun;
}

/* threads 0: OMP_NUM_THREADS, else all cores the process may use. */
MUST_USE Status device_new_cpu(Device **ret_device, int threads);
/* GPU number `index`; an error if the build, the driver or the host does not provide one. */
MUST_USE Status device_new_cuda(Device **ret_device, int index);
/* A device that counts allocations without providing memory: the planner executes the real training code on
 * it. Its buffers must not be accessed. `threads`: host threads of the planned device. */
MUST_USE Status device_new_dryrun(Device **ret_device, int threads);
/* By kind, "cpu" or "cuda". `index` applies to GPUs, `threads` (see above) to both. */
MUST_USE Status device_new(Device **ret_device, const char *kind, int index, int threads);
void device_free(Device *device);
DEFINE_FREEP(Device, device)

/* Resolves the number of host threads (0: default) and configures OpenMP. */
int device_host_threads(int asked);
/* Cores this process may use, regardless of OMP_NUM_THREADS. */
int device_host_cores(void);
/* GPUs: lets fp32 matmuls use tf32, which is several times faster. */
void device_allow_tf32(Device *device, bool allow);
/* A usage error if the GPU does not support this precision, named as in DeviceSettings. */
MUST_USE Status device_check_precision(const Device *device, const char *name);
/* GPU utilization over the last fraction of a second, by all processes, 0 to 1; NAN if unavailable. */
double device_utilization(Device *device);
/* Energy of the GPU since the driver was loaded, in joules; NAN if unavailable. Use differences only. */
double device_energy(Device *device);

const char *mem_tag_name(MemTag tag);

/* 64-byte aligned, not zeroed. 0 bytes give a buffer with NULL data. */
MUST_USE Status dev_alloc(Device *device, MemTag tag, size_t bytes, Buffer *ret_buffer);
void dev_free(Buffer *buffer);
/* Counts memory that others provide, such as memory shared by processes, as long as the device exists. */
MUST_USE Status dev_adopt(Device *device, MemTag tag, size_t bytes);
/* Host memory for copies (page-locked for a GPU), 64-byte aligned, not zeroed. Counted in Device.host. Free
 * it with dev_free. */
MUST_USE Status dev_alloc_host(Device *device, size_t bytes, Buffer *ret_buffer);

/* Whether work on two streams of the device runs at the same time; in a dry run, of the planned device. */
bool device_overlaps(const Device *device);
MUST_USE Status stream_new(Stream **ret_stream, Device *device);
/* A stream whose work is preferred to that of other streams. */
MUST_USE Status stream_new_urgent(Stream **ret_stream, Device *device);
void stream_free(Stream *stream);
DEFINE_FREEP(Stream, stream)
MUST_USE Status stream_copy(Stream *stream, void *dst, const void *src, size_t bytes, CopyKind kind);
MUST_USE Status stream_zero(Stream *stream, void *dst, size_t bytes);
MUST_USE Status stream_sync(Stream *stream);
/* Later work on `stream` starts after the work now on `other`. */
MUST_USE Status stream_wait(Stream *stream, Stream *other);
/* An event is the work on a stream so far, for which another stream (wait) or the host (sync) may wait later.
 * record creates *event if it is NULL, and otherwise uses it again. Waiting for NULL does nothing. A recorded
 * wait is for an event outside the recording, as it was last recorded before the replay. */
MUST_USE Status stream_event_record(Stream *stream, void **event);
MUST_USE Status stream_event_wait(Stream *stream, void *event);
MUST_USE Status stream_event_sync(Device *device, void *event);
void stream_event_free(Device *device, void *event);
/* stream_mark records the time at which the work now on the stream completes; stream_elapsed returns the time
 * between two marks, waiting for the later one. Marks are numbered 0 .. STREAM_MARKS - 1. */
MUST_USE Status stream_mark(Stream *stream, int mark);
MUST_USE Status stream_elapsed(Stream *stream, int from, int to, double *ret_seconds);
/* A span of a stream's work in a timeline: the work between begin and end. A GPU runs behind the host, so
 * events mark its spans, and device_spans_finish adds them to the trace: before the trace is packed it waits
 * for them, before it is freed (waits false) it forgets those that are not complete. Without a trace, nothing
 * happens. Spans of one thread. */
typedef struct StreamSpan {
    int64_t start_ns;
    size_t number;
} StreamSpan;

MUST_USE Status stream_span_begin(Stream *stream, Trace *trace, StreamSpan *ret_span);
MUST_USE Status stream_span_end(Stream *stream, Trace *trace, const StreamSpan *span, TraceLane lane,
                                const TraceName *name, const int64_t numbers[TRACE_NUMBERS]);
MUST_USE Status device_spans_finish(Device *device, bool waits);
/* A recording (a CUDA graph) captures work on a stream, to be replayed by one call at far lower host cost.
 * Streams that wait for this one meanwhile take part; it must wait for them before the end.
 * Between begin and end, work is captured, not executed. It must not be waited for, and all memory, including
 * the workspace, must exist beforehand: run the same work once without recording. A replay uses the same
 * addresses and sizes, so anything that changes must be read from memory. It must not write the weights of
 * linear layers. *ret_begun is false if the device does not support recordings; then do not call end. A
 * failing end leaves the stream usable. */
typedef struct Recording Recording;

MUST_USE Status stream_record_begin(Stream *stream, bool *ret_begun);
MUST_USE Status stream_record_end(Stream *stream, Recording **ret_recording);
/* Whether the recording is still valid: false once the stream's workspace has moved. */
bool recording_holds(const Recording *recording);
MUST_USE Status recording_replay(Recording *recording);
void recording_free(Recording *recording);
DEFINE_FREEP(Recording, recording)
/* Scratch for the next kernel on this stream: uninitialized, valid until the next call, counted under
 * MEM_SCRATCH. In a dry run it is counted, `asked` is set and the call fails, which ends the kernel: kernels
 * request their workspace before they access any data. */
MUST_USE Status stream_workspace(Stream *stream, size_t bytes, void **ret_data);

#endif
