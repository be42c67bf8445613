/* The counting allocator and code common to all device kinds. */
#include "device/device.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "base/setting.h"

static const char *const tag_names[MEM_TAGS] = {"params",      "grads", "optimizer",
                                                "activations", "comm",  "scratch"};

const char *mem_tag_name(MemTag tag) {
    return tag_names[tag];
}

static void count(MemStat *stat, size_t bytes) {
    stat->current += bytes;
    if (stat->current > stat->peak) stat->peak = stat->current;
}

/* Memory by tag, largest first: "activations 3.1 GB, params 1.2 GB". */
static void describe_use(const Device *device, char *text, size_t size) {
    bool said[MEM_TAGS] = {false};
    size_t used = 0;
    text[0] = 0;
    for (int n = 0; n < MEM_TAGS; n++) {
        int most = -1;
        for (int tag = 0; tag < MEM_TAGS; tag++)
            if (!said[tag] && (most < 0 || device->mem[tag].current > device->mem[most].current)) most = tag;
        said[most] = true;
        if (!device->mem[most].current || used >= size) break;
        char bytes[FORMAT_SIZE];
        used += (size_t)snprintf(text + used, size - used, "%s%s %s", used ? ", " : "", tag_names[most],
                                 format_bytes(bytes, (double)device->mem[most].current));
    }
}

static Status out_of_memory(const Device *device, MemTag tag, size_t bytes) {
    char more[FORMAT_SIZE], use[256], limit[FORMAT_SIZE + 32] = "", size[FORMAT_SIZE];
    CLEANUP(mem_freep) char *advice = device->advice ? setting_spell(device->advice) : NULL;
    if (device->limit) snprintf(limit, sizeof limit, ", limit %s", format_bytes(size, (double)device->limit));
    describe_use(device, use, sizeof use);
    /* Memory of a GPU may still belong to ranks that are ending. */
    StatusKind kind = device_is_host(device) ? STATUS_REFUSED : STATUS_FAILED;
    return status_new(kind, __FILE__, __LINE__, "out of memory: cannot allocate %s for %s; in use: %s%s%s%s",
                      format_bytes(more, (double)bytes), tag_names[tag], use[0] ? use : "nothing", limit,
                      advice ? ". Try " : "", advice ? advice : "");
}

static Status check_limit(const Device *device, MemTag tag, size_t bytes) {
    if (!device->limit || (bytes <= device->limit && device->total.current <= device->limit - bytes))
        return OK;
    return out_of_memory(device, tag, bytes);
}

Status dev_adopt(Device *device, MemTag tag, size_t bytes) {
    TRY(check_limit(device, tag, bytes));
    count(&device->mem[tag], bytes);
    count(&device->total, bytes);
    return OK;
}

Status dev_alloc(Device *device, MemTag tag, size_t bytes, Buffer *ret_buffer) {
    if (bytes == 0) {
        *ret_buffer = (Buffer){.tag = tag, .device = device};
        return OK;
    }
    void *data = NULL;
    TRY(check_limit(device, tag, bytes));
    TRY(device->ops->alloc(device, bytes, &data));
    if (!data) return out_of_memory(device, tag, bytes);
    count(&device->mem[tag], bytes);
    count(&device->total, bytes);
    *ret_buffer = (Buffer){.data = data, .bytes = bytes, .tag = tag, .device = device};
    return OK;
}

Status dev_alloc_host(Device *device, size_t bytes, Buffer *ret_buffer) {
    Buffer buffer = {.bytes = bytes, .host = true, .device = device};
    size_t used = device->total.current + device->host.current;
    if (device_is_host(device) && device->limit && (bytes > device->limit || used > device->limit - bytes)) {
        char more[FORMAT_SIZE], limit[FORMAT_SIZE];
        return FAILED("out of memory: cannot allocate %s of host memory; the limit is %s",
                      format_bytes(more, (double)bytes), format_bytes(limit, (double)device->limit));
    }
    if (bytes) TRY(device->ops->alloc_host(device, bytes, &buffer.data));
    count(&device->host, bytes);
    *ret_buffer = buffer;
    return OK;
}

void dev_free(Buffer *buffer) {
    Device *device = buffer->device;
    if (buffer->data && buffer->host) {
        if (!device->keep) device->ops->free_host(device, buffer->data, buffer->bytes);
        device->host.current -= buffer->bytes;
    } else if (buffer->data) {
        if (!device->keep) device->ops->free(device, buffer->data, buffer->bytes);
        device->mem[buffer->tag].current -= buffer->bytes;
        device->total.current -= buffer->bytes;
    }
    *buffer = (Buffer){0};
}

Status device_new(Device **ret_device, const char *kind, int index, int threads) {
    if (strcmp(kind, "cpu") == 0) return device_new_cpu(ret_device, threads);
    if (strcmp(kind, "cuda")) return USAGE("unknown device '%s'; expected cpu or cuda", kind);
    TRY(device_new_cuda(ret_device, index));
    (*ret_device)->threads = device_host_threads(threads);
    return OK;
}

double device_utilization(Device *device) {
    double share = NAN;
    if (!device->ops->utilization) return NAN;
    CLEANUP(status_freep) Status unknown = device->ops->utilization(device, &share);
    return unknown ? NAN : share;
}

double device_energy(Device *device) {
    double joules = NAN;
    if (!device->ops->energy) return NAN;
    CLEANUP(status_freep) Status unknown = device->ops->energy(device, &joules);
    return unknown ? NAN : joules;
}

void device_free(Device *device) {
    if (!device) return;
    device->ops->done(device);
    free(device);
}

bool device_overlaps(const Device *device) {
    if (device_is_dryrun(device)) return device->planned > 0;
    return device->ops->overlaps && device->ops->overlaps(device);
}

static Status make_stream(Stream **ret_stream, Device *device, bool urgent) {
    Stream *stream = NULL;
    TRY(mem_new(1, sizeof *stream, &stream));
    stream->device = device;
    stream->urgent = urgent;
    Status status = device->ops->stream_init(stream);
    if (status) {
        free(stream);
        return status;
    }
    *ret_stream = stream;
    return OK;
}

Status stream_new(Stream **ret_stream, Device *device) {
    return make_stream(ret_stream, device, false);
}

Status stream_new_urgent(Stream **ret_stream, Device *device) {
    return make_stream(ret_stream, device, true);
}

void stream_free(Stream *stream) {
    if (!stream) return;
    dev_free(&stream->workspace);
    stream->device->ops->stream_done(stream);
    free(stream);
}

Status stream_copy(Stream *stream, void *dst, const void *src, size_t bytes, CopyKind kind) {
    return bytes ? stream->device->ops->copy(stream, dst, src, bytes, kind) : OK;
}

Status stream_zero(Stream *stream, void *dst, size_t bytes) {
    if (!bytes) return OK;
    TRY(stream->device->ops->zero(stream, dst, bytes));
    return op_log_add(stream->device->op_log,
                      (OpRecord){.kind = OP_ZERO, .stream = stream, .bytes = (double)bytes});
}

Status stream_sync(Stream *stream) {
    return stream->device->ops->stream_sync(stream);
}

Status stream_wait(Stream *stream, Stream *other) {
    return stream == other ? OK : stream->device->ops->stream_wait(stream, other);
}

Status stream_event_record(Stream *stream, void **event) {
    return stream->device->ops->event_record ? stream->device->ops->event_record(stream, event) : OK;
}

Status stream_event_wait(Stream *stream, void *event) {
    return event ? stream->device->ops->event_wait(stream, event) : OK;
}

Status stream_event_sync(Device *device, void *event) {
    return event ? device->ops->event_sync(event) : OK;
}

void stream_event_free(Device *device, void *event) {
    if (event) device->ops->event_free(event);
}

Status stream_mark(Stream *stream, int mark) {
    return stream->device->ops->mark(stream, mark);
}

Status stream_elapsed(Stream *stream, int from, int to, double *ret_seconds) {
    return stream->device->ops->elapsed(stream, from, to, ret_seconds);
}

Status stream_span_begin(Stream *stream, Trace *trace, StreamSpan *ret_span) {
    const DeviceOps *ops = stream->device->ops;
    *ret_span = (StreamSpan){0};
    if (!trace) return OK;
    if (ops->span_begin) return ops->span_begin(stream, trace, &ret_span->number);
    ret_span->start_ns = trace_now();
    return OK;
}

Status stream_span_end(Stream *stream, Trace *trace, const StreamSpan *span, TraceLane lane,
                       const TraceName *name, const int64_t numbers[TRACE_NUMBERS]) {
    const DeviceOps *ops = stream->device->ops;
    if (!trace) return OK;
    if (ops->span_end) return ops->span_end(stream, span->number, lane, name, numbers);
    trace_add_numbers(trace, lane, name, span->start_ns, trace_now(), numbers);
    return OK;
}

Status device_spans_finish(Device *device, bool waits) {
    return device->ops->spans_finish ? device->ops->spans_finish(device, waits) : OK;
}

struct Recording {
    Stream *stream;
    void *workspace; /* the stream's workspace, which captured work may use */
    void *recorded;
};

Status stream_record_begin(Stream *stream, bool *ret_begun) {
    *ret_begun = false;
    return stream->device->ops->record_begin ? stream->device->ops->record_begin(stream, ret_begun) : OK;
}

Status stream_record_end(Stream *stream, Recording **ret_recording) {
    void *recorded = NULL;
    TRY(stream->device->ops->record_end(stream, &recorded));
    Status status = mem_new(1, sizeof **ret_recording, ret_recording);
    if (status) {
        stream->device->ops->recorded_free(recorded);
        return status;
    }
    **ret_recording =
        (Recording){.stream = stream, .workspace = stream->workspace.data, .recorded = recorded};
    return OK;
}

bool recording_holds(const Recording *recording) {
    return recording->stream->workspace.data == recording->workspace;
}

Status recording_replay(Recording *recording) {
    return recording->stream->device->ops->replay(recording->stream, recording->recorded);
}

void recording_free(Recording *recording) {
    if (!recording) return;
    recording->stream->device->ops->recorded_free(recording->recorded);
    free(recording);
}

Status stream_workspace(Stream *stream, size_t bytes, void **ret_data) {
    if (bytes > stream->workspace.bytes) {
        TRY(stream_sync(stream));
        dev_free(&stream->workspace);
        TRY(dev_alloc(stream->device, MEM_SCRATCH, bytes, &stream->workspace));
    }
    if (device_is_dryrun(stream->device)) {
        stream->asked = true;
        return FAILED("internal: workspace requested in a dry run");
    }
    *ret_data = stream->workspace.data;
    return OK;
}
