/* A device on paper: what is asked of it is counted and nothing is there.
 *
 * Its addresses are numbers that no one may read or write; copies and clearing do nothing, and what is copied
 * to the host is zero. So the code that lays out memory for a run says how much the run needs, for any size,
 * without taking it. Kernels run on it through a table of kernels_on_paper.
 */
#include <string.h>

#include "base/memory.h"
#include "device/device.h"

/* Far from what sums of sizes could overflow. */
#define PAPER_BYTES ((size_t)1 << 60)

enum { ALIGN = 64 };

/* Addresses never come again: the next one is kept where other devices keep what they are made of. */
static Status alloc_paper(Device *device, size_t bytes, void **ret_data) {
    uintptr_t at = (uintptr_t)device->impl;
    *ret_data = NULL;
    if (bytes > PAPER_BYTES || device->total.current + device->host.current > PAPER_BYTES - bytes) return OK;
    *ret_data = (void *)at;
    device->impl = (void *)(at + (bytes / ALIGN + 1) % (PAPER_BYTES / ALIGN) * ALIGN);
    return OK;
}

static void free_paper(Device *device, void *data, size_t bytes) {
    (void)device, (void)data, (void)bytes;
}

static Status alloc_paper_host(Device *device, size_t bytes, void **ret_data) {
    TRY(alloc_paper(device, bytes, ret_data));
    return *ret_data ? OK : FAILED("out of memory: %zu bytes of the host's", bytes);
}

static Status note(Stream *stream, NoteKind kind, int what, size_t bytes, const void *other) {
    return ledger_add(
        stream->device->ledger,
        (Note){.kind = kind, .what = what, .stream = stream, .other = other, .bytes = (double)bytes});
}

static Status copy_paper(Stream *stream, void *dst, const void *src, size_t bytes, CopyKind kind) {
    (void)src;
    if (kind == COPY_TO_HOST) memset(dst, 0, bytes);
    return note(stream, NOTE_COPY, kind, bytes, NULL);
}

static Status zero_paper(Stream *stream, void *dst, size_t bytes) {
    (void)dst;
    return note(stream, NOTE_ZERO, 0, bytes, NULL);
}

static Status stream_nothing_paper(Stream *stream) {
    (void)stream;
    return OK;
}

static Status stream_sync_paper(Stream *stream) {
    return note(stream, NOTE_SYNC, 0, 0, NULL);
}

static Status stream_wait_paper(Stream *stream, Stream *other) {
    return note(stream, NOTE_JOIN, 0, 0, other);
}

static Status mark_paper(Stream *stream, int mark) {
    (void)stream, (void)mark;
    return OK;
}

static Status elapsed_paper(Stream *stream, int from, int to, double *ret_seconds) {
    (void)stream, (void)from, (void)to;
    *ret_seconds = 0;
    return OK;
}

static void stream_done_paper(Stream *stream) {
    (void)stream;
}

static void done_paper(Device *device) {
    (void)device;
}

const DeviceOps device_ops_paper = {
    .name = "paper",
    .alloc = alloc_paper,
    .free = free_paper,
    .alloc_host = alloc_paper_host,
    .free_host = free_paper,
    .copy = copy_paper,
    .zero = zero_paper,
    .stream_init = stream_nothing_paper,
    .stream_done = stream_done_paper,
    .stream_sync = stream_sync_paper,
    .stream_wait = stream_wait_paper,
    .mark = mark_paper,
    .elapsed = elapsed_paper,
    .done = done_paper,
};

Status device_new_paper(Device **ret_device, int threads) {
    Device *device = NULL;
    TRY(mem_new(1, sizeof *device, &device));
    device->ops = &device_ops_paper;
    device->threads = threads;
    device->impl = (void *)(uintptr_t)PAPER_BYTES;
    *ret_device = device;
    return OK;
}
