/* The counting allocator and what is the same for every kind of device. */
#include "device/device.h"

#include "base/format.h"
#include "base/memory.h"

static const char *const tag_names[MEM_TAGS] = {"params",      "grads", "optimizer",
                                                "activations", "comm",  "scratch"};

const char *mem_tag_name(MemTag tag) {
    return tag_names[tag];
}

static void count(MemStat *stat, size_t bytes) {
    stat->current += bytes;
    if (stat->current > stat->peak) stat->peak = stat->current;
}

Status dev_alloc(Device *device, MemTag tag, size_t bytes, Buffer *ret_buffer) {
    if (bytes == 0) {
        *ret_buffer = (Buffer){.tag = tag, .device = device};
        return OK;
    }
    if (device->limit && (bytes > device->limit || device->total.current > device->limit - bytes)) {
        char more[FORMAT_SIZE], used[FORMAT_SIZE], limit[FORMAT_SIZE];
        return FAILED("out of memory: %s for %s on top of %s, where %s are available; smaller micro-batches, "
                      "--recompute block or a smaller model need less",
                      format_bytes(more, (double)bytes), tag_names[tag],
                      format_bytes(used, (double)device->total.current),
                      format_bytes(limit, (double)device->limit));
    }
    void *data = NULL;
    Status status = device->ops->alloc(device, bytes, &data);
    if (status)
        return status_wrap(status, "%zu bytes for %s with %zu in use", bytes, tag_names[tag],
                           device->total.current);
    count(&device->mem[tag], bytes);
    count(&device->total, bytes);
    *ret_buffer = (Buffer){.data = data, .bytes = bytes, .tag = tag, .device = device};
    return OK;
}

void dev_free(Buffer *buffer) {
    if (buffer->data) {
        Device *device = buffer->device;
        if (!device->keep) device->ops->free(device, buffer->data, buffer->bytes);
        device->mem[buffer->tag].current -= buffer->bytes;
        device->total.current -= buffer->bytes;
    }
    *buffer = (Buffer){0};
}

Status stream_new(Stream **ret_stream, Device *device) {
    Stream *stream = NULL;
    TRY(mem_new(1, sizeof *stream, &stream));
    stream->device = device;
    Status status = device->ops->stream_init(stream);
    if (status) {
        free(stream);
        return status;
    }
    *ret_stream = stream;
    return OK;
}

void stream_free(Stream *stream) {
    if (!stream) return;
    dev_free(&stream->workspace);
    dev_free(&stream->comm);
    stream->device->ops->stream_done(stream);
    free(stream);
}

Status stream_copy(Stream *stream, void *dst, const void *src, size_t bytes, CopyKind kind) {
    return bytes ? stream->device->ops->copy(stream, dst, src, bytes, kind) : OK;
}

Status stream_zero(Stream *stream, void *dst, size_t bytes) {
    return bytes ? stream->device->ops->zero(stream, dst, bytes) : OK;
}

Status stream_sync(Stream *stream) {
    return stream->device->ops->stream_sync(stream);
}

Status stream_workspace(Stream *stream, size_t bytes, void **ret_data) {
    if (bytes > stream->workspace.bytes) {
        TRY(stream_sync(stream));
        dev_free(&stream->workspace);
        TRY(dev_alloc(stream->device, MEM_SCRATCH, bytes, &stream->workspace));
    }
    *ret_data = stream->workspace.data;
    return OK;
}
