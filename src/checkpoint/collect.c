#include "checkpoint/collect.h"

#include <string.h>

#include "base/memory.h"

/* Bytes of a rank's buffer, and of all that rank 0 receives in a round. Small models take several rounds,
 * too, so that buffers are small relative to what they save. */
enum { LEAST = 64 << 10, MOST = 64 << 20, ALL = 256 << 20, ROUNDS = 8 };

typedef enum { WRITES, DONE, FAILS } WriterState;

/* Precedes the bytes of each write in a buffer. */
typedef struct Record {
    int64_t at;
    int32_t file, size;
} Record;

/* What each rank tells the others at the start of a round. */
typedef struct Notice {
    int64_t used, state;
} Notice;

struct Collector {
    const RootDisk *disk;
    SaveList *list;
    RoundFunc round;
    void *context;
    size_t capacity;
    Buffer buffer; /* what this rank sends; on rank 0, what each other rank has sent */
    size_t used;   /* on rank 0: bytes written since the last round */
    WriterState state;
    Notice *notice; /* of all ranks */
    Ticket *ticket;
    bool over, failed;
};

static bool is_root(const Collector *c) {
    return c->disk->group->rank == 0;
}

void collector_free(Collector *c) {
    if (!c) return;
    dev_free(&c->buffer);
    free(c->notice);
    free(c->ticket);
    free(c);
}

Status collector_new(Collector **ret_collector, const RootDisk *disk, size_t bytes) {
    CLEANUP(collector_freep) Collector *c = NULL;
    size_t others = (size_t)disk->group->size - 1;
    int64_t largest = (int64_t)bytes;
    TRY(host_reduce(disk->group, &largest, 1, DT_I64, REDUCE_MAX));
    TRY(mem_new(1, sizeof *c, &c));
    c->disk = disk;
    c->capacity = (size_t)largest / ROUNDS;
    if (c->capacity > MOST) c->capacity = MOST;
    if (others && c->capacity > ALL / others) c->capacity = ALL / others;
    if (c->capacity < LEAST) c->capacity = LEAST;
    TRY(mem_new(others + 1, sizeof *c->notice, &c->notice));
    TRY(mem_new(others + 1, sizeof *c->ticket, &c->ticket));
    TRY(dev_alloc(disk->device, MEM_COMM, (is_root(c) ? others : 1) * c->capacity, &c->buffer));
    return MOVE(ret_collector, c);
}

/* ---- rounds ---- */

static Status exchange(Collector *c) {
    Group *group = c->disk->group;
    Stream *stream = c->disk->stream;
    int tickets = 0;
    TRY(comm_batch_begin(group));
    for (int r = 1; is_root(c) && r < group->size; r++) {
        unsigned char *place = (unsigned char *)c->buffer.data + (size_t)(r - 1) * c->capacity;
        if (c->notice[r].used)
            TRY(comm_receive(group, stream, tensor_1d(place, DT_U8, c->notice[r].used), r,
                             &c->ticket[tickets++]));
    }
    if (!is_root(c) && c->used)
        TRY(comm_send(group, stream, tensor_1d(c->buffer.data, DT_U8, (int64_t)c->used), 0,
                      &c->ticket[tickets++]));
    TRY(comm_batch_end(group));
    for (int i = 0; i < tickets; i++) TRY(ticket_wait(stream, &c->ticket[i]));
    return OK;
}

Status collector_round(Collector *c) {
    Group *group = c->disk->group;
    Notice own = {is_root(c) ? 0 : (int64_t)c->used, c->state};
    bool done = true;
    TRY(host_gather(group, c->notice, &own, sizeof own));
    for (int r = 0; r < group->size; r++) {
        if (c->notice[r].used < 0 || c->notice[r].used > (int64_t)c->capacity)
            return FAILED("internal: rank %d sends more than a buffer of a checkpoint", r);
        c->failed |= c->notice[r].state == FAILS;
        done &= c->notice[r].state == DONE;
    }
    c->over = done || c->failed;
    if (c->failed) return OK;
    Status status = exchange(c);
    if (status) group_drop(group); /* messages may still be in flight */
    return status;
}

static Status write_records(Collector *c, const unsigned char *data, size_t size) {
    for (size_t at = 0; at < size;) {
        Record record;
        if (size - at < sizeof record) return FAILED("internal: a buffer of a checkpoint is incomplete");
        memcpy(&record, data + at, sizeof record);
        at += sizeof record;
        if (record.file < 0 || (size_t)record.file >= c->list->files || record.size < 0 ||
            (size_t)record.size > size - at)
            return FAILED("internal: a buffer of a checkpoint is inconsistent");
        TRY(safe_writer_put(c->list->file[record.file], record.at, data + at, (size_t)record.size));
        at += (size_t)record.size;
    }
    return OK;
}

/* Takes part in a round and, on rank 0, writes what has arrived. */
static Status take_part(Collector *c) {
    TRY(c->round(c->context));
    c->used = 0;
    for (int r = 1; is_root(c) && !c->failed && r < c->disk->group->size; r++)
        TRY(write_records(c, (unsigned char *)c->buffer.data + (size_t)(r - 1) * c->capacity,
                          (size_t)c->notice[r].used));
    return c->failed ? STOPPED("another rank cannot write the checkpoint") : OK;
}

/* ---- writing ---- */

/* Instead of writing to a file: appends to the buffer, and sends it when it is full. */
static Status append(void *context, int file, int64_t at, const void *data, size_t size) {
    Collector *c = context;
    for (const unsigned char *from = data; size > 0;) {
        if (c->used + sizeof(Record) >= c->capacity) TRY(take_part(c));
        size_t room = c->capacity - c->used - sizeof(Record), here = size < room ? size : room;
        Record record = {at, file, (int32_t)here};
        unsigned char *place = (unsigned char *)c->buffer.data + c->used;
        memcpy(place, &record, sizeof record);
        memcpy(place + sizeof record, from, here);
        c->used += sizeof record + here;
        from += here;
        at += (int64_t)here;
        size -= here;
    }
    return OK;
}

void collector_begin(Collector *c, SaveList *list, RoundFunc round, void *context) {
    c->list = list;
    c->round = round;
    c->context = context;
    c->used = 0;
    c->state = WRITES;
    c->over = c->failed = false;
    list->collector = c;
    for (size_t i = 0; !is_root(c) && i < list->files; i++)
        safe_writer_divert(list->file[i], append, c, (int)i);
}

Status collector_wrote(Collector *c, int64_t bytes) {
    if (!c || !is_root(c)) return OK;
    c->used += (size_t)bytes;
    return c->used < c->capacity ? OK : take_part(c);
}

Status collector_end(Collector *c, Status status) {
    if (status && c->failed) { /* by another rank */
        status_free(status);
        return OK;
    }
    c->state = status ? FAILS : DONE;
    while (!c->over) {
        Status taken = take_part(c);
        if (!taken) continue;
        if (status || c->failed) {
            status_free(taken);
            return status;
        }
        status = taken;
        c->state = FAILS;
    }
    return status;
}

bool collector_over(const Collector *c) {
    return c->over;
}

void collector_fail(Collector *c) {
    c->state = FAILS;
}

void collector_abandon(Collector *c) {
    c->over = c->failed = true;
}

static Status round_here(void *context) {
    return collector_round(context);
}

void collector_begin_here(Collector *c, SaveList *list) {
    collector_begin(c, list, round_here, c);
}
