/* A device is where tensors live and kernels run. All tensor memory comes from dev_alloc, which
 * counts it by tag; streams order work; events mark points in it. The CPU's streams are synchronous:
 * work is done when the call returns. */
#ifndef WEFT_DEVICE_DEVICE_H
#define WEFT_DEVICE_DEVICE_H

#include <stdint.h>

#include "base/status.h"
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
    Status (*alloc)(Device *device, size_t bytes, void **ret_data); /* NULL: there is not so much */
    void (*free)(Device *device, void *data, size_t bytes);
    /* Memory of the host that copies to and from the device run fastest with. */
    Status (*alloc_host)(Device *device, size_t bytes, void **ret_data);
    void (*free_host)(Device *device, void *data, size_t bytes);
    Status (*copy)(Stream *stream, void *dst, const void *src, size_t bytes, CopyKind kind);
    Status (*zero)(Stream *stream, void *dst, size_t bytes);
    Status (*stream_init)(Stream *stream);
    void (*stream_done)(Stream *stream);
    Status (*stream_sync)(Stream *stream);
    Status (*stream_wait)(Stream *stream, Stream *other);
    Status (*mark)(Stream *stream, int mark);
    Status (*elapsed)(Stream *stream, int from, int to, double *ret_seconds);
    /* Recordings, see stream_record_begin. NULL, all four: the device has none. */
    Status (*record_begin)(Stream *stream, bool *ret_begun);
    Status (*record_end)(Stream *stream, void **ret_recorded);
    Status (*replay)(Stream *stream, void *recorded);
    void (*recorded_free)(void *recorded);
    /* The device's own measure of how busy it was of late, 0 to 1. NULL: it has none. */
    Status (*utilization)(Device *device, double *ret_share);
    void (*done)(Device *device);
} DeviceOps;

struct Device {
    const DeviceOps *ops;
    int index;   /* which of its kind */
    int threads; /* that the host computes with: the CPU's kernels, and what comes before a GPU's */
    MemStat mem[MEM_TAGS];
    MemStat total;
    MemStat host;  /* see dev_alloc_host */
    size_t limit;  /* bytes that may be allocated in all; 0: no limit */
    bool keep;     /* after a failure: nothing is given back, since other ranks may still write to it */
    OpLog *op_log; /* on paper: where what is asked of it is written down; NULL: nowhere */
    void *impl;
};

/* A piece of device memory and its owner. */
typedef struct Buffer {
    void *data;
    size_t bytes;
    MemTag tag;
    bool host; /* the host's memory, see dev_alloc_host */
    Device *device;
} Buffer;

enum { STREAM_MARKS = 4 };

struct Stream {
    Device *device;
    Buffer workspace; /* grows on demand, see stream_workspace */
    bool asked;       /* on paper: the workspace was asked for, see stream_workspace */
    Buffer comm;      /* of operations between ranks started on this stream; comm/ takes it when needed */
    union {
        void *event;
        int64_t ns;
    } mark[STREAM_MARKS]; /* see stream_mark */
    void *impl;
};

extern const DeviceOps device_ops_cpu, device_ops_dryrun;

/* Whether the host may read and write the device's memory itself. */
static inline bool device_is_host(const Device *device) {
    return device->ops == &device_ops_cpu;
}
/* Whether it only counts, see device_new_dryrun. */
static inline bool device_is_dryrun(const Device *device) {
    return device->ops == &device_ops_dryrun;
}

/* threads 0: OMP_NUM_THREADS, or as many as the process may run on. */
MUST_USE Status device_new_cpu(Device **ret_device, int threads);
/* GPU number `index`; fails where the build, the driver or the machine has none. */
MUST_USE Status device_new_cuda(Device **ret_device, int index);
/* A device that counts memory and has none: for planning, with the code that runs in earnest. Nothing may
 * read or write its buffers. `threads` are those that the planned device's host would compute with. */
MUST_USE Status device_new_dryrun(Device **ret_device, int threads);
/* By its kind's name, "cpu" or "cuda". `index` is for GPUs; threads as above, for either. */
MUST_USE Status device_new(Device **ret_device, const char *kind, int index, int threads);
void device_free(Device *device);
DEFINE_FREEP(Device, device)

/* How many threads the host shall compute with, which OpenMP is told too. */
int device_host_threads(int asked);
/* Cores that this process may run on, whatever OMP_NUM_THREADS says. */
int device_host_cores(void);
/* GPUs: fp32 products may round what they multiply to tf32, which is several times as fast. */
void device_allow_tf32(Device *device, bool allow);
/* Fails where the GPU has no products of 8-bit numbers. */
MUST_USE Status device_check_fp8(const Device *device);
/* How busy a GPU was during the last part of a second, 0 to 1, whoever used it; NAN where nothing says. */
double device_utilization(Device *device);

const char *mem_tag_name(MemTag tag);

/* 64-byte aligned, not zeroed. bytes 0 gives a buffer with data NULL. */
MUST_USE Status dev_alloc(Device *device, MemTag tag, size_t bytes, Buffer *ret_buffer);
void dev_free(Buffer *buffer);
/* Host memory for a device's copies (page-locked for a GPU), 64-byte aligned, not zeroed. The device counts
 * it apart from its own memory; dev_free gives it back. */
MUST_USE Status dev_alloc_host(Device *device, size_t bytes, Buffer *ret_buffer);

MUST_USE Status stream_new(Stream **ret_stream, Device *device);
void stream_free(Stream *stream);
DEFINE_FREEP(Stream, stream)
MUST_USE Status stream_copy(Stream *stream, void *dst, const void *src, size_t bytes, CopyKind kind);
MUST_USE Status stream_zero(Stream *stream, void *dst, size_t bytes);
MUST_USE Status stream_sync(Stream *stream);
/* What is put on the stream from now on begins after what is on the other one now. */
MUST_USE Status stream_wait(Stream *stream, Stream *other);
/* Notes the moment at which the work that is on the stream now will be done; and the time from one such
 * moment to a later one, which is waited for. Marks are numbered from 0. */
MUST_USE Status stream_mark(Stream *stream, int mark);
MUST_USE Status stream_elapsed(Stream *stream, int from, int to, double *ret_seconds);
/* A recording is work that was put on a stream once and can be put there again by one call, which costs the
 * host far less. Between begin and end, work on the stream is recorded and not done; it may not be waited for
 * and needs all its memory beforehand, the workspace included: do the same work once without recording. What
 * is done again has the same addresses and sizes, so what differs must lie in memory; weights of linear
 * layers may not be written by it. *ret_begun is false where the device has no recordings; then there is no
 * end. An end that fails leaves the stream as it was. */
typedef struct Recording Recording;

MUST_USE Status stream_record_begin(Stream *stream, bool *ret_begun);
MUST_USE Status stream_record_end(Stream *stream, Recording **ret_recording);
/* Whether the stream's workspace still lies where it was; if not, the recording is of no use any more. */
bool recording_holds(const Recording *recording);
MUST_USE Status recording_replay(Recording *recording);
void recording_free(Recording *recording);
DEFINE_FREEP(Recording, recording)
/* Scratch for the one kernel that runs next on this stream; the content is undefined and the
 * pointer holds until the next call. Counted under MEM_SCRATCH. On paper it is counted, `asked` is set and
 * the call fails, which ends the kernel: kernels take their workspace before they touch anything. */
MUST_USE Status stream_workspace(Stream *stream, size_t bytes, void **ret_data);

#endif
