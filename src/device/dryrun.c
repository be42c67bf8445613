/* The dry-run device: counts allocations without providing memory.
 *
 * Its addresses must not be accessed; copies and zeroing do nothing, and copies to the host return zeros. The
 * code that lays out memory for a run thus reports how much the run needs, for any size, without allocating
 * it. Kernels run on it through the table from kernels_dryrun.
 */
#include <string.h>

#include "base/memory.h"
#include "device/device.h"

/* Low enough that sums of sizes cannot overflow. */
#define DRYRUN_BYTES ((size_t)1 << 60)

enum { ALIGN = 64 };

/* Addresses are never reused; `impl` holds the next one. */
static Status alloc_dryrun(Device *device, size_t bytes, void **ret_data) {
    uintptr_t at = (uintptr_t)device->impl;
    *ret_data = NULL;
    if (bytes > DRYRUN_BYTES || device->total.current + device->host.current > DRYRUN_BYTES - bytes)
        return OK;
    *ret_data = (void *)at;
    device->impl = (void *)(at + (bytes / ALIGN + 1) % (DRYRUN_BYTES / ALIGN) * ALIGN);
    return OK;
}

static void free_dryrun(Device *device, void *data, size_t bytes) {
    (void)device, (void)data, (void)bytes;
}

static Status alloc_dryrun_host(Device *device, size_t bytes, void **ret_data) {
    TRY(alloc_dryrun(device, bytes, ret_data));
    return *ret_data ? OK : FAILED("out of memory: cannot allocate %zu bytes of host memory", bytes);
}

static Status record(Stream *stream, OpKind kind, int what, size_t bytes, const void *other,
                     uint64_t number) {
    return op_log_add(stream->device->op_log, (OpRecord){.kind = kind,
                                                         .what = what,
                                                         .stream = stream,
                                                         .other = other,
                                                         .number = number,
                                                         .bytes = (double)bytes});
}

/* The number of copies on a stream so far. */
static uintptr_t copies_of(const Stream *stream) {
    return (uintptr_t)stream->impl;
}

static Status copy_dryrun(Stream *stream, void *dst, const void *src, size_t bytes, CopyKind kind) {
    (void)src;
    if (kind == COPY_TO_HOST && (uintptr_t)dst < DRYRUN_BYTES) memset(dst, 0, bytes);
    stream->impl = (void *)(copies_of(stream) + 1);
    return record(stream, OP_COPY, kind, bytes, NULL, 0);
}

static Status zero_dryrun(Stream *stream, void *dst, size_t bytes) {
    (void)stream, (void)dst, (void)bytes;
    return OK;
}

static Status stream_nothing_dryrun(Stream *stream) {
    (void)stream;
    return OK;
}

static Status stream_sync_dryrun(Stream *stream) {
    return record(stream, OP_SYNC, 0, 0, NULL, 0);
}

static Status stream_wait_dryrun(Stream *stream, Stream *other) {
    return record(stream, OP_JOIN, 0, 0, other, 0);
}

/* What a stream had copied. */
typedef struct Event {
    const Stream *stream;
    uintptr_t copies;
} Event;

static Status event_record_dryrun(Stream *stream, void **event) {
    Event *made = *event;
    if (!made) TRY(mem_new(1, sizeof *made, &made));
    *made = (Event){stream, copies_of(stream)};
    *event = made;
    return OK;
}

static Status event_wait_dryrun(Stream *stream, void *event) {
    const Event *past = event;
    if (past->stream == stream) return OK;
    return record(stream, OP_JOIN, 0, 0, past->stream, copies_of(past->stream) - past->copies);
}

static Status event_sync_dryrun(void *event) {
    (void)event;
    return OK;
}

static Status mark_dryrun(Stream *stream, int mark) {
    (void)stream, (void)mark;
    return OK;
}

static Status elapsed_dryrun(Stream *stream, int from, int to, double *ret_seconds) {
    (void)stream, (void)from, (void)to;
    *ret_seconds = 0;
    return OK;
}

static void stream_done_dryrun(Stream *stream) {
    (void)stream;
}

static void done_dryrun(Device *device) {
    (void)device;
}

const DeviceOps device_ops_dryrun = {
    .name = "dry run",
    .alloc = alloc_dryrun,
    .free = free_dryrun,
    .alloc_host = alloc_dryrun_host,
    .free_host = free_dryrun,
    .copy = copy_dryrun,
    .zero = zero_dryrun,
    .stream_init = stream_nothing_dryrun,
    .stream_done = stream_done_dryrun,
    .stream_sync = stream_sync_dryrun,
    .stream_wait = stream_wait_dryrun,
    .event_record = event_record_dryrun,
    .event_wait = event_wait_dryrun,
    .event_sync = event_sync_dryrun,
    .event_free = free,
    .mark = mark_dryrun,
    .elapsed = elapsed_dryrun,
    .done = done_dryrun,
};

Status device_new_dryrun(Device **ret_device, int threads) {
    Device *device = NULL;
    TRY(mem_new(1, sizeof *device, &device));
    device->ops = &device_ops_dryrun;
    device->threads = threads;
    device->impl = (void *)(uintptr_t)DRYRUN_BYTES;
    *ret_device = device;
    return OK;
}
