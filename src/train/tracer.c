/* Ranks broadcast their packed spans one at a time, so that only rank 0 holds all of them at once. */
#include "train/tracer.h"

#include <string.h>

#include "base/memory.h"

enum { CAPACITY = 1 << 16, LABEL_SIZE = 96 };

/* Packed traces by rank; complete on rank 0 only. */
typedef struct Packed {
    void **bytes;
    size_t *size;
    int count;
} Packed;

static void packed_done(Packed *packed) {
    for (int i = 0; packed->bytes && i < packed->count; i++) free(packed->bytes[i]);
    free(packed->bytes);
    free(packed->size);
}

struct Tracer {
    Runner *runner;
    char *path;
    int64_t first, steps;
    Trace *trace; /* NULL while not recording */
    bool done;
    Packed unwritten; /* a trace that could not be written */
    Progress *progress;
};

Status tracer_new(Tracer **ret_tracer, Runner *runner, const char *path, int64_t first, int64_t steps,
                  Progress *progress) {
    CLEANUP(tracer_freep) Tracer *tracer = NULL;
    TRY(mem_new(1, sizeof *tracer, &tracer));
    TRY(str_dup(path, &tracer->path));
    tracer->runner = runner;
    tracer->first = first;
    tracer->steps = steps;
    tracer->progress = progress;
    return MOVE(ret_tracer, tracer);
}

static void set_trace(Runner *runner, Trace *trace) {
    runner->trace = trace;
    mesh_trace(runner->mesh, trace);
}

void tracer_free(Tracer *tracer) {
    if (!tracer) return;
    if (tracer->trace) {
        set_trace(tracer->runner, NULL);
        status_free(device_spans_finish(tracer->runner->device, false));
    }
    packed_done(&tracer->unwritten);
    trace_free(tracer->trace);
    free(tracer->path);
    free(tracer);
}

static Status begin(Tracer *tracer) {
    TRY(trace_new(&tracer->trace, CAPACITY));
    TRY(barrier(tracer->runner->mesh->world));
    trace_start(tracer->trace);
    set_trace(tracer->runner, tracer->trace);
    return OK;
}

/* The title of a rank's rows: its position on each axis with more than one rank. */
static void describe(const Mesh *mesh, char label[LABEL_SIZE]) {
    size_t used = (size_t)snprintf(label, LABEL_SIZE, "rank %d", mesh->rank);
    char host[HOST_SIZE];
    if (group_hosts(mesh->world) > 1)
        used += (size_t)snprintf(label + used, LABEL_SIZE - used, " on %s",
                                 group_host(mesh->world, mesh->rank, host));
    const char *comma = ":";
    for (int n = AXIS_COUNT - 1; n >= 0 && used < LABEL_SIZE; n--) {
        Axis axis = axis_by_distance(n);
        if (mesh->extent[axis] == 1) continue;
        used += (size_t)snprintf(label + used, LABEL_SIZE - used, "%s %s %d", comma, axis_info(axis)->place,
                                 mesh->at[axis]);
        comma = ",";
    }
}

static Status collect(Group *world, Packed *packed, size_t own) {
    TRY(host_gather(world, packed->size, &own, sizeof own));
    for (int r = 1; r < world->size; r++) {
        if (r != world->rank) TRY(mem_new(1, packed->size[r], &packed->bytes[r]));
        TRY(host_broadcast(world, packed->bytes[r], packed->size[r], r));
        if (world->rank == 0 || r == world->rank) continue;
        free(packed->bytes[r]);
        packed->bytes[r] = NULL;
    }
    return OK;
}

static Status write_packed(const Tracer *tracer, const Packed *packed) {
    return trace_write(tracer->path, (const void *const *)packed->bytes, packed->size, packed->count);
}

static Status end(Tracer *tracer) {
    const Mesh *mesh = tracer->runner->mesh;
    char label[LABEL_SIZE];
    size_t size;
    set_trace(tracer->runner, NULL);
    TRY(device_spans_finish(tracer->runner->device, true));
    tracer->done = true;
    describe(mesh, label);
    CLEANUP(packed_done) Packed packed = {.count = mesh->size};
    TRY(mem_new((size_t)mesh->size, sizeof *packed.bytes, &packed.bytes));
    TRY(mem_new((size_t)mesh->size, sizeof *packed.size, &packed.size));
    TRY(trace_pack(tracer->trace, mesh->rank, label, &packed.bytes[mesh->rank], &size));
    TRY(collect(mesh->world, &packed, size));
    trace_free(tracer->trace);
    tracer->trace = NULL;
    if (mesh->rank > 0) return OK;
    Status failed = write_packed(tracer, &packed);
    if (!failed || !tracer->progress) return failed;
    progress_line(tracer->progress, "warning: %s; training continues", status_message(failed));
    status_free(failed);
    tracer->unwritten = packed;
    packed = (Packed){0};
    return OK;
}

Status tracer_next(Tracer *tracer, int64_t step) {
    if (!tracer || tracer->done) return OK;
    if (tracer->trace) return step < tracer->first + tracer->steps ? OK : end(tracer);
    return step < tracer->first ? OK : begin(tracer);
}

Status tracer_finish(Tracer *tracer) {
    if (tracer && tracer->trace) TRY(end(tracer));
    if (!tracer || !tracer->unwritten.bytes) return OK;
    CLEANUP(status_freep) Status failed = write_packed(tracer, &tracer->unwritten);
    if (failed) progress_line(tracer->progress, "warning: %s; there is no trace", status_message(failed));
    return OK;
}

/* trace.json on rank 0, trace-rank-2.json on rank 2. */
static Status own_path(const Tracer *tracer, char **ret_path) {
    static const char ending[] = ".json";
    int rank = tracer->runner->mesh->rank;
    size_t length = strlen(tracer->path), cut = sizeof ending - 1;
    if (rank == 0) return str_dup(tracer->path, ret_path);
    if (length > cut && !strcmp(tracer->path + length - cut, ending)) length -= cut;
    return str_format(ret_path, "%.*s-rank-%d%s", (int)length, tracer->path, rank, ending);
}

Status tracer_rescue(Tracer *tracer) {
    if (!tracer || !tracer->trace) return OK;
    const Mesh *mesh = tracer->runner->mesh;
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(mem_freep) void *bytes = NULL;
    char label[LABEL_SIZE];
    size_t size;
    group_drop(mesh->world); /* operations in flight still record spans */
    status_free(device_spans_finish(tracer->runner->device, false));
    describe(mesh, label);
    TRY(own_path(tracer, &path));
    TRY(trace_pack(tracer->trace, mesh->rank, label, &bytes, &size));
    const void *packed = bytes;
    return trace_write(path, &packed, &size, 1);
}
