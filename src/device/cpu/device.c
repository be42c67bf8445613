/* The CPU device: anonymous mappings for large buffers (lazily zeroed, huge pages if possible), aligned heap
 * blocks for small ones. */
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/trace.h"
#include "device/device.h"
#include "device/host_memory.h"
#include "device/pool.h"

enum { MAP_FROM = 1 << 20 };

/* Aligns the mapping to a huge page; otherwise the start of a buffer, or all of a smaller one, would get
 * small pages. Unmaps the excess. NULL if out of memory. */
static void *map_aligned(size_t bytes) {
    enum { LARGE = 2 << 20 };
    long page = sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX - 2 * LARGE || page <= 0) return NULL;
    size_t whole = (bytes + (size_t)page - 1) / (size_t)page * (size_t)page;
    char *all = mmap(NULL, whole + LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return NULL;
    size_t before = (LARGE - (uintptr_t)all % LARGE) % LARGE;
    if (before) munmap(all, before);
    munmap(all + before + whole, LARGE - before);
    madvise(all + before, whole, MADV_HUGEPAGE);
    return all + before;
}

static Status alloc_cpu(Device *device, size_t bytes, void **ret_data) {
    (void)device;
    void *data;
    if (bytes < MAP_FROM) {
        if (posix_memalign(&data, 64, bytes) != 0) data = NULL;
    } else {
        data = map_aligned(bytes);
    }
    *ret_data = data;
    return OK;
}

static void free_cpu(Device *device, void *data, size_t bytes) {
    (void)device;
    if (bytes < MAP_FROM)
        free(data);
    else
        munmap(data, bytes);
}

static Status alloc_cpu_host(Device *device, size_t bytes, void **ret_data) {
    TRY(alloc_cpu(device, bytes, ret_data));
    return *ret_data ? OK : FAILED("out of memory: cannot allocate %zu bytes of host memory", bytes);
}

static Status copy_cpu(Stream *stream, void *dst, const void *src, size_t bytes, CopyKind kind) {
    if (kind == COPY_TO_HOST) pool_await(stream->device->pool, stream->background_work);
    memmove(dst, src, bytes);
    return OK;
}

/* A part of a large buffer, such as the gradient of an embedding table. */
enum { ZERO_PART = 1 << 18 };

typedef struct Zero {
    char *dst;
    size_t bytes;
} Zero;

static void zero_task(const void *context, int64_t part, int thread) {
    (void)thread;
    const Zero *zero = context;
    size_t from = (size_t)part * ZERO_PART, rest = zero->bytes - from;
    memset(zero->dst + from, 0, rest < ZERO_PART ? rest : ZERO_PART);
}

static Status zero_cpu(Stream *stream, void *dst, size_t bytes) {
    Zero zero = {dst, bytes};
    int64_t parts = (int64_t)((bytes + ZERO_PART - 1) / ZERO_PART);
    PoolWork work = {.tasks = parts, .task = zero_task, .context = &zero, .bytes = sizeof zero};
    if (stream->background && parts > 1)
        return pool_add_background(stream->device->pool, &work, &stream->background_work);
    pool_run(stream->device->pool, parts, zero_task, &zero);
    return OK;
}

static Status stream_init_cpu(Stream *stream) {
    (void)stream;
    return OK;
}

static Status stream_sync_cpu(Stream *stream) {
    pool_await_all(stream->device->pool);
    return OK;
}

static Status stream_wait_cpu(Stream *stream, Stream *other) {
    (void)stream;
    return stream_sync_cpu(other);
}

/* The background work up to a number. */
typedef struct Event {
    Pool *pool;
    int64_t number;
} Event;

static Status event_record_cpu(Stream *stream, void **event) {
    Event *made = *event;
    if (!made) TRY(mem_new(1, sizeof *made, &made));
    *made = (Event){stream->device->pool, stream->background_work};
    *event = made;
    return OK;
}

static Status event_sync_cpu(void *event) {
    const Event *work = event;
    pool_await(work->pool, work->number);
    return OK;
}

static Status event_wait_cpu(Stream *stream, void *event) {
    (void)stream;
    return event_sync_cpu(event);
}

static Status mark_cpu(Stream *stream, int mark) {
    stream->mark[mark].ns = trace_now();
    return OK;
}

static Status elapsed_cpu(Stream *stream, int from, int to, double *ret_seconds) {
    *ret_seconds = 1e-9 * (double)(stream->mark[to].ns - stream->mark[from].ns);
    return OK;
}

static void done_cpu(Device *device) {
    pool_free(device->pool);
}

static void stream_done_cpu(Stream *stream) {
    (void)stream;
}

const DeviceOps device_ops_cpu = {
    .name = "cpu",
    .alloc = alloc_cpu,
    .free = free_cpu,
    .alloc_host = alloc_cpu_host,
    .free_host = free_cpu,
    .copy = copy_cpu,
    .zero = zero_cpu,
    .stream_init = stream_init_cpu,
    .stream_done = stream_done_cpu,
    .stream_sync = stream_sync_cpu,
    .stream_wait = stream_wait_cpu,
    .event_record = event_record_cpu,
    .event_wait = event_wait_cpu,
    .event_sync = event_sync_cpu,
    .event_free = free,
    .mark = mark_cpu,
    .elapsed = elapsed_cpu,
    .done = done_cpu,
};

int device_host_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int cores = CPU_COUNT(&set);
    return cores > 0 ? cores : 1;
}

/* OMP_NUM_THREADS if set, else all available cores. */
static int default_threads(void) {
    const char *asked = getenv("OMP_NUM_THREADS");
    long count = asked ? strtol(asked, NULL, 10) : 0;
    return count > 0 && count <= CPU_SETSIZE ? (int)count : device_host_cores();
}

int device_host_threads(int asked) {
    int threads = asked > 0 ? asked : default_threads();
    omp_set_num_threads(threads);
    return threads;
}

Status device_new_cpu(Device **ret_device, int threads) {
    Device *device = NULL;
    TRY(mem_new(1, sizeof *device, &device));
    device->ops = &device_ops_cpu;
    HostMemory memory = host_memory("");
    device->host_limit = memory.host;
    device->limit = memory.process == SIZE_MAX ? 0 : memory.process;
    if (memory.host && (!device->limit || memory.host < device->limit)) device->limit = memory.host;
    device->threads = device_host_threads(threads);
    Status status = pool_new(&device->pool, device->threads);
    if (status) {
        free(device);
        return status;
    }
    *ret_device = device;
    return OK;
}
